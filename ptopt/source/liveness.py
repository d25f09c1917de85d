"""Which local names still matter after a statement: is what they hold read on any path from there?

The analysis is the *strong* one: what is read only to compute a value that nobody reads does not matter either. So of a loss that
is missing in the sum, the features that it was made of are found as well.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace

from ptopt.source import work
from ptopt.source.index import FUNCTIONS, FunctionNode, children_of, names_under

Names = frozenset[str]
NOTHING: Names = frozenset()
Assigned = ast.Assign | ast.AnnAssign
Removable = Callable[[ast.expr], bool]

_FUNCTION_LIKE = (*FUNCTIONS, ast.Lambda, ast.ClassDef)
_SEES_ALL = frozenset("locals eval exec vars breakpoint set_trace embed interact".split())
_SUPPRESSES = ("suppress", "raises", "assertRaises", "catch", "ignore")
_MOST_ROUNDS = 8  # through a loop until nothing changes; two do for nearly all
_DEEPEST = 3  # loops in loops that are gone through until nothing changes: each level doubles the work
_MOST_STATEMENTS = 1_500  # of a function: each has a set of names


@dataclass(frozen=True, slots=True)
class _Exits:
    """What matters where the code goes on after a `break`, a `continue`, a `return` and an exception."""

    leave: Names = NOTHING
    again: Names = NOTHING
    give: Names = NOTHING
    fail: Names = NOTHING


@dataclass(slots=True)
class Liveness:
    """The names that matter before and after each statement of one function."""

    kept: Names  # read in functions defined in it, or of an outer scope: they matter everywhere
    removable: Removable
    before: dict[ast.stmt, Names] = field(default_factory=dict)
    after: dict[ast.stmt, Names] = field(default_factory=dict)

    def is_unread(self, statement: Assigned) -> bool:
        """Is nothing read of all that the statement assigns, on any path? It must assign plain names only."""
        names = assigned_names(statement)
        return bool(names) and names.isdisjoint(self.after[statement])

    def needed_for(self, statements: Sequence[ast.stmt], after: Names) -> Names:
        """What matters before the statements if only `after` mattered behind them."""
        exits = _Exits(self.kept, self.kept, self.kept, self.kept)
        return _Analysis(Liveness(self.kept, self.removable)).block(statements, after | self.kept, exits)

    def reads(self, node: ast.AST) -> Names:
        """The names that the node reads."""
        return _Analysis(self).read(node)


def liveness(function: FunctionNode, removable: Removable) -> Liveness | None:
    """The liveness of a function's names; None where its code can look at all names, as `locals()` does, or is too long.

    `removable` says of an expression whether it has no effect but its value: only then what it reads does not matter
    when its value does not.
    """
    kept: set[str] = set()
    statements = 0
    for node in _all_nodes(function.body):
        if node.__class__ is ast.Name or node.__class__ is ast.Constant:
            continue  # as most nodes
        statements += isinstance(node, ast.stmt)
        if statements > _MOST_STATEMENTS:
            return None
        if isinstance(node, ast.Call) and _leaf(node.func) in _SEES_ALL:
            return None
        if isinstance(node, (ast.Global, ast.Nonlocal)):
            kept.update(node.names)
        elif isinstance(node, _FUNCTION_LIKE):
            # It may run at any time later.
            kept.update(name.id for name in names_under([node]))
    answer = Liveness(frozenset(kept), removable)
    _Analysis(answer).block(function.body, answer.kept, _Exits(give=answer.kept, fail=answer.kept))
    return answer


def assigned_names(statement: ast.stmt) -> Names:
    """The plain names that an assignment gives values; none where it also fills an attribute or an element."""
    if isinstance(statement, ast.AnnAssign):
        targets: list[ast.expr] = [statement.target] if statement.value is not None else []
    else:
        targets = statement.targets if isinstance(statement, ast.Assign) else []
    names: set[str] = set()
    pending = [*targets]
    while pending:
        target = pending.pop()
        if isinstance(target, ast.Name):
            names.add(target.id)
        elif isinstance(target, (ast.Tuple, ast.List)):
            pending += target.elts
        elif isinstance(target, ast.Starred):
            pending.append(target.value)
        else:
            return NOTHING
    return frozenset(names)


class _Analysis:
    """One way backwards through statements, which fills `answer`."""

    def __init__(self, answer: Liveness) -> None:
        self.answer = answer
        self._depth = 0
        self._reads: dict[ast.AST, Names] = {}

    def block(self, statements: Sequence[ast.stmt], after: Names, exits: _Exits) -> Names:
        """What matters before the statements."""
        for statement in reversed(statements):
            self.answer.after[statement] = after
            after = self._statement(statement, after, exits) | exits.fail
            self.answer.before[statement] = after
        return after

    def _statement(self, node: ast.stmt, after: Names, exits: _Exits) -> Names:
        work.current().charge(1 + len(after) // 8)
        if isinstance(node, (ast.Assign, ast.AnnAssign)):
            names = assigned_names(node)
            if (
                names
                and names.isdisjoint(after)
                and node.value is not None
                and self.answer.removable(node.value)
            ):
                return after
            return (after - names) | self.read(node)
        if isinstance(node, ast.If):
            branches = self.block(node.body, after, exits) | self.block(node.orelse, after, exits)
            return branches | self.read(node.test)
        if isinstance(node, (ast.For, ast.AsyncFor, ast.While)):
            return self._loop(node, after, exits)
        if isinstance(node, (ast.With, ast.AsyncWith)):
            return self._with(node, after, exits)
        if isinstance(node, (ast.Return, ast.Raise)):
            return self.read(node) | (exits.give if isinstance(node, ast.Return) else exits.fail)
        if isinstance(node, (ast.Break, ast.Continue)):
            return exits.leave if isinstance(node, ast.Break) else exits.again
        if isinstance(node, ast.Try) or node.__class__.__name__ == "TryStar":
            return self._try(node, after, exits)  # type: ignore[arg-type]
        if isinstance(node, ast.Match):
            cases = [self.block(case.body, after, exits) | self.read(case) for case in node.cases]
            return after.union(*cases) | self.read(node.subject)
        if isinstance(node, ast.Delete):
            gone = frozenset(t.id for t in node.targets if isinstance(t, ast.Name))
            return (after - gone) | self.read(node)
        return after | self.read(node)

    def _loop(self, node: ast.For | ast.AsyncFor | ast.While, after: Names, exits: _Exits) -> Names:
        bound = NOTHING if isinstance(node, ast.While) else _stored(node.target)
        test = self.read(node.test) if isinstance(node, ast.While) else self.read(node.target)
        head = test | self.block(node.orelse, after, exits)
        rounds = _MOST_ROUNDS
        if self._depth == _DEEPEST:
            head, rounds = (
                head | self.read(node),
                1,
            )  # whatever is read in it may be read in the next iteration
        self._depth += 1
        for _ in range(rounds):
            inner = replace(exits, leave=after, again=head)
            wider = head | (self.block(node.body, head, inner) - bound)
            if wider == head:
                break
            head = wider
        self._depth -= 1
        return head if isinstance(node, ast.While) else head | self.read(node.iter)

    def _with(self, node: ast.With | ast.AsyncWith, after: Names, exits: _Exits) -> Names:
        entered = [item.context_expr for item in node.items]
        if any(word in code for code in map(ast.unparse, entered) for word in _SUPPRESSES):
            exits = replace(exits, fail=exits.fail | after)
        inside = self.block(node.body, after, exits)
        for item in node.items:
            if item.optional_vars is not None:
                inside = (inside - _stored(item.optional_vars)) | self.read(item.optional_vars)
        return inside.union(*map(self.read, entered))

    def _try(self, node: ast.Try, after: Names, exits: _Exits) -> Names:
        if node.finalbody:
            onwards = after | exits.leave | exits.again | exits.give | exits.fail
            after = self.block(node.finalbody, onwards, exits)
            exits = _Exits(after, after, after, after)
        caught = [
            self.block(handler.body, after, exits) | (self.read(handler.type) if handler.type else NOTHING)
            for handler in node.handlers
        ]
        inside = replace(exits, fail=exits.fail.union(*caught))
        return self.block(node.body, self.block(node.orelse, after, exits), inside)

    def read(self, node: ast.AST) -> Names:
        """The names that the node reads; every name of a function that is defined in it."""
        known = self._reads.get(node)
        if known is None:
            every = isinstance(node, (*_FUNCTION_LIKE, ast.AugAssign, ast.match_case))
            known = self._reads[node] = frozenset(
                name.id for name in names_under(_read_parts(node)) if every or isinstance(name.ctx, ast.Load)
            )
        return known


def _read_parts(node: ast.AST) -> list[ast.AST]:
    """The node; of a case, all but the statements in it."""
    if isinstance(node, ast.match_case):
        return [node.pattern, *([node.guard] if node.guard is not None else [])]
    return [node]


def _stored(target: ast.expr) -> Names:
    """The names that a target binds."""
    return frozenset(name.id for name in names_under([target]) if isinstance(name.ctx, ast.Store))


def _all_nodes(roots: Sequence[ast.AST]) -> Iterator[ast.AST]:
    """The nodes and all below them, functions included."""
    stack = list(roots)
    while stack:
        node = stack.pop()
        yield node
        if node.__class__ is not ast.Name and node.__class__ is not ast.Constant:
            stack += children_of(node)


def _leaf(func: ast.expr) -> str:
    if isinstance(func, ast.Attribute):
        return func.attr
    return func.id if isinstance(func, ast.Name) else ""
