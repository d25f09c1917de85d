"""Whether code runs by default: the conditions around it, and around the calls that lead to it."""

from __future__ import annotations

import ast
import functools
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace

from ptopt.audit.known import Value
from ptopt.audit.live import Live
from ptopt.audit.modules import Module, dotted_name, text_of
from ptopt.audit.values import Place
from ptopt.source import work
from ptopt.source.calls import last_name
from ptopt.source.file import SourceFile
from ptopt.source.index import FUNCTIONS, FunctionNode, is_main_test

DEPTH = 12
_DEEPEST = 6  # calls of calls
_A_QUESTION = 4  # what one costs, in visited nodes
LONGEST = 60  # characters of an expression in a note
# What the machine and the launcher decide.
ENVIRONMENT = re.compile(
    r"device_count|world_?size|local_?rank|WORLD_SIZE|LOCAL_RANK|\bn?_?num_?gpus?\b|\bn_gpu\b|\bngpus?\w*\b|multi_?gpu|"
    r"is_initialized|\bdistributed\b|\bis_dist\w*\b|\bddp\b|use_ddp|multiprocessing_distributed|device_ids|\bdist_|\bdist\b|gpu_ids|"
    r"\bgpus?\b|RANK\b",
    re.I,
)
_REMEMBERED = 20_000  # pieces of code, most of which stand in many conditions
_RARE = re.compile(r"OutOfMemory|RuntimeError|MemoryError|KeyboardInterrupt|Timeout|Connection")
_NAME = re.compile(r"`([^\W\d]\w*)`")
_EXPRESSION = re.compile(r"`[^`]+`")
_SHORT_EXIT = 2  # statements
_PREPARED = re.compile(r"exists|isfile|isdir|cache", re.I)
_FIRST_PROCESS = re.compile(
    r"\brank\b\s*(==|in|<=)|\bnot\s+\w*\.?rank\b|_rank\s*(==|in|<=)|get_rank\(\)\s*==|is_(local_)?(main|master|world)\w*|"
    r"\bgpu(_?id)?\s*==\s*0\b|is_rank_?(zero|0)|is_global_zero|main_process|master_process|is_first_rank|rank_zero",
    re.I,
)


Answers = dict[ast.AST, tuple[int, Value]]  # with how deep the question stood


class Conditions(ABC):
    """Of one entry point. What an expression comes to, a subclass knows."""

    def __init__(self, live: Live) -> None:
        self.live = live
        self._runs: dict[ast.AST, Value] = {}
        self._open: set[object] = set()  # functions and parameters of which the answer is being looked for
        self._cuts = 0  # answers that were cut short: too deep, or a circle
        self._truths: Answers = {}
        self._conditions: Answers = {}
        self._reached: Answers = {}
        self._mentions: dict[str, list[tuple[Module, ast.AST]]] = {}

    def once(self, known: Answers, node: ast.AST, depth: int, compute: Callable[[], Value]) -> Value:
        """The answer about a node, computed once unless it was cut short: then it depends on who asked."""
        held = known.get(node)
        if held is not None and depth <= held[0]:
            return held[1]
        work.current().charge(_A_QUESTION)
        cuts = self._cuts
        answer = compute()
        if cuts == self._cuts:
            known[node] = depth, answer
        return answer

    @abstractmethod
    def of(self, expr: ast.AST | None, module: Module, depth: int = 0) -> Value:
        """What an expression comes to by default."""

    @abstractmethod
    def place(self, module: Module, node: ast.AST) -> Place:
        """Where a node stands."""

    def truth_of(self, test: ast.expr, module: Module, depth: int = 0) -> Value:
        """The truth of a condition by default; that of the first process, where processes differ."""
        return self.once(self._truths, test, depth, lambda: self._truth_of(test, module, depth))

    def _truth_of(self, test: ast.expr, module: Module, depth: int) -> Value:
        if is_main_test(test):
            return Value(True, True)
        text = text_of(test)
        if not isinstance(test, ast.BoolOp) and of_first_process(text):
            return Value(True, True)
        if _is_now_and_then(test) and not self.of(test, module, depth).known:
            return Value(True, True)
        if isinstance(test, ast.BoolOp):
            parts = [self.truth_of(value, module, depth) for value in test.values]
            decisive = isinstance(test.op, ast.Or)
            for part in parts:
                if part.truth is decisive:
                    return part
            open_ = [part for part in parts if part.truth is None]
            return (
                replace(open_[0], choices=(), passed=open_[0].passed if len(open_) == 1 else ())
                if open_
                else parts[-1]
            )
        value = self.of(test, module, depth)
        if of_environment(text) and not _is_set_in_code(value) and not _is_switch_left_off(value):
            return Value(False, note=value.note or f"`{text[:LONGEST]}`", place=value.place, environment=True)
        return value.mapped(bool)

    def condition(self, node: ast.AST, module: Module, depth: int = 0) -> Value:
        """Whether a node runs by default, by the conditions around it in its function."""
        return self.once(self._conditions, node, depth, lambda: self._condition(node, module, depth))

    def _condition(self, node: ast.AST, module: Module, depth: int) -> Value:
        if depth > DEPTH:
            self._cuts += 1
            return Value(False, note="nested too deeply")
        unknown: Value | None = None
        noted: Value | None = None
        for ancestor, child in module.file.index.ancestors(node):
            if isinstance(ancestor, (*FUNCTIONS, ast.ClassDef, ast.Module)):
                break
            if isinstance(ancestor, ast.ExceptHandler) and _is_rare(ancestor):
                return Value(True, False, "only after an error", self.place(module, ancestor))
            wanted: bool | None = None
            if isinstance(ancestor, ast.If):
                wanted = True if child in ancestor.body else False if child in ancestor.orelse else None
            elif isinstance(ancestor, ast.IfExp):
                wanted = True if child is ancestor.body else False if child is ancestor.orelse else None
            if wanted is None or not isinstance(ancestor, (ast.If, ast.IfExp)):
                continue
            if wanted and isinstance(ancestor, ast.If) and _makes_what_is_missing(ancestor):
                continue
            if _is_now_and_then(ancestor.test) or (not wanted and _is_partly_now_and_then(ancestor.test)):
                continue
            test = self.truth_of(ancestor.test, module, depth + 1)
            if test.truth is not None and test.truth is not wanted:
                return Value(True, False, test.note, test.place)
            if not test.known and wanted in test.passed:
                continue  # one of the calls takes this way
            if test.truth is None:
                unknown = unknown or self._as_asked(test, ancestor.test, wanted, module)
            elif test.note:
                noted = noted or test
        if unknown is not None:
            return unknown
        return Value(True, True, noted.note if noted else "", noted.place if noted else None)

    def gets_past(self, node: ast.AST, module: Module) -> Value:
        """Whether what stands before a node in its function lets it run: `if precision == "fp32": return suppress`."""
        guards = list(_exits_before(node, module))
        tests = {test: self.truth_of(test, module) for guard in guards for test in _tests(guard)}
        open_ = [value for value in tests.values() if not value.known]
        first = open_[0] if open_ else None
        together = first is not None and all(
            value.option == first.option != "" and len(value.choices) == len(first.choices) for value in open_
        )
        if first is None or not together or not first.choices:
            passes, asked = _passes(guards, lambda test: tests[test].truth)
            if passes is None:
                return replace(first, choices=(), passed=()) if first is not None else Value(False)
            noted = [tests[test] for test in asked if tests[test].note]
            why = noted[-1] if noted else Value(True)
            return Value(True, passes, why.note, why.place, option=why.option)
        ways = tuple(_passes(guards, _chosen(tests, at))[0] for at in range(len(first.choices)))
        return replace(first, choices=ways, passed=())

    def stays_before(self, node: ast.AST, module: Module) -> Value:
        """Whether no guard before a node leaves its function; one that then loads what an earlier run prepared does not count."""
        answer = Value(True, True)
        for guard in _exits_before(node, module):
            if _PREPARED.search(text_of(guard.test)):
                continue
            passes, _ = _passes([guard], lambda test: self.truth_of(test, module).truth)
            if passes is False:
                return Value(True, False)
            if passes is None and answer.known:
                value = self.truth_of(guard.test, module)
                answer = self._as_asked(value, guard.test, not _leaves(guard.body), module)
        return answer

    def _left_before(self, node: ast.AST, module: Module, depth: int) -> Value | None:
        """`if not args.evaluate: return` above a node, where that is so by default; None of others."""
        for guard in _exits_before(node, module):
            plain = (
                isinstance(guard.body[-1], ast.Return) and not guard.orelse
            )  # who meets an error gives other options
            if not plain or len(guard.body) > _SHORT_EXIT or _PREPARED.search(text_of(guard.test)):
                continue
            test = self.truth_of(guard.test, module, depth + 1)
            if test.known and test.value and test.note:
                return replace(test, value=False)
        return None

    def _as_asked(self, value: Value, test: ast.expr, wanted: bool, module: Module) -> Value:
        """The value of an open condition; its note says `not` where the node runs if the noted expression is false."""
        inner, negative = test, not wanted
        while isinstance(inner, ast.UnaryOp) and isinstance(inner.op, ast.Not):
            inner, negative = inner.operand, not negative
        text = " ".join(text_of(inner).split())
        noted = _NAME.fullmatch(value.note)
        if noted is not None and not re.search(rf"\b{re.escape(noted[1])}\b", text) and len(text) < LONGEST:
            # A name of another line says nothing beside this condition.
            return replace(value, note=f"not `{text}`" if negative else f"`{text}`")
        if not negative or not _EXPRESSION.fullmatch(value.note):
            return value
        # The other way: what is noted may be a part of the condition, or what a name in it holds.
        return replace(value, note=f"not `{text if len(text) <= LONGEST else text[:LONGEST] + '…'}`")

    def runs(self, node: ast.AST, module: Module, depth: int = 0) -> Value:
        """Whether a node runs by default, by the conditions around it and around the calls that lead to it."""
        return self.once(self._reached, node, depth, lambda: self._is_reached(node, module, depth))

    def _is_reached(self, node: ast.AST, module: Module, depth: int) -> Value:
        own = self.condition(node, module, depth)
        if own.truth is False:
            return own
        left = self._left_before(node, module, depth)
        if left is not None:
            return left
        function = module.file.index.function_of(node)
        while function is not None and (outer := module.file.index.function_of(function)) is not None:
            used = self._used_inside(function, outer, module, depth)
            if used.truth is False:
                return used
            own = used if used.truth is None and own.known else own
            function = outer
        if function is None:
            return own
        if depth > _DEEPEST:
            self._cuts += 1
            return own
        called = self._called(function, module, depth)
        if called.truth is False or own.known:
            return called if called.truth is not True or not own.note else own
        return own

    def _used_inside(self, function: FunctionNode, outer: FunctionNode, module: Module, depth: int) -> Value:
        """Whether the function around a function calls it or hands it on: `texts.map(tokenize)` in one branch of an `if`."""
        if depth > _DEEPEST or function in self._open:
            self._cuts += 1
            return Value(True, True)
        uses = self.uses_inside(function, outer, module)
        if not uses or isinstance(module.file.index.parent(function), ast.ClassDef):
            return Value(True, True)
        self._open.add(function)
        answer = self._any(uses, depth)
        self._open.discard(function)
        return answer

    def uses_inside(
        self, function: FunctionNode, outer: FunctionNode, module: Module
    ) -> list[tuple[Module, ast.AST]]:
        """Where the function `outer` reads the name of a function in it."""
        index = module.file.index
        return [
            (module, name)
            for name in module.file.once(_loads).get(function.name, ())
            if index.within(name, outer) and not index.within(name, function)
        ]

    def _called(self, function: FunctionNode, module: Module, depth: int) -> Value:
        known = self._runs.get(function)
        if known is not None:
            self._cuts += function in self._open
            return known
        self._runs[function] = Value(True, True)  # recursion ends here
        self._open.add(function)
        owner = module.file.index.parent(function)
        if isinstance(owner, ast.ClassDef):
            sites = list(self.live.sites.get(owner))
            if function not in self.live.hooks:
                answer = self._any(self._from_elsewhere(function), depth)
                if answer.truth is not False:
                    made = self._any(sites, depth, owner.name)
                    # No method of an object that is never made is called.
                    answer = made if answer.truth is True or made.truth is False else answer
            else:
                answer = self._any(sites, depth, owner.name)
        else:
            answer = self._any(self.live.sites.get(function), depth)
        self._runs[function] = answer
        self._open.discard(function)
        return answer

    def _from_elsewhere(self, function: FunctionNode) -> list[tuple[Module, ast.AST]]:
        """The mentions of a method; not those of methods of its name, which hand a call on to their parts."""
        name = function.name
        if name not in self._mentions:
            mentions = self.live.mentions.get(name)
            outside = [
                (module, node)
                for module, node in mentions
                if getattr(module.file.index.function_of(node), "name", "") != name
            ]
            self._mentions[name] = outside or mentions
        return self._mentions[name]

    def _any(self, sites: list[tuple[Module, ast.AST]], depth: int, name: str = "") -> Value:
        """Whether one of the sites runs; True where there are none, as something unseen leads there. `name`: of the class that they make."""
        best: Value | None = None
        if len(sites) > 1 and (both := self._both_ways(sites)) is not None:
            return self.runs(both[1], both[0], depth + 1)
        for module, node in sites[:40]:
            if isinstance(module.file.index.parent(node), ast.ClassDef):
                return Value(True, True)  # a base class
            one = self.runs(node, module, depth + 1)
            if one.truth is not False and name:
                one = self._another_by_name(node, module, name, depth) or one
            if one.truth is True:
                return one
            if best is None or (best.known and not one.known):
                best = one
        return best or Value(True, True)

    def _another_by_name(self, node: ast.AST, module: Module, name: str, depth: int) -> Value | None:
        """Why `eval(args.tracker)` does not make the class of this name: by default it names another one of the repository; or None."""
        if not isinstance(node, ast.Call):
            return None
        called = last_name(node.func)
        if called == "eval" and node.args:
            given, holder = node.args[0], ""
        elif called == "getattr" and len(node.args) > 1 and dotted_name(node.args[0]):
            given, holder = node.args[1], f"{dotted_name(node.args[0])}."
        else:
            return None
        value = self.of(given, module, depth + 1)
        if not value.known or not isinstance(value.value, str) or value.value.rpartition(".")[2] == name:
            return None
        found = self.live.modules.resolve(module, f"{holder}{value.value}")
        if found is None or not isinstance(found[1], ast.ClassDef):
            return None
        return replace(value, value=False)

    def _both_ways(self, sites: list[tuple[Module, ast.AST]]) -> tuple[Module, ast.If] | None:
        """The `if` both of whose branches lead on: one of the sites runs where it does."""
        taken: dict[ast.If, set[bool]] = {}
        for module, node in sites[:40]:
            for ancestor, child in module.file.index.ancestors(node):
                if isinstance(ancestor, FUNCTIONS):
                    break
                if isinstance(ancestor, ast.If) and child is not ancestor.test:
                    ways = taken.setdefault(ancestor, set())
                    ways.add(child in ancestor.body)
                    if len(ways) == 2:
                        return module, ancestor
                    break
        return None


def _loads(file: SourceFile) -> Mapping[str, list[ast.Name]]:
    """The places of a file that read a name, by the name."""
    found: dict[str, list[ast.Name]] = {}
    for name in file.index.of_type(ast.Name):
        if isinstance(name.ctx, ast.Load):
            found.setdefault(name.id, []).append(name)
    return found


def _exits_before(node: ast.AST, module: Module) -> Iterator[ast.If]:
    """The `if` statements before a node in its function of which a branch leaves the function."""
    found: list[ast.If] = []
    for ancestor, child in module.file.index.ancestors(node):
        for name in ("body", "orelse"):
            body = getattr(ancestor, name, None)
            if isinstance(body, list) and child in body:
                before = body[: body.index(child)]
                found = [s for s in before if isinstance(s, ast.If) and _may_leave(s)] + found
        if isinstance(ancestor, FUNCTIONS):
            yield from found
            return


def _may_leave(guard: ast.If) -> bool:
    return _leaves(guard.body) or any(map(_leaves, _last_branches(guard)))


def _last_branches(guard: ast.If) -> Iterator[list[ast.stmt]]:
    """The bodies of `elif` and `else`."""
    while len(guard.orelse) == 1 and isinstance(guard.orelse[0], ast.If):
        guard = guard.orelse[0]
        yield guard.body
    yield guard.orelse


def _leaves(body: list[ast.stmt]) -> bool:
    return bool(body) and isinstance(body[-1], (ast.Return, ast.Raise))


def _chosen(tests: Mapping[ast.expr, Value], at: int) -> Callable[[ast.expr], bool | None]:
    """The truth of each test where the option holds one of its values."""

    def truth(test: ast.expr) -> bool | None:
        value = tests[test]
        return bool(value.value if value.known else value.choices[at])

    return truth


def joined_by(test: ast.expr) -> Iterator[ast.expr]:
    """What `and`, `or` and `not` join."""
    if isinstance(test, ast.BoolOp):
        for value in test.values:
            yield from joined_by(value)
    elif isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        yield from joined_by(test.operand)
    else:
        yield test


def _joined(test: ast.expr, truth: Callable[[ast.expr], bool | None]) -> bool | None:
    if isinstance(test, ast.BoolOp):
        decisive = isinstance(test.op, ast.Or)
        answers = [_joined(value, truth) for value in test.values]
        return decisive if decisive in answers else None if None in answers else not decisive
    if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        answer = _joined(test.operand, truth)
        return None if answer is None else not answer
    return truth(test)


def _tests(guard: ast.If) -> Iterator[ast.expr]:
    yield from joined_by(guard.test)
    if len(guard.orelse) == 1 and isinstance(guard.orelse[0], ast.If):
        yield from _tests(guard.orelse[0])


def _passes(
    guards: list[ast.If], truth: Callable[[ast.expr], bool | None]
) -> tuple[bool | None, list[ast.expr]]:
    """Does none of them leave the function; None where that is not known. And the tests that decide it."""
    asked: list[ast.expr] = []
    for each in guards:
        guard: ast.If | None = each
        while guard is not None:
            taken = _joined(guard.test, truth)
            if taken is None:
                return None, asked
            asked += joined_by(guard.test)
            if taken:
                if _leaves(guard.body):
                    return False, asked
                break
            chained = len(guard.orelse) == 1 and isinstance(guard.orelse[0], ast.If)
            if not chained and _leaves(guard.orelse):
                return False, asked
            following = guard.orelse[0] if chained else None
            guard = following if isinstance(following, ast.If) else None
    return True, asked


@functools.lru_cache(_REMEMBERED)
def of_environment(text: str) -> bool:
    """Do the machine and the launcher decide the value of the code?"""
    return ENVIRONMENT.search(text) is not None


@functools.lru_cache(_REMEMBERED)
def of_first_process(text: str) -> bool:
    """Does the code ask whether it runs in the first of several processes?"""
    return _FIRST_PROCESS.search(text) is not None


def _is_set_in_code(value: Value) -> bool:
    """Is it a truth value that the code states, and that no option, machine or launcher changes: `self.use_ddp = False`?"""
    return value.known and isinstance(value.value, bool) and not value.note and not value.environment


def _is_switch_left_off(value: Value) -> bool:
    """Is it an option that no command gives, nothing sets, and that is False by default: `--distributed`?"""
    return value.known and value.value is False and value.note.startswith("default of `--")


def _is_now_and_then(test: ast.expr) -> bool:
    """`step % every == 0`: some of the passes."""
    return (
        isinstance(test, ast.Compare)
        and isinstance(test.left, ast.BinOp)
        and isinstance(test.left.op, ast.Mod)
        and not isinstance(test.left.left, ast.Constant)
    )


def _is_partly_now_and_then(test: ast.expr) -> bool:
    """`every > 0 and step % every == 0`: what follows it otherwise runs in the other passes."""
    return (
        isinstance(test, ast.BoolOp)
        and isinstance(test.op, ast.And)
        and any(map(_is_now_and_then, test.values))
    )


def _makes_what_is_missing(guard: ast.If) -> bool:
    """`if self.writer is None: self.writer = SummaryWriter()`: the first to come makes it."""
    test = guard.test
    if isinstance(test, ast.Compare) and isinstance(test.ops[0], ast.Is):
        nothing = isinstance(test.comparators[0], ast.Constant) and test.comparators[0].value is None
        missing = test.left if nothing else None
    else:
        missing = test.operand if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not) else None
    if not isinstance(missing, ast.Attribute):
        return False
    wanted = text_of(missing)
    return any(
        isinstance(statement, ast.Assign) and any(text_of(t) == wanted for t in statement.targets)
        for statement in guard.body
    )


def _is_rare(handler: ast.ExceptHandler) -> bool:
    """Is it for what goes wrong in a run, and not for what is missing on some machines, such as a package?"""
    return handler.type is not None and bool(_RARE.search(text_of(handler.type)))
