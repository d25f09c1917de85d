from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from ptopt.rules.base import Evidence, Invalid, Problem, Rule, SourceFile, Span
from ptopt.rules.code import quote
from ptopt.rules.ops._calls import int_literal, names_in
from ptopt.rules.ops._slices import has_shape
from ptopt.rules.ops.row_loop import RowLoop
from ptopt.rules.shared.flow import entries_of
from ptopt.source.calls import last_name
from ptopt.source.index import own_nodes

_NARROWER = (RowLoop(),)
_TENSORS = re.compile(r"mask$|logits?$|probs?$", re.I)  # what hardly anybody calls a list


class ElementTestLoop(Rule):
    """Python looks at the elements of a tensor or an array one at a time.

    ## What it does
    Finds loops over the indices of a tensor or a NumPy array whose body tests an element in an `if`, a `while` or a membership
    test, or writes a single element.

    ## Why it is slow
    Every access makes an object for one number, and every test of a tensor on a GPU waits for it. A comparison of the whole
    tensor is one kernel, or one pass in C.

    ## Example
    ```python
    for i in range(mask.size(0)):
        for t in reversed(range(mask.size(1))):
            if mask[i][t] > 0.5:
                last.append(values[i][t])
                break
    ```

    ## Use instead
    ```python
    steps = torch.arange(mask.size(1), device=mask.device)
    at = torch.where(mask > 0.5, steps, 0).argmax(dim=1, keepdim=True)
    last = values.gather(1, at)
    ```

    ## Fix safety
    None: the vectorised form differs from case to case.

    ## Sources
    - [torch.where](https://docs.pytorch.org/docs/stable/generated/torch.where.html)
    - [numpy.nonzero](https://numpy.org/doc/stable/reference/generated/numpy.nonzero.html)
    """

    id = "PTO441"
    name = "element-test-loop"
    family = "ops"
    most_stated = 0.45
    libraries = (*Rule.libraries, "numpy")
    triggers = ("for ", "while ")
    nodes = (ast.For, ast.While)
    when_wrong = "there are few elements, or each step depends on what the one before has found"

    VALID = (
        """
        def pick(x: torch.Tensor, names):
            for i in range(len(names)):
                if names[i] == "a":
                    keep(x)
        """,
        """
        def corners(x: torch.Tensor):
            for i in range(2):
                if x[i] > 0:
                    keep(i)
        """,
        """
        keep = (x > 0).nonzero()
        """,
    )
    INVALID = (
        Invalid("""
            def ends(values: torch.Tensor, mask: torch.Tensor):
                last = []
                for i in range(mask.size(0)):  # !
                    for t in reversed(range(mask.size(1))):
                        if mask[i][t] > 0.5:
                            last.append(values[i][t])
                            break
                return torch.stack(last)
        """),
        Invalid("""
            labels = np.fromfile(path, dtype=np.int64)
            for i in range(labels.shape[0]):  # !
                if labels[i] in valid:
                    labels[i] = valid.index(labels[i])
        """),
        Invalid("""
            logits = head(x).softmax(dim=-1)
            for i in range(len(logits)):  # !
                for j in range(logits.shape[1]):
                    if logits[i, j] < 0:
                        logits[i, j] = 0
        """),
    )

    def check(self, node: ast.AST, file: SourceFile) -> Iterator[Problem]:
        if not isinstance(node, (ast.For, ast.While)) or not _indices(node):
            return
        outer = next(file.index.loops_of(node), None)
        if isinstance(outer, (ast.For, ast.While)) and _tests(outer, file):
            return  # reported there
        tests = _tests(node, file)
        if not tests or any(True for rule in _NARROWER for _ in rule.check(node, file)):
            return
        first, holder = tests[0]
        kind = file.values.of(holder).kind
        trips = int_literal(_limit(node)) or 0 if isinstance(node, ast.For) else 0
        if 0 < trips < 5:
            return
        waits = {
            "tensor": ", and waits for the device if it lies on a GPU",
            "": ", and waits for a GPU if it is a tensor there",
        }
        once = "np.where" if kind == "array" else "torch.where"
        yield Problem(
            node,
            f"Python visits the elements of {quote(file, holder, 40)} one by one: each {quote(file, first, 40)} makes an object for "
            f"one number{waits.get(kind, '')}. Compare all of them at once (`{once}`, a mask as the index, `argmax` of the mask for the first hit), "
            f"or read them once with `.tolist()` before the loop.",
            0.45 if kind == "tensor" else 0.4,
            (Evidence(first.lineno, "the test of one element"),),
            cause=node,
            span=Span(node.lineno, max(node.lineno, node.body[0].lineno - 1)),
            subject=holder,
            at=first,
            facts={
                "tests": len(tests),
                "tensor": kind == "tensor",
                "array": kind == "array",
                "trip_count": trips,
                "nested": any(isinstance(n, ast.For) for n in own_nodes(node)),
                "statements": sum(isinstance(n, ast.stmt) for n in own_nodes(node)),
                "leaves_early": any(isinstance(n, (ast.Break, ast.Return)) for n in own_nodes(node)),
            },
        )


def _limit(loop: ast.For) -> ast.expr | None:
    """Where `range` stops, also of `reversed(range(n))`."""
    iterable = loop.iter
    while isinstance(iterable, ast.Call) and isinstance(iterable.func, ast.Name) and iterable.args:
        if iterable.func.id == "range":
            return (
                iterable.args[min(1, len(iterable.args) - 1)] if isinstance(loop.target, ast.Name) else None
            )
        iterable = iterable.args[0]
    return None


def _indices(loop: ast.For | ast.While) -> frozenset[str]:
    """The names that count: the target over a range, or what a `while` loop adds to."""
    if isinstance(loop, ast.For):
        return names_in(loop.target) if _limit(loop) is not None else frozenset()
    return frozenset(
        n.target.id
        for n in own_nodes(loop)
        if isinstance(n, ast.AugAssign)
        and isinstance(n.target, ast.Name)
        and isinstance(n.value, ast.Constant)
    )


def _tests(loop: ast.For | ast.While, file: SourceFile) -> list[tuple[ast.expr, ast.expr]]:
    """(Element, the tensor or array it is of) of each condition in the loop that looks at the element at its index."""
    known = file.once(_found_tests)
    if loop not in known:
        known[loop] = _tests_in(loop, file)
    return known[loop]


def _found_tests(file: SourceFile) -> dict[ast.For | ast.While, list[tuple[ast.expr, ast.expr]]]:
    return {}


def _tests_in(loop: ast.For | ast.While, file: SourceFile) -> list[tuple[ast.expr, ast.expr]]:
    indices = _indices(loop)
    found: list[tuple[ast.expr, ast.expr]] = []
    for node in [loop, *own_nodes(loop)] if indices else ():
        if not isinstance(node, (ast.If, ast.While, ast.IfExp)):
            continue
        for part in _compared(node.test):
            element, used = part, False
            while isinstance(element, ast.Subscript):
                entries = entries_of(element)
                if any(isinstance(e, (ast.Slice, ast.List)) for e in entries):
                    break
                used = used or bool(names_in(element.slice) & indices)
                element = element.value
            kind = "" if isinstance(element, ast.Subscript) or not used else file.values.of(element).kind
            likely = has_shape(element, file) or bool(_TENSORS.search(last_name(element)))
            if kind in ("tensor", "array") or (used and not kind and likely):
                found.append((part, element))
    return found


def _compared(condition: ast.expr) -> list[ast.expr]:
    """The operands of the comparisons in a condition."""
    if isinstance(condition, ast.BoolOp):
        return [part for value in condition.values for part in _compared(value)]
    if isinstance(condition, ast.UnaryOp):
        return _compared(condition.operand)
    if isinstance(condition, ast.Compare):
        return [condition.left, *condition.comparators]
    return [condition]
