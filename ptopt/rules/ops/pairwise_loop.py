from __future__ import annotations

import ast
from collections.abc import Iterator

from ptopt.rules.base import Benchmark, Evidence, Invalid, Problem, Rule, SourceFile, Span
from ptopt.rules.code import is_call_of, method_call, quote
from ptopt.rules.ops._calls import int_literal, names_in, torch_op
from ptopt.source.index import own_nodes, walk

_DISTANCES = (
    "norm",
    "dist",
    "pairwise_distance",
    "cosine_similarity",
    "vector_norm",
    "mse_loss",
    "dot",
    "sum",
)


class PairwiseLoop(Rule):
    """Two nested loops compute a distance for every pair of rows.

    ## What it does
    Finds a loop in a loop whose body computes a distance or similarity (`torch.norm(x[i] - y[j])`, `torch.dist`,
    `F.cosine_similarity`, …) of one row of each, or stores a comparison of one element of each.

    ## Why it is slow
    n x m pairs take several kernels each, for a few numbers. `torch.cdist(x, y)`, or a matrix product for
    dot products and cosines, computes the whole matrix in one or two.

    ## Example
    ```python
    for i in range(len(x)):
        for j in range(len(y)):
            d[i, j] = torch.norm(x[i] - y[j])
    ```

    ## Use instead
    ```python
    d = torch.cdist(x, y)
    ```

    ## Fix safety
    None: what surrounds the loops decides how the matrix is used.

    ## Sources
    - [torch.cdist](https://docs.pytorch.org/docs/stable/generated/torch.cdist.html)
    """

    id = "PTO413"
    name = "pairwise-loop"
    family = "ops"
    triggers = (*(f"{name}(" for name in _DISTANCES), "] == ", "] != ", "] < ", "] > ")
    nodes = (ast.For,)
    when_wrong = "there are only a few rows, or the matrix of all pairs does not fit into memory"

    VALID = (
        """
        for r in range(len(y)):
            for c in range(r):
                if y[r] == y[c]:
                    pairs.append((r, c))
        """,
        """
        def edits(a: torch.Tensor, b: torch.Tensor, table):
            for i in range(1, len(a)):
                for j in range(1, len(b)):
                    table[i, j] = min(table[i - 1, j], table[i, j - 1]) + 1
        """,
        """
        d = torch.cdist(x, y)
        """,
        """
        for epoch in range(epochs):
            for x, y in loader:
                loss = torch.norm(model(x) - y)
        """,
        """
        for i in range(3):
            for j in range(3):
                d[i, j] = torch.norm(x[i] - y[j])
        """,
        """
        for i in range(k):
            for j in range(k):
                gram[i, j] = (w * phi[i](2 * x - 1) * phi[j](2 * x - 1)).sum()
        """,
        """
        for layer in layers:
            for p in layer.parameters():
                total += torch.norm(p)
        """,
    )
    INVALID = (
        Invalid("""
            for x, y in loader:
                x, y = x.cuda(), y.cuda()
                same = torch.zeros(len(y), len(y), device=y.device)
                for r in range(len(y)):  # !
                    for c in range(len(y)):
                        same[r, c] = float(y[r] == y[c])
                (net(x) * same).mean().backward()
                optimizer.step()
        """),
        Invalid("""
            for i in range(len(x)):  # !
                for j in range(len(y)):
                    d[i, j] = torch.norm(x[i] - y[j])
        """),
        Invalid("""
            for i in range(n):  # !
                for j in range(i + 1, n):
                    sim = F.cosine_similarity(emb[i], emb[j], dim=0)
                    pairs.append(sim)
        """),
        Invalid("""
            for i in range(n):  # !
                for j in range(n):
                    d[i, j] = torch.sum((x[i] - x[j]) ** 2)
        """),
        Invalid("""
            def nearest(a: torch.Tensor, b: torch.Tensor):
                rows = []
                for p in a:  # !
                    for q in b:
                        rows.append((p - q).norm())
                return rows
        """),
    )
    BENCHMARK = Benchmark(
        setup="import torch\nx = torch.randn(24, 16)\ny = torch.randn(24, 16)\nd = torch.empty(24, 24)",
        before=(
            "result = torch.empty(24, 24)\n"
            "for i in range(24):\n    for j in range(24):\n        result[i, j] = torch.norm(x[i] - y[j])"
        ),
        after="result = torch.cdist(x, y, compute_mode='donot_use_mm_for_euclid_dist')",
        scope="the loops",
        sizes="24 x 24 pairs of 16 float32",
    )

    def check(self, node: ast.AST, file: SourceFile) -> Iterator[Problem]:
        if not isinstance(node, ast.For) or not isinstance(node.target, ast.Name):
            return
        inner = next(
            (s for s in node.body if isinstance(s, ast.For) and isinstance(s.target, ast.Name)), None
        )
        if inner is None or not isinstance(inner.target, ast.Name) or inner.target.id == node.target.id:
            return
        for call in own_nodes(inner):
            distance = torch_op(call, file, *_DISTANCES) if isinstance(call, ast.Call) else None
            if distance is None or next(file.index.loops_of(call), None) is not inner:
                continue
            operands = [distance.operand, *distance.rest]
            if distance.name == "sum" and not _subtracts(distance.operand, node.target.id, inner.target.id):
                continue
            if _rows(operands, node, inner, file):
                break
        else:
            yield from _compared(node, inner, file)
            return
        dot = distance.name in ("cosine_similarity", "dot")
        instead = (
            "Normalise the rows once and multiply the matrices (`x @ y.T`)"
            if dot
            else "`torch.cdist` gives all of them"
        )
        yield Problem(
            node,
            f"{quote(file, distance.call, 50)} on line {distance.call.lineno} runs once for every pair of the loops at lines "
            f"{node.lineno} and {inner.lineno}, each time for a few numbers. {instead} at once.",
            0.75,
            (Evidence(distance.call.lineno, "computed for every pair"),),
            span=Span(node.lineno, node.lineno),
        )


def _compared(outer: ast.For, inner: ast.For, file: SourceFile) -> Iterator[Problem]:
    """`same[i, j] = float(y[i] == y[j])`: a table of comparisons, filled one entry at a time."""
    one, other = names_in(outer.target), names_in(inner.target)
    pair = {*one, *other}
    for compare in own_nodes(inner):
        if not isinstance(compare, ast.Compare) or len(compare.ops) != 1:
            continue
        left, right = compare.left, compare.comparators[0]
        store = file.index.statement_of(compare)
        if (
            not isinstance(store, ast.Assign)
            or not isinstance(store.targets[0], ast.Subscript)
            or names_in(store.targets[0].slice) != pair
            or not (isinstance(left, ast.Subscript) and isinstance(right, ast.Subscript))
            or {*names_in(left.slice)} | {*names_in(right.slice)} != pair
            or names_in(left.slice) == pair
            or not _rows([left, right], outer, inner, file)
        ):
            continue
        if not (_on_device(left.value, file) and _on_device(right.value, file)):
            continue
        sign = file.source(compare)[len(file.source(left)) : -len(file.source(right))].strip()
        first, second = (left, right) if one & names_in(left.slice) else (right, left)
        whole = f"`{file.source(first.value)}[:, None] {sign} {file.source(second.value)}[None, :]`"
        yield Problem(
            outer,
            f"{quote(file, compare, 40)} on line {compare.lineno} compares one pair of elements in each iteration of the loops at "
            f"lines {outer.lineno} and {inner.lineno}, with kernels of its own, and a wait where the tensor is on a GPU and Python "
            f"reads it. {whole} gives the whole table at once.",
            0.75,
            (Evidence(compare.lineno, "computed for every pair"),),
            span=Span(outer.lineno, outer.lineno),
            subject=left.value,
        )
        return


def _on_device(expr: ast.expr, file: SourceFile) -> bool:
    """A tensor, or what was sent to a device."""
    if file.values.of(expr).kind:
        return file.values.is_tensor(expr)
    binding = file.bindings.last_before(expr) if isinstance(expr, ast.Name) else None
    return binding is not None and method_call(binding.value or expr, "cuda", "to") is not None


def _subtracts(expr: ast.expr, outer: str, inner: str) -> bool:
    """A sum is a distance only when it sums differences of the two rows."""
    for n in walk(expr):
        if isinstance(n, ast.BinOp) and isinstance(n.op, ast.Sub):
            left, right = names_in(n.left), names_in(n.right)
            if (outer in left and inner in right) or (inner in left and outer in right):
                return True
    return False


def _rows(operands: list[ast.expr], outer: ast.For, inner: ast.For, file: SourceFile) -> bool:
    """Does the distance take a row of the outer and a row of the inner loop: `x[i]` and `y[j]`, or the rows themselves?"""
    found: set[str] = set()
    for loop in (outer, inner):
        target = loop.target.id if isinstance(loop.target, ast.Name) else ""
        ranged = is_call_of(loop.iter, "range")
        if ranged and isinstance(loop.iter, ast.Call):
            limits = [int_literal(a) for a in loop.iter.args]
            if all(limit is not None and limit < 8 for limit in limits):
                return False
        elif not file.values.is_tensor(loop.iter):
            return False
        for operand in operands:
            for n in walk(operand):
                if isinstance(n, ast.Subscript) and ranged and target in names_in(n.slice):
                    if method_call(n.value, "keys") is None and isinstance(
                        n.value, (ast.Name, ast.Attribute)
                    ):
                        found.add(target)
                elif isinstance(n, ast.Name) and not ranged and n.id == target:
                    found.add(target)
    return len(found) == 2
