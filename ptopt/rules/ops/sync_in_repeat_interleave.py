from __future__ import annotations

import ast
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Mapping
from typing import ClassVar

from ptopt.rules.base import Evidence, Fix, Invalid, Problem, Rule, Safety, SourceFile
from ptopt.rules.code import add_keyword, keyword_of, quote
from ptopt.rules.ops._calls import Op, torch_op
from ptopt.source.file import remembered
from ptopt.source.frequency import Often
from ptopt.source.index import FUNCTIONS, FunctionNode

_ELEMENTWISE = (ast.Add, ast.Sub, ast.Mult, ast.Div)


class SyncInRepeatInterleave(Rule):
    """The size of a `repeat_interleave` is read back from the GPU though it is known.

    ## What it does
    Finds `x.repeat_interleave(counts, dim=d)` with a tensor of counts and no `output_size`. Where the result is
    combined element by element with a tensor, its size along `d` is the one that `output_size` asks for.

    ## Why it is slow
    Without `output_size` the counts are summed on the device and the sum is copied to the host, which waits for all
    work queued before. With it, nothing waits.

    ## Fix safety
    Unsafe: the two tensors must have the same size along that dimension, and not merely broadcast.

    ## Sources
    - [torch.repeat_interleave](https://docs.pytorch.org/docs/stable/generated/torch.repeat_interleave.html)
    """

    id = "PTO415"
    name = "sync-in-repeat-interleave"
    family = "ops"
    triggers = ("repeat_interleave(",)
    since: ClassVar[Mapping[str, str]] = {"torch": "1.10"}
    nodes = (ast.Call,)
    calls = frozenset({"repeat_interleave"})
    when_wrong = "the tensors live on the CPU"

    VALID = (
        """
        def widen(k: torch.Tensor, groups: int, q: torch.Tensor):
            k = k.repeat_interleave(groups, dim=1)
            return q * k
        """,
        """
        def spread(x: torch.Tensor, counts: torch.Tensor, src: torch.Tensor):
            x = x.repeat_interleave(counts, dim=0, output_size=src.size(0))
            return src - x
        """,
        """
        def positions(counts: torch.Tensor):
            return torch.repeat_interleave(torch.arange(len(counts), device=counts.device), counts)
        """,
    )
    INVALID = (
        Invalid("""
            def softmax(src: torch.Tensor, ptr: torch.Tensor):
                count = ptr[1:] - ptr[:-1]
                peak = segment(src, ptr).repeat_interleave(count, dim=0)  # !
                # + peak = segment(src, ptr).repeat_interleave(count, dim=0, output_size=src.size(0))
                return (src - peak).exp()
        """),
        Invalid("""
            def centre(x: torch.Tensor, means: torch.Tensor, sizes: torch.Tensor):
                return x - torch.repeat_interleave(means, sizes, dim=0)  # !
                # + return x - torch.repeat_interleave(means, sizes, dim=0, output_size=x.size(0))
        """),
        Invalid("""
            def scale(x: torch.Tensor, w: torch.Tensor, batch: torch.Tensor):
                sizes = torch.bincount(batch)
                wide = torch.repeat_interleave(w, sizes, dim=0)  # !
                # + wide = torch.repeat_interleave(w, sizes, dim=0, output_size=x.size(0))
                return wide * x
        """),
    )

    def may_be_sure(self, file: SourceFile) -> bool:
        """Only where something beside it tells the size."""
        ops = (torch_op(node, file, "repeat_interleave") for node in self.candidates(file))
        return any(
            op is not None and op.argument(1, "dim") is not None and _partner(op, file) is not None
            for op in ops
        )

    def check(self, node: ast.AST, file: SourceFile) -> Iterator[Problem]:
        op = torch_op(node, file, "repeat_interleave")
        if op is None or keyword_of(op.call, "output_size") is not None:
            return
        counts, dim = op.argument(0, "repeats"), op.argument(1, "dim")
        if counts is None or dim is None:
            return
        if not file.values.is_on_device(counts):
            return
        partner = _partner(op, file)
        if partner is None:
            if file.frequencies.of(node).often >= Often.EVALUATION:
                yield Problem(
                    node,
                    f"`repeat_interleave` sums {quote(file, counts, 30)} on the device, and Python waits for the result to size "
                    "the output. Pass `output_size=` where the total is known: the size of a tensor that it is combined with, or "
                    "a sum taken on the host when the batch was made.",
                    0.4,
                    subject=counts,
                )
            return
        size = f"{file.source(partner)}.size({file.source(dim)})"
        yield Problem(
            node,
            f"`repeat_interleave` sums {quote(file, counts, 30)} on the device and waits for the result to size its output. "
            f"It is combined with `{file.source(partner)}` on line {partner.lineno}: pass `output_size={size}`.",
            0.7,
            (Evidence(partner.lineno, "gives the size"),),
            Fix(
                Safety.UNSAFE,
                (add_keyword(file, op.call, f"output_size={size}"),),
                f"the result has the size of `{file.source(partner)}` along that dimension",
            ),
        )


def _partner(op: Op, file: SourceFile) -> ast.expr | None:
    """The name that the result is combined with element by element, bound before the call."""
    parent = file.index.parent(op.call)
    other = _other_side(op.call, file)
    if other is None and isinstance(parent, ast.Assign) and isinstance(parent.targets[0], ast.Name):
        name = parent.targets[0].id
        function = file.index.function_of(op.call)
        uses = _combined(name, function, file) if function is not None else []
        first = bisect_right(uses, op.call.lineno, key=lambda use: use[0])
        other = uses[first][1] if first < len(uses) else None
    if not isinstance(other, ast.Name) or not file.values.is_tensor(other):
        return None
    function = file.index.function_of(op.call)
    bindings = file.bindings.of(function, other.id)
    first = bisect_left(bindings, op.call.lineno, key=lambda b: b.line)
    if not bindings or (first < len(bindings) and bindings[first].line <= other.lineno):
        return None
    return other


@remembered
def _combined(name: str, function: FunctionNode, file: SourceFile) -> list[tuple[int, ast.expr]]:
    """(Line, the other operand) of each use of the name in element-wise arithmetic of the function itself, in source order."""
    return [
        (use.lineno, other)
        for use in file.uses.loads(function, name)
        if (other := _other_side(use, file)) is not None
        and file.index.enclosing(use, (*FUNCTIONS, ast.Lambda)) is function
    ]


def _other_side(expr: ast.expr, file: SourceFile) -> ast.expr | None:
    parent = file.index.parent(expr)
    if not isinstance(parent, ast.BinOp) or not isinstance(parent.op, _ELEMENTWISE):
        return None
    return parent.right if parent.left is expr else parent.left
