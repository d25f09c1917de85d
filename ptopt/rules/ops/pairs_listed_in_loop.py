from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from ptopt.rules.base import Evidence, Invalid, Problem, Rule, SourceFile, Span, quote
from ptopt.rules.ops._calls import FEW, int_literal, is_range, names_in
from ptopt.rules.ops.pairwise_loop import PairwiseLoop
from ptopt.source.calls import called_name
from ptopt.source.frequency import Often
from ptopt.source.index import own_nodes

_PAIRED = re.compile(
    r"iou|dist|simil|overlap|kernel|score|cost|giou|affinity|corr|hamming|norm|dot|mmd|cosine",
    re.I,
)
_BY_DISTANCE = PairwiseLoop()


class PairsListedInLoop(Rule):
    """Two nested loops in Python go through all pairs.

    ## What it does
    Finds nested loops (or a comprehension with two `for`) that append the pair `[i, j]` to a list, or that call a function of two elements
    (an IoU, a distance, a score) for each pair.

    ## Why it is slow
    For n elements Python makes n² iterations, each with objects, and calls, of its own. A thousand elements are a second.

    ## When this is wrong
    When there are a few elements.

    ## Example
    ```python
    edges = [[i, j] for i in range(n) for j in range(n) if i != j]
    ```

    ## Use instead
    ```python
    edges = (~torch.eye(n, dtype=torch.bool)).nonzero()
    ```

    ## Fix safety
    No fix is offered: the order of the pairs may matter.

    ## Sources
    - [torch.combinations](https://docs.pytorch.org/docs/stable/generated/torch.combinations.html)
    - [torchvision.ops.box_iou](https://docs.pytorch.org/vision/stable/generated/torchvision.ops.box_iou.html)
    """

    id = "PTO467"
    name = "pairs-listed-in-loop"
    family = "ops"
    nodes = (ast.For, ast.ListComp)
    when_wrong = "there are a few elements"

    VALID = (
        """
        edges = torch.combinations(torch.arange(n))
        """,
        """
        for i in range(3):
            for j in range(3):
                edges.append([i, j])
        """,
        """
        for epoch in range(epochs):
            for i, batch in enumerate(loader):
                losses.append(step(batch))
        """,
    )
    INVALID = (
        Invalid(
            """
            def complete(n):
                edges = []
                for i in range(n):  # !
                    for j in range(n):
                        if i != j:
                            edges.append([i, j])
                return torch.tensor(edges)
            """
        ),
        Invalid(
            """
            def pairs(n):
                return torch.tensor([[i, j] for i in range(n) for j in range(i + 1, n)])  # !
            """
        ),
        Invalid(
            """
            def overlaps(boxes, targets):
                found = torch.zeros(len(boxes), len(targets))
                for i in range(len(boxes)):  # !
                    for j in range(len(targets)):
                        found[i, j] = box_iou(boxes[i], targets[j])
                return found
            """
        ),
    )

    def check(self, node: ast.AST, file: SourceFile) -> Iterator[Problem]:
        if isinstance(node, ast.For):
            inner = next((s for s in node.body if isinstance(s, ast.For)), None)
            if inner is None or isinstance(file.index.parent(node), ast.For):
                return
            loops = [(node.target, node.iter), (inner.target, inner.iter)]
            body = list(own_nodes(inner))
            work = next((w for n in body if (w := _work(n, loops, file)) is not None), None)
        elif isinstance(node, ast.ListComp) and len(node.generators) == 2:
            loops = [(g.target, g.iter) for g in node.generators]
            work = _work(node.elt, loops, file) or (node.elt if _is_pair(node.elt, loops) else None)
        else:
            return
        if work is None or not all(_counts(iterable) for _, iterable in loops):
            return
        if any(FEW.search(file.source(iterable)) for _, iterable in loops) or any(
            True for _ in _BY_DISTANCE.check(node, file)
        ):
            return
        if file.frequencies.of(node).often is Often.RARELY:
            return
        call = isinstance(work, ast.Call) and called_name(work) != "append"
        advice = (
            "Call it once on all pairs, with broadcasting (`a[:, None]`, `b[None]`; `torchvision.ops.box_iou`, `torch.cdist`)."
            if call
            else "`torch.combinations`, `torch.cartesian_prod` and `mask.nonzero()` make all pairs at once."
        )
        yield Problem(
            node,
            f"{quote(file, work, 50)} runs in Python for every pair of the two loops (line {work.lineno}). {advice}",
            0.4,
            (Evidence(work.lineno, "runs for every pair"),) if work.lineno != node.lineno else (),
            cause=node,
            span=Span(node.lineno, max(node.lineno, node.body[0].lineno - 1))
            if isinstance(node, ast.For)
            else None,
            at=work,
            facts={
                "call": call,
                "comprehension": isinstance(node, ast.ListComp),
                "once": file.frequencies.of(node).often is Often.ONCE,
            },
        )


_Loops = list[tuple[ast.expr, ast.expr]]


def _counts(iterable: ast.expr) -> bool:
    """A range of unknown length, or a collection."""
    if is_range(iterable) and isinstance(iterable, ast.Call):
        limit = int_literal(iterable.args[min(1, len(iterable.args) - 1)])
        return limit is None or limit >= 16
    if isinstance(iterable, ast.Call):
        return called_name(iterable) in ("enumerate",)
    return isinstance(iterable, (ast.Name, ast.Attribute))


def _is_pair(expr: ast.expr, loops: _Loops) -> bool:
    """`[i, j]`, with the indices of both loops."""
    if not isinstance(expr, (ast.List, ast.Tuple)) or not 2 <= len(expr.elts) <= 3:
        return False
    indices = [names_in(t) for t, i in loops if is_range(i)]
    return (
        len(indices) == 2
        and all(isinstance(e, (ast.Name, ast.BinOp)) for e in expr.elts)
        and all(names_in(expr) & i for i in indices)
    )


def _work(node: ast.AST, loops: _Loops, file: SourceFile) -> ast.expr | None:
    """What runs for a pair: an append of it, or a function of one element of each loop."""
    if not isinstance(node, ast.Call) or not node.args:
        return None
    name = called_name(node)
    if name == "append":
        return node if _is_pair(node.args[0], loops) else None
    if not _PAIRED.search(name) or len(node.args) < 2 or file.imports.qualified(node.func).startswith("re."):
        return None
    first, second = names_in(node.args[0]), names_in(node.args[1])
    a, b = names_in(loops[0][0]), names_in(loops[1][0])
    return node if first & a and second & b or first & b and second & a else None
