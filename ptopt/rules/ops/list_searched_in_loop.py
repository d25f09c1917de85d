from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from ptopt.rules.base import Invalid, Problem, Rule, SourceFile
from ptopt.rules.code import beside, quote
from ptopt.rules.ops._calls import FEW
from ptopt.rules.shared.flow import runs_network
from ptopt.rules.shared.repeats import Repeat, repeat_of, words_for
from ptopt.source.calls import called_name
from ptopt.source.frequency import Often
from ptopt.source.index import LOOPS, own_nodes

_MANY = re.compile(
    r"sampl|file|path|ids?\b|data|token|row|imag|annot|edge|node|record|label|name|line|word|user|item|text|frame|index|"
    r"indices|vocab|example|doc|sent|utt|pair|path|range\(len|range\(n",
    re.I,
)
_LISTS = frozenset("list sorted tolist split splitlines readlines listdir glob tolist".split())


class ListSearchedInLoop(Rule):
    """A list is searched from its start in each iteration.

    ## What it does
    Finds `x in items`, `items.index(x)` and `items.count(x)` in a loop or a comprehension, where `items`
    is a list that grows or that the code builds from data.

    ## Why it is slow
    Each search compares the elements one by one. With as many searches as elements the time grows with the square of the
    number of samples, tokens or files.

    ## When this is wrong
    When the list holds a few elements, or elements that cannot be hashed.

    ## Fix safety
    No fix is offered: other reads of the list may need its order.

    ## Sources
    - [Python wiki: time complexity](https://wiki.python.org/moin/TimeComplexity)
    """

    id = "PTO453"
    name = "list-searched-in-loop"
    family = "ops"
    most_stated = 0.35
    nodes = (ast.Compare, ast.Call)
    calls = frozenset({"index", "count"})
    when_wrong = "the list holds a few elements"

    VALID = (
        """
        def spread(indices, lengths, chunks):
            totals = [0 for _ in range(chunks)]
            for index in indices:
                shortest = totals.index(min(totals))
                totals[shortest] += lengths[index]
            return totals
        """,
        """
        held_out = set(ids)
        train = [s for s in samples if s.id not in held_out]
        """,
        """
        for name in names:
            if name in ["weight", "bias"]:
                decay.append(name)
        """,
        """
        for key in keys:
            if key in table:
                found.append(table[key])
        """,
    )
    INVALID = (
        Invalid("""
            def split(samples, path):
                held_out = [line.strip() for line in open(path)]
                # ~ held_out = {line.strip() for line in open(path)}
                return [s for s in samples if s.id not in held_out]  # !
        """),
        Invalid("""
            def unique(tokens):
                seen = []
                for token in tokens:
                    if token not in seen:  # !
                        seen.append(token)
                return seen
        """),
        Invalid("""
            class Labels(Dataset):
                def __init__(self, folder):
                    self.names = sorted(os.listdir(folder))
                    self.targets = [self.names.index(n) for n in file_names(folder)]  # !
        """),
    )

    def check(self, node: ast.AST, file: SourceFile) -> Iterator[Problem]:
        searched = _searched(node)
        place = repeat_of(node, file) if searched is not None else None
        if searched is None or place is None:
            return
        origin = _list_of(searched, file)
        if origin is None or file.index.within(origin, place):
            return
        if isinstance(place, LOOPS) and file.frequencies.of(node).often is Often.RARELY:
            return
        if _changes(searched, place):
            return  # a table made before the loop would be out of date
        few = _few(place)
        if not _many(place) or (isinstance(place, LOOPS) and _runs_networks(place, file)):
            return
        method = called_name(node) if isinstance(node, ast.Call) else "in"
        over, name = words_for(place), quote(file, searched, 40)
        instead = (
            f"Keep a dictionary from element to position (`{{x: i for i, x in enumerate({name.strip('`')})}}`)"
            if method == "index"
            else f"Count once with `collections.Counter({name.strip('`')})`"
            if method == "count"
            else f"Test against a set (`set({name.strip('`')})`, made once before the {over} or kept beside the list)"
        )
        yield Problem(
            node,
            f"{quote(file, node, 50)} compares the elements of the list {name} one by one in each iteration of the {over} at "
            f"line {place.lineno}. {instead}, which answers without a search.",
            0.3 if few else 0.35,
            beside(node, origin, "the list"),
            cause=place,
            subject=searched,
            facts={
                "few": few,
                "grows": isinstance(origin, ast.List),
                "index": method == "index",
                "comprehension": not isinstance(place, LOOPS),
                "nested": isinstance(place, LOOPS) and next(file.index.loops_of(place), None) is not None,
            },
        )


def _changes(searched: ast.expr, place: Repeat) -> bool:
    """Does the loop store into the list?"""
    text = ast.unparse(searched)
    return any(
        isinstance(n, ast.Subscript) and not isinstance(n.ctx, ast.Load) and ast.unparse(n.value) == text
        for n in own_nodes(place)
    )


def _searched(node: ast.AST) -> ast.expr | None:
    """The collection that is searched, if it is a plain name or attribute."""
    found: ast.expr | None = None
    if isinstance(node, ast.Compare) and len(node.ops) == 1 and isinstance(node.ops[0], (ast.In, ast.NotIn)):
        found = node.comparators[0]
    elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and len(node.args) == 1:
        found = node.func.value if node.func.attr in ("index", "count") else None
    return found if isinstance(found, (ast.Name, ast.Attribute)) else None


def _list_of(expr: ast.expr, file: SourceFile) -> ast.expr | None:
    """What makes it a list of unknown length; None when it is not known to be one."""
    value: ast.expr | None = None
    if isinstance(expr, ast.Name):
        function = file.index.function_of(expr)
        found = file.bindings.of(function, expr.id) or file.bindings.of(None, expr.id)
        plain = [b for b in found if b.kind == "assign" and b.value is not None]
        if len(plain) != len([b for b in found if b.kind != "augment"]) or not plain:
            return None
        value = plain[-1].value if len(plain) == 1 else None
    elif isinstance(expr, ast.Attribute) and isinstance(expr.value, ast.Name) and expr.value.id == "self":
        cls = file.index.class_of(expr)
        value = file.bindings.attribute(cls, expr.attr) if cls is not None else None
    if isinstance(value, ast.ListComp):
        return value
    if isinstance(value, ast.List) and not value.elts:
        return value if _grows(expr, file) else None
    if isinstance(value, ast.Call) and called_name(value) in _LISTS:
        builtin = isinstance(value.func, ast.Name)
        if called_name(value) == "keys" or (
            builtin and called_name(value) not in ("list", "sorted", "glob", "listdir")
        ):
            return None
        return value
    return None


def _grows(expr: ast.expr, file: SourceFile) -> bool:
    """Is something appended to the empty list in a loop?"""
    text = ast.dump(expr)
    return any(
        isinstance(call.func, ast.Attribute)
        and ast.dump(call.func.value) == text
        and (next(file.index.loops_of(call), None) is not None or called_name(call) == "extend")
        for name in ("append", "extend")
        for call in file.calls_named(name)
    )


def _many(place: Repeat) -> bool:
    """Does the loop go over data, as far as its words tell?"""
    header = getattr(place, "iter", None) or getattr(place, "generators", [None])[0]
    over = header.iter if isinstance(header, ast.comprehension) else header
    return (
        over is not None
        and not isinstance(over, (ast.List, ast.Tuple))
        and bool(_MANY.search(ast.unparse(over)))
    )


def _runs_networks(loop: Repeat, file: SourceFile) -> bool:
    """Next to a network, a search is nothing."""
    return any(isinstance(n, ast.Call) and runs_network(n, file) for n in own_nodes(loop))


def _few(place: Repeat) -> bool:
    iterable = getattr(place, "iter", None) or getattr(place, "generators", [None])[0]
    return iterable is not None and bool(FEW.search(ast.unparse(iterable)))
