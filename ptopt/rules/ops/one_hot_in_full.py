from __future__ import annotations

import ast
from collections.abc import Iterator

from ptopt.rules.base import Invalid, Problem, Rule, SourceFile
from ptopt.rules.code import beside, quote
from ptopt.rules.ops._calls import int_literal, torch_op
from ptopt.rules.shared.flow import outer_call
from ptopt.source.calls import called_name

_CASTS = frozenset({"float", "to", "type", "type_as", "half", "bfloat16", "double"})
_MOVES = frozenset(
    {"permute", "transpose", "movedim", "moveaxis", "contiguous", "view", "reshape", "squeeze", "unsqueeze"}
)
_REORDERS = frozenset({"permute", "transpose", "movedim", "moveaxis"})


class OneHotInFull(Rule):
    """A one-hot tensor is written out to pick entries, or in 64-bit integers to be cast.

    ## What it does
    Finds `(F.one_hot(i, n) * x).sum(-1)`, which picks one entry a row, and `F.one_hot(i, n).permute(...).float()`.

    ## Why it is slow
    `one_hot` writes `n` 64-bit integers for each index. Picking by a product reads them all again; `gather` reads one entry.
    A cast and a permutation write the whole tensor once or twice more; `scatter_` writes it in the wanted type and order.

    ## Fix safety
    No fix: the sizes of the result have to be written out.

    ## Sources
    - [torch.gather](https://docs.pytorch.org/docs/stable/generated/torch.gather.html)
    """

    id = "PTO482"
    name = "one-hot-in-full"
    family = "ops"
    most_stated = 0.5
    nodes = (ast.Call,)
    calls = frozenset({"one_hot"})
    when_wrong = "there are few classes"

    VALID = (
        """
        def encode(i, n):
            return F.one_hot(i, n)
        """,
        """
        def smooth(i, n, logits):
            target = F.one_hot(i, n).float()
            return (target * logits).sum(-1), target
        """,
        """
        def count(i, n):
            return F.one_hot(i, n).sum(0)
        """,
    )
    INVALID = (
        Invalid("""
            def pick(action, q_values, n):
                return (F.one_hot(action, n) * q_values).sum(-1)  # !
                # ~ return q_values.gather(-1, action.unsqueeze(-1)).squeeze(-1)
        """),
        Invalid("""
            def target(labels, n):
                return F.one_hot(labels, n).permute(0, 3, 1, 2).float()  # !
                # ~ zeros = torch.zeros(b, n, h, w, device=labels.device)
                # ~ return zeros.scatter_(1, labels.unsqueeze(1), 1)
        """),
        Invalid("""
            def loss(log_probs, labels, n):
                hot = F.one_hot(labels, n).float()  # !
                return -torch.sum(hot * log_probs, dim=1)
        """),
    )

    def check(self, node: ast.AST, file: SourceFile) -> Iterator[Problem]:
        op = torch_op(node, file, "one_hot")
        if op is None or not isinstance(node, ast.Call):
            return
        last, cast, moves = _chain(node, file)
        moved = any(name in _REORDERS for name, _ in moves)
        index = file.source(op.operand)
        product = _product(last, file)
        if product is not None:
            other = file.source(product[1])
            yield Problem(
                node,
                f"{quote(file, product[0])} picks one entry for each index by multiplying with a full one-hot tensor. "
                f"`{other}.gather(-1, {index}.unsqueeze(-1)).squeeze(-1)` reads only those entries.",
                0.5,
                beside(node, product[0], "the sum over the product"),
                subject=op.operand,
                facts={"picked": 1, "moved": moved},
            )
        elif cast and moved:
            yield Problem(
                node,
                f"`one_hot` writes 64-bit integers, and {quote(file, last)} copies them to another order and type. "
                f"{_scattered(_dim_of_classes(moves), index)} writes the result once.",
                0.4,
                subject=op.operand,
                facts={"picked": 0, "moved": moved},
            )


def _scattered(dim: int | None, index: str) -> str:
    """What to write in its place; without a dimension where that of the classes is not known."""
    if dim is None:
        return "`scatter_` of ones, into zeros that have this order and type,"
    return f"`torch.zeros(…, device={index}.device).scatter_({dim}, {index}.unsqueeze({dim}), 1)`"


def _dim_of_classes(moves: list[tuple[str, ast.Call]]) -> int | None:
    """The dimension to which the classes go, which `one_hot` puts last, where the others keep their order; None where that is not known."""
    shaped = [(name, call) for name, call in moves if name != "contiguous"]
    if len(shaped) != 1 or shaped[0][1].keywords:
        return None
    name, given = shaped[0][0], shaped[0][1].args
    if len(given) == 1 and isinstance(given[0], (ast.Tuple, ast.List)):
        given = given[0].elts
    dims = [dim for each in given if (dim := int_literal(each)) is not None]
    if not dims or len(dims) != len(given):
        return None
    if name == "permute":
        order = [dim % len(dims) for dim in dims]
        others = [dim for dim in order if dim != len(dims) - 1]
        return order.index(len(dims) - 1) if others == list(range(len(dims) - 1)) else None
    if name in ("movedim", "moveaxis"):
        return dims[1] if len(dims) == 2 and dims[0] == -1 else None
    return -2 if name == "transpose" and sorted(dims) == [-2, -1] else None


def _chain(call: ast.Call, file: SourceFile) -> tuple[ast.expr, bool, list[tuple[str, ast.Call]]]:
    """The end of the chain of casts and moves after the call, whether it casts, and the moves."""
    last: ast.expr = call
    cast = False
    moves: list[tuple[str, ast.Call]] = []
    while True:
        outer = outer_call(last, file)
        name = called_name(outer) if outer is not None else ""
        if outer is None or name not in _CASTS | _MOVES:
            return last, cast, moves
        cast = cast or name in _CASTS
        if name in _MOVES:
            moves.append((name, outer))
        last = outer


def _product(hot: ast.expr, file: SourceFile) -> tuple[ast.expr, ast.expr] | None:
    """The sum over the last dimension of the product with the one-hot tensor, and the other factor."""
    parent = file.index.parent(hot)
    if isinstance(parent, ast.Assign) and isinstance(parent.targets[0], ast.Name):
        loads = file.uses.loads(file.index.function_of(hot), parent.targets[0].id)
        if len(loads) != 1 or loads[0].lineno < parent.lineno:
            return None
        hot, parent = loads[0], file.index.parent(loads[0])
    if not isinstance(parent, ast.BinOp) or not isinstance(parent.op, ast.Mult):
        return None
    other = parent.right if parent.left is hot else parent.left
    op = torch_op(outer_call(parent, file) or file.index.parent(parent), file, "sum")
    if op is None or op.operand is not parent:
        return None
    dim = op.argument(0, "dim", "axis")
    return (op.call, other) if dim is not None and ast.unparse(dim) in ("-1", "1", "2") else None
