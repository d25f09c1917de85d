from __future__ import annotations

import ast
from collections.abc import Iterator

from ptopt.rules.base import Invalid, Problem, Rule, SourceFile
from ptopt.rules.code import beside, quote
from ptopt.rules.ops._calls import FEW
from ptopt.rules.ops._pure import leaves_loop, result_changes
from ptopt.rules.shared.repeats import repeat_of, stays_same, words_for
from ptopt.source.calls import called_name
from ptopt.source.frequency import Often
from ptopt.source.index import LOOPS

_BUILTINS = frozenset("sorted set frozenset max min sum".split())
_NUMPY = frozenset("unique argsort sort array asarray bincount concatenate cumsum".split())
_COPIES = frozenset({"list", "tuple", "dict"})


class ScanRepeatedInLoop(Rule):
    """A loop goes over the same whole collection again in each iteration.

    ## What it does
    Finds `sorted(x)`, `set(x)`, `max(x)`, `sum(x)`, `Counter(x)`, `np.unique(x)`, `x.tolist()` and the like in a loop or a
    comprehension that does not change `x`, and `list(x)` that is made to be searched or indexed.

    ## Why it is slow
    Each iteration reads all of `x` for a result that it had before: the time grows with the product of the two lengths.

    ## When this is wrong
    When the collection is changed in the loop in a way that cannot be seen from here, or holds a few elements.

    ## Fix safety
    No fix is offered: the line before the loop may need a name that is free.

    ## Sources
    - [Python wiki: time complexity](https://wiki.python.org/moin/TimeComplexity)
    """

    id = "PTO451"
    name = "scan-repeated-in-loop"
    family = "ops"
    most_stated = 0.4
    nodes = (ast.Call,)
    calls = _BUILTINS | _NUMPY | _COPIES | {"Counter", "tolist"}
    when_wrong = "the loop changes the collection in a way that cannot be seen from here"

    VALID = (
        """
        def longest(batches):
            best = max([max(lengths) for lengths in batches])
            return best
        """,
        """
        for epoch in range(epochs):
            order = sorted(pool)
            pool.append(train(order))
        """,
        """
        for name in names:
            row = list(columns)
            row.append(name)
        """,
    )
    INVALID = (
        Invalid("""
            def pad(rows, lengths):
                return [row + [0] * (max(lengths) - len(row)) for row in rows]  # !
                # ~ longest = max(lengths)
                # ~ return [row + [0] * (longest - len(row)) for row in rows]
        """),
        Invalid("""
            def split(samples, held_out):
                train = []
                for sample in samples:
                    if sample.name not in set(held_out):  # !
                        train.append(sample)
                return train
        """),
        Invalid("""
            def weights(labels, classes):
                found = []
                for c in classes:
                    found.append(np.unique(labels, return_counts=True)[1][c])  # !
                return torch.tensor(found)
        """),
    )

    def check(self, node: ast.AST, file: SourceFile) -> Iterator[Problem]:
        if not isinstance(node, ast.Call):
            return
        scanned = _scanned(node, file)
        place = repeat_of(node, file) if scanned is not None else None
        if (
            scanned is None
            or place is None
            or not stays_same(node, place, file)
            or result_changes(node, file)
        ):
            return
        reduces = called_name(node) in ("max", "min", "sum")
        if file.index.function_of(node) is None or reduces and isinstance(place, LOOPS):
            return  # a few numbers, as a rule
        often = file.frequencies.of(place).often
        if isinstance(place, LOOPS) and (leaves_loop(node, place, file) or often is Often.RARELY):
            return
        iterable = place.iter if isinstance(place, (ast.For, ast.AsyncFor)) else None
        few = iterable is not None and bool(FEW.search(ast.unparse(iterable)))
        over = words_for(place)
        yield Problem(
            node,
            f"{quote(file, node)} goes over all of {quote(file, scanned, 40)} in each iteration of the {over} at line "
            f"{place.lineno}, and gives the same result each time. Compute it once before the {over} and use the name.",
            0.3 if few else 0.4,
            beside(node, place, f"the {over}"),
            cause=place,
            subject=scanned,
            facts={
                "comprehension": not isinstance(place, LOOPS),
                "few": few,
                "sorts": called_name(node) in ("sorted", "sort", "argsort", "unique"),
                "same_source": iterable is not None and ast.dump(scanned) in ast.dump(iterable),
            },
        )


def _scanned(call: ast.Call, file: SourceFile) -> ast.expr | None:
    """The collection that the call reads from start to end, if it is one that the code names."""
    func, name = call.func, called_name(call)
    if isinstance(func, ast.Attribute) and name == "tolist" and not call.args:
        return func.value if isinstance(func.value, (ast.Name, ast.Attribute)) else None
    if not call.args or isinstance(call.args[0], ast.Starred):
        return None
    first = call.args[0]
    source = first
    while isinstance(source, ast.Call) and isinstance(source.func, ast.Attribute) and not source.args:
        source = source.func.value  # `d.values()`
    if not isinstance(source, (ast.Name, ast.Attribute)):
        return None
    qualified = file.imports.qualified(func)
    if isinstance(func, ast.Name) and name in _BUILTINS:
        return first if len(call.args) == 1 else None
    if isinstance(func, ast.Name) and name in _COPIES:
        return first if len(call.args) == 1 and _searched(call, file) else None
    if name == "Counter" or (qualified.startswith("numpy.") and name in _NUMPY):
        return first
    return None


def _searched(copy: ast.Call, file: SourceFile) -> bool:
    """Is the copy made only to be searched, counted or indexed?"""
    parent = file.index.parent(copy)
    if isinstance(parent, ast.Compare):
        return any(isinstance(op, (ast.In, ast.NotIn)) for op in parent.ops) and copy is not parent.left
    if isinstance(parent, ast.Subscript):
        return parent.value is copy
    return isinstance(parent, ast.Attribute) and parent.attr in ("index", "count")
