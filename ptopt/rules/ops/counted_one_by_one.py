from __future__ import annotations

import ast
from collections.abc import Iterator

from ptopt.rules.base import Evidence, Invalid, Problem, Rule, SourceFile, Span
from ptopt.rules.code import quote
from ptopt.rules.ops._calls import int_literal, is_range, names_in
from ptopt.rules.shared.flow import entries_of, runs_network
from ptopt.source.calls import called_name, last_name
from ptopt.source.file import remembered
from ptopt.source.index import own_nodes

_ZEROS = frozenset("zeros zeros_like ones full new_zeros empty ones_like".split())


class CountedOneByOne(Rule):
    """An array or a tensor is added to one element at a time.

    ## What it does
    Finds `counts[label] += 1`, `matrix[t, p] += 1` and `sums[index[i]] += x[i]` in a loop over labels, predictions or edges, where what
    is added to is a tensor or an array.

    ## Why it is slow
    Each addition to one element of a tensor takes some microseconds in Python, and on a GPU a kernel of its own. `bincount`,
    `index_add_` and `np.add.at` add all of them at once; `scatter_add_` where each row has indices of its own, and `index_put_` with
    `accumulate=True` where several indices are computed.

    ## Example
    ```python
    for t, p in zip(labels.view(-1), preds.view(-1)):
        matrix[t, p] += 1
    ```

    ## Use instead
    ```python
    flat = labels.view(-1) * n + preds.view(-1)
    matrix += torch.bincount(flat, minlength=n * n).view(n, n)
    ```

    ## Fix safety
    No fix is offered: shapes and types of the operands are not known.

    ## Sources
    - [torch.bincount](https://docs.pytorch.org/docs/stable/generated/torch.bincount.html)
    """

    id = "PTO460"
    name = "counted-one-by-one"
    family = "ops"
    most_stated = 0.45
    nodes = (ast.AugAssign,)
    requires = ("zeros", "ones", "full", "empty")
    when_wrong = "the loop runs a few times"

    VALID = (
        """
        for at, expert in enumerate(self.experts):
            rows, slots = torch.where(chosen == at)
            out[rows] += weights[rows, slots, None] * hidden[rows]
        """,
        """
        matrix += torch.bincount(labels * n + preds, minlength=n * n).view(n, n)
        """,
        """
        counts = {}
        for label in labels:
            counts[label] += 1
        """,
        """
        for i in range(3):
            sums[i] += 1
        """,
        """
        def gather(rows: torch.Tensor, positions):
            slots = torch.zeros(6, 900, 256)
            for camera, chosen in enumerate(positions):
                slots[camera, chosen] += rows[camera, : len(chosen)]
            return slots
        """,
        """
        def fill(batch):
            images = torch.zeros(len(batch), 3, 224, 224)
            for i, sample in enumerate(batch):
                images[2 * i] += torch.from_numpy(sample)
            return images
        """,
    )
    INVALID = (
        Invalid("""
            def confusion(labels, preds, n):
                matrix = torch.zeros(n, n)
                for t, p in zip(labels.view(-1), preds.view(-1)):
                    matrix[t.long(), p.long()] += 1  # !
                return matrix
        """),
        Invalid("""
            def frequencies(samples):
                counts = np.zeros(10)
                for _, label in samples:
                    counts[label] += 1  # !
                return torch.tensor(counts)
        """),
        Invalid("""
            class Accuracy:
                def __init__(self, n):
                    self.total = torch.zeros(n)

                def update(self, labels):
                    for i in range(labels.size(0)):
                        self.total[labels[i]] += 1  # !
        """),
    )

    def check(self, node: ast.AST, file: SourceFile) -> Iterator[Problem]:
        if not isinstance(node, ast.AugAssign) or not isinstance(node.op, (ast.Add, ast.Sub)):
            return
        target = node.target
        loop = next(file.index.loops_of(node), None)
        if not isinstance(target, ast.Subscript) or not isinstance(loop, ast.For):
            return
        base: ast.expr = target
        entries: list[ast.expr] = []
        while isinstance(base, ast.Subscript):
            entries[:0] = entries_of(base)
            base = base.value
        bound = _follows(loop)
        if any(isinstance(e, (ast.Slice, ast.Constant)) for e in entries) or not any(
            names_in(e) & bound for e in entries
        ):
            return
        if any(names_in(e) & _positions(loop) for e in entries):
            return  # many elements at a time
        if ast.dump(base) in ast.dump(node.value) or _runs_network_in(loop, file):
            return
        if not _is_array(base, file) or names_in(base) & bound or _short(loop):
            return
        if not _is_one_number(node.value, file):
            return  # whole rows, which the addition takes at once
        counter = is_range(loop.iter) and all(
            isinstance(e, ast.Name) and e.id in names_in(loop.target) for e in entries
        )
        if counter:
            return  # `x[i] += ...` over a range: a sum of two arrays, which other rules report
        ones = isinstance(node.value, ast.Constant)
        advice = _advice(node, base, entries, file)
        yield Problem(
            node,
            f"{quote(file, node, 50)} updates one element in each iteration of the loop at line {loop.lineno}, through several Python "
            f"objects, and on a GPU with kernels of its own. {advice}",
            0.45,
            (Evidence(loop.lineno, "the loop"),),
            cause=loop,
            span=Span(node.lineno, node.lineno),
            subject=base,
            facts={
                "ones": ones,
                "entries": len(entries),
                "nested": next(file.index.loops_of(loop), None) is not None,
                "tensor": file.values.of(base).kind == "tensor",
            },
        )


def _advice(node: ast.AugAssign, base: ast.expr, entries: list[ast.expr], file: SourceFile) -> str:
    """One call for all iterations, by which of the indices are computed and which only count."""
    name = quote(file, base, 30).strip("`")
    kind = file.values.of(base).kind
    several = len(entries) > 1
    if isinstance(node.value, ast.Constant):
        counted = "i * n + j" if several else "index"
        ways = [f"`torch.bincount({counted}, minlength=n)`"] if kind != "array" else []
        ways += [f"`np.add.at({name}, {'(i, j)' if several else 'index'}, 1)`"] if kind != "tensor" else []
        return f"Collect the indices and add all at once: {' or '.join(ways)}."
    values = "-values" if isinstance(node.op, ast.Sub) else "values"
    computed = [at for at, entry in enumerate(entries) if not _counts(entry, node, file)]
    if not several:
        way = f"`{name}.index_add_(0, index, {values})`"
    elif len(computed) == 1:  # the others stay where they are: an index for each place
        way = f"`{name}.scatter_add_({computed[0]}, index, {values})`"
    else:
        way = f"`{name}.index_put_((i, j), {values}, accumulate=True)`"
    ways = [way] if kind != "array" else []
    ways += [f"`np.add.at({name}, {'(i, j)' if several else 'index'}, {values})`"] if kind != "tensor" else []
    return f"Add all at once: {', or '.join(ways)}."


def _counts(entry: ast.expr, node: ast.AST, file: SourceFile) -> bool:
    """Is it the counter of a loop around: `b` of `for b in range(n)` or `for b, row in enumerate(rows)`?"""
    if not isinstance(entry, ast.Name):
        return False
    for loop in file.index.loops_of(node):
        if not isinstance(loop, ast.For) or entry.id not in names_in(loop.target):
            continue
        counts = isinstance(loop.iter, ast.Call) and called_name(loop.iter) == "enumerate"
        first = loop.target.elts[0] if isinstance(loop.target, ast.Tuple) else loop.target
        return (is_range(loop.iter) or counts) and isinstance(first, ast.Name) and first.id == entry.id
    return False


def _is_one_number(value: ast.expr, file: SourceFile) -> bool:
    """Is one number added: a constant, what Python holds as one, or the entry that the counters of the loops name?"""
    if isinstance(value, ast.UnaryOp):
        value = value.operand
    if isinstance(value, ast.Constant) or file.values.of(value).kind in ("scalar", "number"):
        return True
    if isinstance(value, ast.Subscript):
        entries = entries_of(value)
        return all(_counts(entry, value, file) for entry in entries)
    return isinstance(value, ast.Call) and called_name(value) in ("item", "float", "int")


@remembered
def _follows(loop: ast.For) -> frozenset[str]:
    """The names that the loop binds, and those that it computes from them."""
    bound = set(names_in(loop.target))
    for stmt in own_nodes(loop):
        if isinstance(stmt, ast.Assign) and not bound.isdisjoint(names_in(stmt.value)):
            bound.update(n for t in stmt.targets for n in names_in(t))
    return frozenset(bound)


@remembered
def _positions(loop: ast.For) -> frozenset[str]:
    """The names that hold all positions of a mask: `rows, slots = torch.where(chosen == at)`."""
    found = (
        stmt.targets
        for stmt in own_nodes(loop)
        if isinstance(stmt, ast.Assign)
        and isinstance(stmt.value, ast.Call)
        and last_name(stmt.value.func) in ("where", "nonzero")
    )
    return frozenset(name for targets in found for target in targets for name in names_in(target))


@remembered
def _runs_network_in(loop: ast.For, file: SourceFile) -> bool:
    return any(isinstance(n, ast.Call) and runs_network(n, file) for n in own_nodes(loop))


def _is_array(base: ast.expr, file: SourceFile) -> bool:
    if file.values.of(base).kind in ("tensor", "array"):
        return True
    value: ast.expr | None = None
    if isinstance(base, ast.Attribute):
        cls = file.index.class_of(base)
        value = file.bindings.attribute(cls, base.attr) if cls is not None else None
    elif isinstance(base, ast.Name):
        first = file.bindings.first_assigned(file.index.function_of(base), base.id)
        value = first.value if first is not None else None
    return isinstance(value, ast.Call) and called_name(value) in _ZEROS


def _short(loop: ast.For) -> bool:
    if isinstance(loop.iter, (ast.List, ast.Tuple)):
        return True
    if is_range(loop.iter) and isinstance(loop.iter, ast.Call):
        limit = int_literal(loop.iter.args[-1])
        return limit is not None and limit < 8
    return False
