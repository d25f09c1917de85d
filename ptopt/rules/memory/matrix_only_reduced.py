from __future__ import annotations

import ast
from collections.abc import Iterator

from ptopt.rules.base import Invalid, Problem, Rule, SourceFile
from ptopt.rules.code import beside, quote
from ptopt.rules.ops._calls import Op, int_literal, torch_op
from ptopt.rules.shared.flow import outer_call, reads
from ptopt.source.frequency import Often
from ptopt.source.index import COMPREHENSIONS

_REDUCTIONS = (
    "max",
    "min",
    "amax",
    "amin",
    "argmax",
    "argmin",
    "topk",
    "mean",
    "sum",
    "kthvalue",
    "sort",
    "argsort",
    "logsumexp",
)
_SELECTING = frozenset("topk argmax argmin max min amax sort argsort kthvalue".split())
_DIM_AT = {"topk": 1, "kthvalue": 1}  # position of `dim` among the arguments, where it is not the first
_PLAIN = (
    "sqrt",
    "square",
    "pow",
    "clamp",
    "clamp_min",
    "clamp_",
    "float",
    "div",
    "div_",
    "neg",
    "abs",
    "exp",
    "mul",
    "nan_to_num",
    "sub",
    "add",
    "masked_fill",
)
_MOST_STEPS = 5


class MatrixOnlyReduced(Rule):
    """All pairwise scores or distances are held at once, only to be reduced.

    ## What it does
    Finds `torch.cdist(x, y)`, `x @ y.T` and their like whose matrix goes only into `min`, `max`, `topk`, `mean` or `argmin` over a
    dimension, also through names and plain elementwise steps.

    ## Why it is slow
    The matrix has one entry per pair: memory grows with the product of both counts, and is written and read once more by each step
    between. Rows are independent: blocks of rows, each reduced at once, need a fraction of it.

    ## When this is wrong
    When one side is short, such as a few classes or anchors.

    ## Fix safety
    There is no fix: which size is right depends on both counts.

    ## Sources
    - [torch.cdist](https://docs.pytorch.org/docs/stable/generated/torch.cdist.html)
    """

    id = "PTO886"
    name = "matrix-only-reduced"
    family = "memory"
    most_stated = 0.35
    nodes = (ast.Call, ast.BinOp)
    triggers = ("cdist", "matmul", "topk", " @ ", "mm")
    when_wrong = "one side is short"

    VALID = (
        """
        attention = torch.softmax(q @ k.transpose(-2, -1), dim=-1) @ v
        """,
        """
        logits = features @ classifier.t()
        return F.cross_entropy(logits, labels)
        """.replace("return ", "loss = "),
        """
        for block in queries.split(1024):
            nearest.append(torch.cdist(block, points).argmin(dim=1))
        """,
        """
        def chamfer(a: torch.Tensor, b: torch.Tensor):
            dist = torch.cdist(a, b)
            return dist.min(dim=1)[0].mean() + dist.min(dim=0)[0].mean()
        """,
        """
        def batched(a: torch.Tensor, b: torch.Tensor):
            return torch.cdist(a, b).min(dim=2)[0]
        """,
        """
        def contrast(x: torch.Tensor, mask: torch.Tensor):
            scores = x @ x.T
            top, _ = torch.max(scores, dim=1, keepdim=True)
            logits = scores - top.detach()
            log_prob = logits - torch.log(torch.exp(logits).sum(1, keepdim=True))
            return (mask * log_prob).sum(1)
        """,
    )
    INVALID = (
        Invalid("""
            def nearest(queries: torch.Tensor, points):
                return torch.cdist(queries, points).argmin(dim=1)  # !
                # ~ return torch.cat([torch.cdist(block, points).argmin(dim=1) for block in queries.split(4096)])
        """),
        Invalid("""
            def spread(a: torch.Tensor, b: torch.Tensor):
                dist = torch.cdist(a, b)  # !
                return dist.min(dim=1)[0].mean() + dist.max(dim=1)[0].mean()
        """),
        Invalid("""
            @torch.no_grad()
            def retrieve(query: torch.Tensor, bank: torch.Tensor, k):
                scores = query @ bank.t()  # !
                values, index = scores.topk(k, dim=-1)
                return index
        """),
    )

    def check(self, node: ast.AST, file: SourceFile) -> Iterator[Problem]:
        if not isinstance(node, ast.expr):
            return
        pair = _pair(node, file)
        if pair is None or file.frequencies.of(node).often < Often.EVALUATION or _blocked(node, file):
            return
        found = _reductions(node, file, _MOST_STEPS)
        if not found:
            return
        first = found[0]
        distance = isinstance(node, ast.Call) and "cdist" in file.source(node.func)
        no_grad = file.context.grad_off(node)
        if not distance and any(op.name not in _SELECTING for op in found):
            return
        if len({_dimension(op) for op in found}) > 1 or _dimension(first) not in (1, -1):
            return  # blocks of rows do not give what goes along the rows, and another dimension means a batch in front
        yield Problem(
            node,
            f"{quote(file, node, 45)} holds a number for each pair of {quote(file, pair[0], 25)} and {quote(file, pair[1], 25)} at once, although only "
            f"{quote(file, first.call, 35)} is used. Reduce blocks of rows one after the other: "
            f"`for block in {file.source(pair[0])}.split(4096)`.",
            0.35,
            beside(node, first.call, "reduced"),
            cause=file.index.statement_of(node),
            subject=node,
            facts={"distance": distance, "no_grad": no_grad, "reductions": len(found)},
        )


def _dimension(op: Op) -> int | None:
    """The dimension that is reduced, as far as it is written out; None where it is not."""
    dim = op.argument(_DIM_AT.get(op.name, 0), "dim", "axis")
    return (
        int_literal(dim)
        if dim is not None
        else -1
        if op.name in ("topk", "kthvalue", "sort", "argsort")
        else None
    )


def _pair(node: ast.expr, file: SourceFile) -> tuple[ast.expr, ast.expr] | None:
    """The two operands of a product of all pairs."""
    if isinstance(node, ast.BinOp):
        both = (node.left, node.right) if isinstance(node.op, ast.MatMult) else None
    else:
        op = torch_op(node, file, "cdist", "matmul", "mm")
        if op is None or not op.rest:
            return None
        if op.name == "cdist":
            return op.operand, op.rest[0]
        both = (op.operand, op.rest[0])
    return (
        both if both is not None and _transposed(both[1], file) and "attn" not in file.source(node) else None
    )


def _transposed(expr: ast.expr, file: SourceFile) -> bool:
    if isinstance(expr, ast.Attribute):
        return expr.attr in ("T", "mT") and not file.source(expr).endswith("weight.T")
    return torch_op(expr, file, "t", "transpose", "permute") is not None


def _blocked(node: ast.AST, file: SourceFile) -> bool:
    """Does a loop over blocks compute it already?"""
    if any(isinstance(a, COMPREHENSIONS) for a, _ in file.index.ancestors(node)):
        return True
    loop = next(file.index.loops_of(node), None)
    return (
        loop is not None
        and isinstance(loop, ast.For)
        and any(w in file.source(loop.iter) for w in ("split", "chunk", "range("))
    )


def _reductions(expr: ast.expr, file: SourceFile, steps: int) -> list[Op]:
    """The reductions that are all that becomes of the matrix; empty when it goes elsewhere, too."""
    found: list[Op] = []
    for use in reads(expr, file):
        call: ast.AST | None = outer_call(use, file) or file.index.parent(use)
        op = torch_op(call, file, *_REDUCTIONS)
        if op is not None and op.operand is use:
            if not op.rest and not op.call.keywords:
                return []
            found.append(op)
            continue
        plain = torch_op(call, file, *_PLAIN)
        further: ast.expr | None = None
        if plain is not None and plain.operand is use:
            further = plain.call
        elif isinstance(call, ast.BinOp) and isinstance(call.op, (ast.Mult, ast.Div, ast.Sub, ast.Add)):
            further = call
        elif isinstance(call, ast.UnaryOp):
            further = call
        inner = _reductions(further, file, steps - 1) if further is not None and steps else []
        if not inner:
            return []
        found += inner
    return found
