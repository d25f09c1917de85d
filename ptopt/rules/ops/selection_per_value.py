from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from typing import ClassVar

from ptopt.rules.base import Invalid, Problem, Rule, SourceFile, Span
from ptopt.rules.code import beside, quote
from ptopt.rules.ops._calls import int_literal, names_in
from ptopt.rules.ops._pure import changes, reads
from ptopt.source.calls import called_name
from ptopt.source.index import COMPREHENSIONS, own_nodes

_LABELS = re.compile(
    r"label|target|class|cls|categor|id(s|x|xs)?$|ind(ex|ices)|group|segment|mask|seg|gt|pred|assign|cluster|batch|species|type|"
    r"rank|token|speaker|domain|task|bucket|bins?$|^y|code|expert|node|edge|row|col|frame|region|instance|image|pixel|map",
    re.I,
)
_FEW = 4
_LISTS = frozenset("where nonzero flatnonzero argwhere masked_select logical_and logical_or".split())


class SelectionPerValue(Rule):
    """All labels are compared with one value after the other.

    ## What it does
    Finds loops and comprehensions over classes, ids or clusters whose body compares a whole array, tensor or list with the
    current value (`labels == c`, `np.where(ids == i)`, `[j for j, l in enumerate(labels) if l == c]`) to select, count or
    recode the elements that have it.

    ## Why it is slow
    Each value costs one pass over all elements, and on a GPU several kernels and often a wait for the size of the selection.
    The time grows with the number of values times the number of elements, where one pass would do.

    ## Fix safety
    No fix is offered: what takes the place of the loop depends on what it computes.

    ## Sources
    - [torch.bincount](https://docs.pytorch.org/docs/stable/generated/torch.bincount.html)
    - [torch.Tensor.index_add_](https://docs.pytorch.org/docs/stable/generated/torch.Tensor.index_add_.html)
    """

    id = "PTO455"
    name = "selection-per-value"
    family = "ops"
    most_stated = 0.4
    partly: ClassVar[frozenset[str]] = frozenset({"scatter_reduce"})
    nodes = (ast.For, ast.ListComp, ast.DictComp, ast.GeneratorExp)
    requires = ("==", "eq(")
    when_wrong = "there are two or three values, or each is treated differently"

    VALID = (
        """
        counts = torch.bincount(labels.flatten(), minlength=num_classes)
        """,
        """
        for epoch in range(epochs):
            if epoch == best_epoch:
                save(model)
        """,
        """
        for i, sample in enumerate(samples):
            if sample.label == 3:
                keep.append(i)
        """,
        """
        def lovasz(errors_of, labels, classes):
            losses = []
            for c in classes:
                foreground = (labels == c).float()
                errors, order = torch.sort(errors_of(foreground), 0, descending=True)
                losses.append(torch.dot(errors, gradient(foreground[order])))
            return sum(losses)
        """,
        """
        def encoded(labels):
            return [rle_encode(np.asfortranarray(labels == c)) for c in np.unique(labels)]
        """,
    )
    INVALID = (
        Invalid(
            """
            def frequencies(labels, num_classes):
                counts = torch.zeros(num_classes)
                for c in range(num_classes):  # !
                    counts[c] = (labels == c).sum()
                return counts
            """,
            instead="""
            def frequencies(labels, num_classes):
                return torch.bincount(labels.flatten(), minlength=num_classes)
            """,
        ),
        Invalid("""
            def indices(labels):
                return {c: [i for i, l in enumerate(labels) if l == c] for c in set(labels)}  # !
        """),
        Invalid("""
            def prototypes(features, targets):
                means = []
                for value in torch.unique(targets):  # !
                    means.append(features[targets == value].mean(0))
                return torch.stack(means)
        """),
    )

    def check(self, node: ast.AST, file: SourceFile) -> Iterator[Problem]:
        if isinstance(node, ast.For):
            target, iterable = node.target, node.iter
            inner = [n for stmt in node.body for n in [stmt, *own_nodes(stmt)]]
        elif isinstance(node, COMPREHENSIONS):
            target, iterable = node.generators[0].target, node.generators[0].iter
            inner = list(own_nodes(node))
        else:
            return
        names = _values(target, iterable)
        if not names or _is_few(iterable):
            return
        tests = [n for n in inner if isinstance(n, ast.Compare)]
        found = next(((t, s) for t in tests if (s := _scanned(t, names, node, file)) is not None), None)
        if found is None:
            return
        test, scanned = found
        kind = file.values.of(scanned).kind
        python = isinstance(file.index.parent(test), ast.comprehension)
        use = _use(test, file)
        yield Problem(
            node,
            f"{quote(file, test, 40)} looks at all of {quote(file, scanned, 40)} again for each value of "
            f"{quote(file, iterable, 40)}. {_instead(use, python, scanned, file)}",
            0.4,
            beside(node, test, "the pass over all elements"),
            cause=node,
            span=Span(node.lineno, max(node.lineno, node.body[0].lineno - 1))
            if isinstance(node, ast.For)
            else None,
            subject=scanned,
            at=test,
            facts={
                "python": python,
                "tensor": kind == "tensor",
                "array": kind == "array",
                "counts": use == "count",
                "recodes": use == "recode",
                "selects": use == "select",
                "unique": isinstance(iterable, ast.Call) and called_name(iterable) in ("unique", "set"),
            },
        )


def _values(target: ast.expr, iterable: ast.expr) -> frozenset[str]:
    """The names that stand for one value in each iteration."""
    if isinstance(iterable, ast.Call) and called_name(iterable) in (
        "parameters",
        "named_parameters",
        "modules",
    ):
        return frozenset()
    return names_in(target)


def _is_few(iterable: ast.expr) -> bool:
    if isinstance(iterable, (ast.List, ast.Tuple)):
        return len(iterable.elts) < _FEW
    if isinstance(iterable, ast.Call) and called_name(iterable) == "range" and len(iterable.args) == 1:
        limit = int_literal(iterable.args[0])
        return limit is not None and limit < _FEW
    return False


def _scanned(test: ast.Compare, names: frozenset[str], place: ast.AST, file: SourceFile) -> ast.expr | None:
    """The collection that the comparison goes over in full; the loop does not change it."""
    if len(test.ops) != 1 or not isinstance(test.ops[0], ast.Eq):
        return None
    for side, other in ((test.left, test.comparators[0]), (test.comparators[0], test.left)):
        base = other.value if isinstance(other, (ast.Subscript, ast.Attribute)) else other
        if not (isinstance(base, ast.Name) and base.id in names) or names_in(side) & names:
            continue
        source = _source(side, test, file)
        if source is None:
            return None
        keys = reads(source, file)
        if not keys or changes(file.index.function_of(place), file).in_node(keys, place):
            return None
        return source
    return None


def _source(side: ast.expr, test: ast.Compare, file: SourceFile) -> ast.expr | None:
    """The array that is compared as a whole, or the list that a comprehension goes through element by element."""
    parent = file.index.parent(test)
    if isinstance(parent, ast.comprehension) and isinstance(side, ast.Name):
        iterable: ast.expr = parent.iter
        if side.id not in names_in(parent.target):
            return None
        while (
            isinstance(iterable, ast.Call)
            and called_name(iterable) in ("enumerate", "zip", "list")
            and iterable.args
        ):
            iterable = iterable.args[0]
        return iterable if isinstance(iterable, (ast.Name, ast.Attribute)) else None
    kind = file.values.of(side).kind
    if kind in ("tensor", "array") and _use(test, file):
        return side if isinstance(side, (ast.Name, ast.Attribute, ast.Subscript)) else None
    whole = _use(test, file)
    base = side.value if isinstance(side, ast.Subscript) else side
    if kind or not whole or not isinstance(base, (ast.Name, ast.Attribute)):
        return None
    leaf = base.id if isinstance(base, ast.Name) else base.attr
    return side if whole == "count" or _LABELS.search(leaf) else None


def _use(test: ast.Compare, file: SourceFile) -> str:
    """What the mask is for: "count", "recode", "select"; "" when it may be a comparison of two numbers."""
    parent = file.index.parent(test)
    if isinstance(parent, ast.Attribute) and isinstance(file.index.parent(parent), ast.Call):
        if parent.attr == "all":
            return ""
        # A cast makes a dense mask, which is wanted as it is.
        return {"sum": "count", "any": "count", "mean": "count", "nonzero": "select"}.get(parent.attr, "")
    if isinstance(parent, ast.Call):
        name, module = called_name(parent), file.imports.qualified(parent.func)
        if module.startswith(("numpy.", "torch.")):
            return (
                "count"
                if name in ("sum", "count_nonzero", "mean", "any")
                else "select"
                if name in _LISTS
                else ""
            )
        return ""  # what takes the mask takes the whole of it
    if isinstance(parent, ast.Subscript) and parent.slice is test:
        return "recode" if isinstance(parent.ctx, ast.Store) else "select"
    if isinstance(parent, ast.BinOp) and isinstance(parent.op, (ast.BitAnd, ast.BitOr, ast.Mult)):
        return "select"
    if isinstance(parent, ast.Assign) and isinstance(parent.targets[0], ast.Name):
        name = parent.targets[0].id
        loads = file.uses.loads(file.index.function_of(parent), name)
        masks = [
            n
            for load in loads
            for n in [file.index.parent(load)]
            if isinstance(n, (ast.Subscript, ast.Attribute))
        ]
        return "select" if masks else ""
    return ""


def _instead(use: str, python: bool, scanned: ast.expr, file: SourceFile) -> str:
    name = quote(file, scanned, 30).strip("`")
    if python:
        return "Group the positions in one pass: a `defaultdict(list)` filled from `enumerate`, or one `np.argsort` and `np.split`."
    if use == "count":
        whole = ".long()" if isinstance(scanned, ast.Subscript) else ""  # a column of a table of numbers
        return f"Count all values in one pass: `torch.bincount({name}.flatten(){whole}, minlength=n)` (with weights for sums)."
    if use == "recode":
        return f"Recode all elements with one look-up: `table[{name}]`, where `table` holds the new value of each old one."
    added = "`index_add_`/`scatter_reduce`" if file.facts.has("scatter_reduce") else "`index_add_`"
    return (
        f"Sort or group once: {added} over {name} for sums and means, a product with `F.one_hot({name})`, "
        "or one `argsort` and `split` for the groups themselves."
    )
