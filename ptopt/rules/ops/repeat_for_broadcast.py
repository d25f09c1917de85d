from __future__ import annotations

import ast
from collections.abc import Iterator

from ptopt.rules.base import Benchmark, Edit, Fix, Invalid, Problem, Rule, Safety, Severity, SourceFile
from ptopt.rules.code import quote
from ptopt.rules.ops._calls import int_literal, runs_once, torch_op
from ptopt.rules.shared.flow import is_cast, outer_call, reads

_ELEMENTWISE = (ast.Add, ast.Sub, ast.Mult, ast.Div, ast.Pow)
_FEW_COPIES = 8
_READERS = (
    "cat",
    "concat",
    "gather",
    "take_along_dim",
    "where",
    "scatter",
    "scatter_",
    "scatter_add",
    "scatter_add_",
)


class RepeatForBroadcast(Rule):
    """`repeat` copies a tensor that only has to look larger.

    ## What it does
    Finds `x.unsqueeze(1).repeat(1, n, 1)` and `x[:, None].repeat(1, n, 1)`, where the repeated dimension has size 1
    for sure, as an operand of arithmetic or as what `cat`, `gather`, `scatter` or `where` reads, also through a name.

    ## Why it is slow
    `repeat` writes n copies to memory, and they are read back at once. `expand` gives the same values as a view with
    stride 0: nothing is written, and the operation reads the one copy.

    ## Fix safety
    Safe for the index of `gather` where the code shows the number of dimensions. Unsafe where `repeat` might add dimensions
    at the front, and where the result of arithmetic may take the memory layout of the other operand, which a `.view`
    of the result would notice.

    ## Sources
    - [torch.Tensor.expand](https://docs.pytorch.org/docs/stable/generated/torch.Tensor.expand.html)
    """

    id = "PTO406"
    name = "repeat-for-broadcast"
    family = "ops"
    severity = Severity.LOW
    triggers = (".repeat(",)
    requires = ("unsqueeze(", "None")
    nodes = (ast.Call,)
    calls = frozenset({"repeat"})
    when_wrong = "the copy is written to later"

    VALID = (
        """
        x = tokens.unsqueeze(1).repeat(1, n, 1)
        x[:, 0] = 0
        """,
        """
        grid = np.arange(4)[:, None].repeat(3, 1) * 2
        """,
        """
        def inflate_weights(state, model):
            for name, kernel in state.items():
                state[name] = kernel.unsqueeze(2).repeat(1, 1, frames, 1, 1) / frames
        """,
    )
    INVALID = (
        Invalid("""
            def cost(points: torch.Tensor, others):
                return points[:, None, :].repeat(1, n, 1) - others  # !
                # + return points[:, None, :].expand(-1, n, -1) - others
        """),
        Invalid("""
            picked = torch.gather(x, 1, index.unsqueeze(-1).repeat(1, 1, x.shape[-1]))  # !
            # + picked = torch.gather(x, 1, index.unsqueeze(-1).expand(-1, -1, x.shape[-1]))
        """),
        Invalid("""
            def fuse(text, image, n):
                words = text.unsqueeze(1).repeat(1, n, 1)  # !
                return torch.cat([words, image], dim=-1)
        """),
    )
    BENCHMARK = Benchmark(
        setup="import torch\nx = torch.randn(64, 128)\ny = torch.randn(64, 100, 128)",
        before="result = x.unsqueeze(1).repeat(1, 100, 1) * y",
        after="result = x.unsqueeze(1).expand(-1, 100, -1) * y",
        sizes="64 x 1 x 128 to 64 x 100 x 128 float32, forward",
    )

    def check(self, node: ast.AST, file: SourceFile) -> Iterator[Problem]:
        if (
            not isinstance(node, ast.Call)
            or not isinstance(node.func, ast.Attribute)
            or node.func.attr != "repeat"
        ):
            return
        if node.keywords or len(node.args) < 2 or any(isinstance(a, ast.Starred) for a in node.args):
            return
        factors = [int_literal(arg) for arg in node.args]
        repeated = [i for i, factor in enumerate(factors) if factor != 1]
        if len(repeated) != 1:
            return
        added = _added_dimension(node.func.value, len(factors), file)
        if added is None or added[0] != repeated[0]:
            return
        uses = _uses(node, file)
        if not uses or not all(_only_read(use, file) for use in uses):
            return
        direct = uses == [node]
        sizes = ", ".join(file.source(a) if i == repeated[0] else "-1" for i, a in enumerate(node.args))
        start = file.bounds(node.func.value)[1]
        edit = Edit(start, file.bounds(node)[1], f".expand({sizes})")
        base = file.source(node.func.value)
        doubts = [] if added[1] else [f"`{base}` has {len(factors)} dimensions"]
        if not _is_index(node, file):
            doubts.append(
                "no `.view` needs the memory layout of the result, which may become that of the other operand"
            )
        fix = Fix(Safety.UNSAFE if doubts else Safety.SAFE, (edit,), "; ".join(doubts))
        few = (factors[repeated[0]] or _FEW_COPIES) < _FEW_COPIES
        where = "" if direct else f" on line {uses[0].lineno}"
        yield Problem(
            node,
            f"{quote(file, node)} writes {quote(file, node.args[repeated[0]])[1:-1]} copies of each value to memory, "
            f"only to be read{where}. `.expand({sizes})` gives the same values without a copy.",
            0.5 if few or not direct or runs_once(node, file) else 0.7,
            fix=None if not direct or b"\n" in file.data[slice(*file.bounds(node))] else fix,
            cause=file.index.statement_of(node),
            subject=node.func.value,
            facts={"few_copies": few, "through_name": not direct, "index": _is_index(uses[0], file)},
        )


def _uses(node: ast.Call, file: SourceFile) -> list[ast.expr]:
    """What is read of the copies: itself, a cast of it, or the reads of the one name that it is given."""
    whole: ast.expr = node
    while (cast := outer_call(whole, file)) is not None and is_cast(cast, file):
        whole = cast
    return reads(whole, file)


def _added_dimension(expr: ast.expr, dimensions: int, file: SourceFile) -> tuple[int, bool] | None:
    """(Position of the dimension of size 1 that `expr` adds, is the number of dimensions proven), or None."""
    unsqueeze = torch_op(expr, file, "unsqueeze")
    if unsqueeze is not None:
        position = int_literal(unsqueeze.argument(0, "dim"))
        if position is None:
            return None
        if position < 0:
            # The last dimensions are known from the end, unless `repeat` adds new ones at the front.
            return (dimensions + position, False) if dimensions + position >= 0 else None
        return (position, position == dimensions - 1)
    if isinstance(expr, ast.Subscript) and isinstance(expr.slice, ast.Tuple):
        entries = expr.slice.elts
        new = [i for i, e in enumerate(entries) if isinstance(e, ast.Constant) and e.value is None]
        plain = all(isinstance(e, ast.Slice) or i in new for i, e in enumerate(entries))
        if len(new) == 1 and plain and file.values.is_tensor(expr.value):
            # As many entries as factors: fewer dimensions cannot be indexed so, more cannot be repeated so.
            return new[0], len(entries) == dimensions
    return None


def _only_read(node: ast.expr, file: SourceFile) -> bool:
    parent = file.index.parent(node)
    if isinstance(parent, ast.BinOp):
        return isinstance(parent.op, _ELEMENTWISE)
    if isinstance(parent, ast.Compare):
        return True
    call = file.index.parent(parent) if isinstance(parent, (ast.List, ast.Tuple)) else parent
    op = torch_op(call, file, *_READERS)
    return op is not None and not (
        op.operand is node and op.name != "cat" and op.name != "where" and not op.is_method
    )


def _is_index(node: ast.expr, file: SourceFile) -> bool:
    """Is it the index of a `gather`, whose result has a layout of its own?"""
    op = torch_op(file.index.parent(node), file, "gather", "take_along_dim")
    return op is not None and op.operand is not node
