"""Conditions around a place: is it dead, a way around what a device cannot do, or does it run only now and then?"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cached_property

from ptopt.source.calls import last_name
from ptopt.source.index import FUNCTIONS, LOOPS, Index, walk
from ptopt.source.memo import fills, last_set, missing, missing_name

# Names that, in a condition, tell that its branch is for reporting, saving or debugging: it runs rarely.
_ENDS = re.compile(r"^(self\.)?\w*(stop|last|final|done|finish|end_of|is_end|limit)\w*$", re.I)
_FINITE = re.compile(r"(?<!in)(?<!non)(?<!non_)(?<!not_)finite")
_RARE_NAME = re.compile(
    r"debug|verbose|(^|_)log(?!_?(it|prob|sigma|scale|var|std|softmax|alpha|domain|space|p$))|logging|print"
    r"|(?<!lora)(?<!low)(^|_)rank(_?(zero|0))?$|get_rank|main_process|is_main|(^|_)(is_)?master(_(process|rank|only|proc))?$"
    r"|is_local|zero_process|coordinator|(^|_)(done|finished)$"
    r"|profil|visuali[sz]|plot|save|ckpt|checkpoint|(^|_)eval|(^|_)valid|(^|_)val($|_)|dry_?run|wandb|tensorboard|tb_|writer"
    r"|display|(^|_)first(_(step|iter|iteration|batch|time|run|pass|epoch|call))?$|should_|report|dump|summary|nan|isinf|infinite|non_?finite|not_finite|invalid|overflow|diverg|early|patience|(^|_)best"
    r"|dist_avail|measure|timing|histogram|interval|every|frequency|freq$",
    re.I,
)
_MOMENTS = re.compile(r"(steps|iters|iterations|epochs|milestones)$", re.I)  # listed one by one: a few of all
_ACCUMULATION = re.compile(r"accum|micro|update_freq|iters_to", re.I)
_COUNT_OF_DATA = re.compile(
    r"\.(numel|sum|count_nonzero)\(\)|(^|[._])(num|n)_(valid|pos|positives?|fg|foreground|masked|selected|kept|matched|matches)$"
)
_LAST = re.compile(r"(^|_)(last|final)(_|$)", re.I)
_DEEPEST_EXIT = 4  # conditions around an early exit that are looked through
_EXITS = frozenset({"sys.exit", "exit", "quit", "os._exit"})
_REPORTS = frozenset({"print", "warn", "warning", "error", "info", "critical"})
_EXIT_NAMES = frozenset({"exit", "quit", "_exit"})
_DEVICE_KINDS = ("is_cuda", "is_mps", "is_xpu")
_LEAVING = (ast.Return, ast.Continue, ast.Break, ast.Raise)


class Guards:
    """The conditions of one file."""

    def __init__(self, index: Index) -> None:
        self._index = index
        self._rare: dict[tuple[ast.expr, bool], bool] = {}
        self._exits: dict[ast.AST, list[ast.If]] = {}
        self._filling: dict[tuple[ast.If, bool], bool] = {}
        self._kept_names: dict[tuple[ast.If, ast.AST | None], bool] = {}
        self._continued: dict[ast.AST, frozenset[ast.stmt]] = {}

    def unreachable(self, node: ast.AST) -> bool:
        """Is it dead code: under `if False:`, or after a `return`, `continue`, `break` or `raise` of its block?"""
        dead = self._dead
        return bool(dead) and any(child in dead for _, child in self._index.ancestors(node))

    @cached_property
    def _dead(self) -> frozenset[ast.stmt]:
        """Statements that control never reaches, and with them all that they hold."""
        dead: set[ast.stmt] = set()
        for leaving in self._index.of_type(*_LEAVING):
            block = self._index.parent(leaving)
            for statements in (getattr(block, name, None) for name in ("body", "orelse", "finalbody")):
                if isinstance(statements, list) and leaving in statements:
                    dead.update(statements[statements.index(leaving) + 1 :])
        for test in self._index.of_type(ast.If):
            if isinstance(test.test, ast.Constant) and not test.test.value:
                dead.update(test.body)
        return frozenset(dead)

    def device_fallback(self, node: ast.AST) -> bool:
        """Does the branch around it, in its function, ask a tensor which kind of device it is on: `if x.is_cuda:`?"""
        if not self._device_tests:
            return False
        for ancestor, child in self._index.ancestors(node):
            if isinstance(ancestor, FUNCTIONS):
                break
            if isinstance(ancestor, (ast.If, ast.IfExp)) and ancestor.test in self._device_tests:
                return child is not ancestor.test
        return False

    @cached_property
    def _device_tests(self) -> frozenset[ast.AST]:
        """The conditions that ask for the kind of a device."""
        return frozenset(
            child
            for asked in self._index.attributes_named(*_DEVICE_KINDS, "type")
            if _asks_device_kind(asked)
            for ancestor, child in self._index.ancestors(asked)
            if isinstance(ancestor, (ast.If, ast.IfExp)) and child is ancestor.test
        )

    def rare(self, node: ast.AST, stop: ast.AST | None = None) -> ast.AST | None:
        """What makes `node` run only now and then inside `stop` (default: its function), or None.

        A modulo test, a first or last iteration, a debug, logging or rank-0 switch, an exception handler, a
        branch that leaves the loop or warns of a value out of bounds, a value that is computed once and kept, an earlier `continue` on most iterations.
        """
        for ancestor, child in self._index.ancestors(node):
            if isinstance(ancestor, ast.If) and child is not ancestor.test:
                in_body = child in ancestor.body
                if (
                    self._is_rare(ancestor.test, in_body)
                    or (in_body and (_leaves(ancestor.body) or _warns(ancestor)))
                    or self._fills(ancestor, in_body)
                    or (in_body and self._fills_name(ancestor, stop))
                ):
                    return ancestor
            elif isinstance(ancestor, ast.IfExp) and child is not ancestor.test:
                if self._is_rare(ancestor.test, child is ancestor.body):
                    return ancestor
            elif isinstance(ancestor, ast.BoolOp) and isinstance(ancestor.op, ast.And):
                before = ancestor.values[: ancestor.values.index(child)] if child in ancestor.values else []
                if any(self._is_rare(value, True) for value in before):
                    return ancestor
            elif isinstance(ancestor, ast.ExceptHandler) or child in self._before_exit:
                return ancestor
            elif isinstance(ancestor, ast.Assert) and child is ancestor.msg:
                return ancestor
            elif isinstance(ancestor, ast.Raise):
                return ancestor
            if isinstance(child, ast.stmt) and self._after_continue(ancestor, child):
                return ancestor
            if ancestor is stop or (stop is None and isinstance(ancestor, FUNCTIONS)):
                return None
        return None

    def exclusive(self, one: ast.AST, other: ast.AST, scope: ast.AST) -> bool:
        """Do the two never run in one iteration or call of `scope`: in two branches of one `if`, or one where it is left?

        `if test: a() else: b()`, and `if test: return a()` with `b()` behind it.
        """
        branches = {ancestor: self._branch(ancestor, child) for ancestor, child in self._up_to(one, scope)}
        for ancestor, child in self._up_to(other, scope):
            if ancestor in branches:
                inner = next(self._index.loops_of(ancestor), None)
                if ancestor is not scope and inner is not (scope if isinstance(scope, LOOPS) else None):
                    return False  # an iteration runs an inner loop several times, and so perhaps both
                here, there = branches[ancestor], self._branch(ancestor, child)
                if here and there and here != there:
                    return True
                return self._left_before(one, other, ancestor) or self._left_before(other, one, ancestor)
        return False

    def _up_to(self, node: ast.AST, scope: ast.AST) -> Iterator[tuple[ast.AST, ast.AST]]:
        for ancestor, child in self._index.ancestors(node):
            yield ancestor, child
            if ancestor is scope:
                return

    @staticmethod
    def _branch(ancestor: ast.AST, child: ast.AST) -> str:
        """Which of two branches of a condition the child stands in; "" for its test, and in anything else."""
        if isinstance(ancestor, ast.IfExp):
            return "body" if child is ancestor.body else "orelse" if child is ancestor.orelse else ""
        if isinstance(ancestor, ast.If) and child is not ancestor.test:
            return "body" if child in ancestor.body else "orelse"
        return ""

    def _left_before(self, one: ast.AST, other: ast.AST, block: ast.AST) -> bool:
        """Does `one` stand in an `if` of the block that ends with a `return` or `continue`, and `other` behind it?"""
        for ancestor, child in self._index.ancestors(one):
            if ancestor is block:
                return False
            if isinstance(ancestor, ast.If) and self._index.parent(ancestor) is block:
                branch = ancestor.body if child in ancestor.body else ancestor.orelse
                after = getattr(other, "lineno", 0) > (ancestor.end_lineno or 0)
                return child in branch and after and isinstance(branch[-1], _LEAVING)
        return False

    @cached_property
    def _before_exit(self) -> frozenset[ast.AST]:
        """Statements of blocks that end the program: `print(x); exit()`."""
        found: set[ast.AST] = set()
        for leaving in self._index.of_type(ast.Expr):
            if _ends_program(leaving):
                block = self._index.parent(leaving)
                for statements in (getattr(block, name, None) for name in ("body", "orelse", "finalbody")):
                    if isinstance(statements, list) and leaving in statements:
                        found.update(statements[: statements.index(leaving)])
        return frozenset(found)

    def _after_continue(self, block: ast.AST, child: ast.stmt) -> bool:
        """Does an earlier `if step % n: continue` keep most iterations away from `child`?"""
        if block not in self._continued:
            self._continued[block] = frozenset(self._after_first_continue(block))
        return child in self._continued[block]

    def _after_first_continue(self, block: ast.AST) -> list[ast.stmt]:
        body = getattr(block, "body", None)
        if not isinstance(body, list):
            return []
        exits = frozenset(self.early_exits(block))
        later: dict[str, int] | None = None  # most exits ask for nothing that is set later
        for at, stmt in enumerate(body):
            if stmt in exits:
                there = missing(stmt.test, False)
                if there and later is None:
                    later = last_set(body)
                filled = any((later or {}).get(name, -1) > at for name in there)
                leaves = isinstance(stmt.body[0], (ast.Continue, ast.Return))
                if filled or (leaves and self._is_rare(stmt.test, False)):
                    return body[at + 1 :]
            elif isinstance(stmt, ast.If) and self._mostly_leaves(stmt):
                return body[at + 1 :]
        return []

    def _mostly_leaves(self, condition: ast.If, depth: int = _DEEPEST_EXIT) -> bool:
        """`if every_n is None: return` ... `elif step % every_n != 0: return`, nested or not: most calls end there."""
        if not depth:
            return False
        inner = [s for s in (*condition.body, *condition.orelse) if isinstance(s, ast.If)]
        return any(
            (isinstance(s.body[-1], (ast.Return, ast.Continue)) and self._is_rare(s.test, False))
            or self._mostly_leaves(s, depth - 1)
            for s in inner
        )

    def early_exits(self, block: ast.AST) -> list[ast.If]:
        """The `if ...: return` (`continue`, `break`, `raise`) among the statements of a block, without an `else`."""
        if block not in self._exits:
            body = getattr(block, "body", None)
            self._exits[block] = [
                stmt
                for stmt in (body if isinstance(body, list) else ())
                if isinstance(stmt, ast.If) and not stmt.orelse and isinstance(stmt.body[-1], _LEAVING)
            ]
        return self._exits[block]

    def _fills(self, condition: ast.If, in_body: bool) -> bool:
        """Does the branch compute what its condition says is missing, so that it runs the first time alone?"""
        key = (condition, in_body)
        if key not in self._filling:
            guarded = condition.body if in_body else condition.orelse
            self._filling[key] = fills(condition.test, guarded, on_true=in_body) or (
                self._raises_flag(condition, in_body)
            )
        return self._filling[key]

    def _raises_flag(self, condition: ast.If, in_body: bool) -> bool:
        """`if not self.ready: ...`, and further down in the same function `self.ready = True`"""
        function = self._index.function_of(condition)
        last = self._flags.get(function)
        return last is not None and any(
            last.get(name, 0) > condition.lineno for name in missing(condition.test, in_body)
        )

    @cached_property
    def _flags(self) -> dict[ast.AST | None, dict[str, int]]:
        """Function -> the attributes that it sets to True, with the last line that does."""
        table: dict[ast.AST | None, dict[str, int]] = {}
        for assign in self._index.of_type(ast.Assign):
            if isinstance(assign.value, ast.Constant) and assign.value.value is True:
                for target in assign.targets:
                    if isinstance(target, ast.Attribute):
                        known = table.setdefault(self._index.function_of(assign), {})
                        known[ast.unparse(target)] = max(assign.lineno, known.get(ast.unparse(target), 0))
        return table

    def _fills_name(self, condition: ast.If, stop: ast.AST | None) -> bool:
        """Does the branch give a local name the value that its condition misses, for all later iterations or calls?

        In a loop that binds the name nowhere else, `if n is None: n = count()`; and of a value that the caller keeps,
        `if table is None or table.size(0) != n: table = build(n)`.
        """
        key = (condition, stop)
        if key not in self._kept_names:
            name = missing_name(condition.test)
            bound = name and any(
                isinstance(node, ast.Name) and node.id == name and isinstance(node.ctx, ast.Store)
                for statement in condition.body
                for node in walk(statement)
            )
            self._kept_names[key] = bool(bound) and (
                self._is_returned(name, condition)
                if isinstance(condition.test, ast.BoolOp)
                else self._bound_once(name, condition, stop)
            )
        return self._kept_names[key]

    def _is_returned(self, name: str, condition: ast.If) -> bool:
        """Does the function give the value to its caller, alone?"""
        block = getattr(self._index.parent(condition), "body", [])
        return any(
            isinstance(s, ast.Return) and isinstance(s.value, ast.Name) and s.value.id == name for s in block
        )

    def _bound_once(self, name: str, condition: ast.If, loop: ast.AST | None) -> bool:
        """Is the branch the only place of the loop that binds the name?"""
        return isinstance(loop, (ast.For, ast.AsyncFor, ast.While)) and not any(
            isinstance(node, ast.Name)
            and node.id == name
            and isinstance(node.ctx, ast.Store)
            and not self._index.within(node, condition)
            for node in walk(loop)
        )

    def _is_rare(self, test: ast.expr, in_body: bool) -> bool:
        known = self._rare.get((test, in_body))
        if known is None:
            known = self._rare[test, in_body] = is_rare_test(test, in_body)
        return known


def _asks_device_kind(node: ast.AST) -> bool:
    """`x.is_cuda`, `x.device.type`"""
    if not isinstance(node, ast.Attribute):
        return False
    of_device = isinstance(node.value, ast.Attribute) and node.value.attr == "device"
    return node.attr in _DEVICE_KINDS or (node.attr == "type" and of_device)


def is_rare_test(test: ast.expr, in_body: bool) -> bool:
    """Does the branch of `if test:` (its body, or its else) run only now and then?"""
    if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        return is_rare_test(test.operand, not in_body)
    if isinstance(test, ast.BoolOp):
        # A conjunction holds, and a disjunction fails, only where each part does: one rare part is enough.
        enough = any if isinstance(test.op, ast.And) == in_body else all
        rare = [is_rare_test(value, in_body) for value in test.values]
        # `stop or step % 50 == 0`: a flag of the end beside what is rare
        ends = enough is all and any(rare) and in_body
        return enough(
            r or (ends and bool(_ENDS.search(_text(v)))) for r, v in zip(rare, test.values, strict=True)
        )
    modulo = next((n for n in walk(test) if isinstance(n, ast.BinOp) and isinstance(n.op, ast.Mod)), None)
    if modulo is not None:
        if _ACCUMULATION.search(_text(modulo.right)):
            return False
        negated = test is modulo or (isinstance(test, ast.Compare) and isinstance(test.ops[0], ast.NotEq))
        if isinstance(test, ast.Compare) and isinstance(test.ops[0], (ast.Gt, ast.GtE)):
            negated = True
        return in_body != negated
    if isinstance(test, ast.Compare) and len(test.ops) == 1:
        left, right = test.left, test.comparators[0]
        if isinstance(test.ops[0], (ast.Eq, ast.LtE, ast.Lt)) and _is_edge(left, right):
            return in_body
        if isinstance(test.ops[0], (ast.NotEq, ast.Gt, ast.GtE)) and _is_edge(left, right):
            return not in_body
        if isinstance(test.ops[0], (ast.In, ast.NotIn)) and _MOMENTS.search(_text(right)):
            return in_body == isinstance(test.ops[0], ast.In)
        if _counts_data(left, right):
            return in_body == isinstance(test.ops[0], (ast.Eq, ast.LtE, ast.Lt))
        if isinstance(test.ops[0], (ast.Is, ast.IsNot)):
            return in_body == isinstance(test.ops[0], ast.IsNot) and _mentions_rare(left)
    if any(_FINITE.search(name) for name in _names_in(test)):
        return not in_body  # it nearly always is
    return in_body and _mentions_rare(test)


def _is_edge(left: ast.expr, right: ast.expr) -> bool:
    """`step == 0`, `i == len(loader) - 1`, `step < 10`: the first or last iterations, or rank 0."""
    if isinstance(right, ast.Constant) and isinstance(right.value, int) and not isinstance(right.value, bool):
        return bool(
            re.search(
                r"step|iter|batch_?(i|nb|num|no)|(^|_)i(dx|ndex)?$|epoch|rank|count|^[ijknt]$|^it$",
                _text(left),
                re.I,
            )
        )
    if isinstance(right, ast.BinOp) and isinstance(right.op, ast.Sub):
        return "len(" in _text(right.left) or bool(re.search(r"(num|max|total|n)_", _text(right.left)))
    counted = isinstance(right, (ast.Name, ast.Attribute)) or (
        isinstance(right, ast.Call) and last_name(right.func) == "len"
    )
    return counted and bool(re.search(r"\+ 1", _text(left)))  # `i + 1 == len(loader)`, `step + 1 == steps`


def _counts_data(left: ast.expr, right: ast.expr) -> bool:
    """`valid.sum() > 0`, `num_pos == 0`: is there anything in the batch to work on? There nearly always is."""
    none_or_one = isinstance(right, ast.Constant) and right.value in (0, 1)
    return none_or_one and bool(_COUNT_OF_DATA.search(_text(left)))


def _mentions_rare(test: ast.expr) -> bool:
    return any(
        (_RARE_NAME.search(name) or _LAST.search(name)) and not _ACCUMULATION.search(name)
        for name in _names_in(test)
    )


def _names_in(test: ast.expr) -> Iterator[str]:
    for node in walk(test):
        if isinstance(node, ast.Name):
            yield node.id
        elif isinstance(node, ast.Attribute):
            yield node.attr


def _leaves(body: list[ast.stmt]) -> bool:
    """The branch raises, breaks or exits: it runs once at most."""
    last = body[-1]
    if isinstance(last, (ast.Raise, ast.Break)):
        return True
    return _ends_program(last)


def _warns(guard: ast.If) -> bool:
    """`if x.max() > 1.0: print("out of range", x.max())`: what is always so, nobody has printed."""
    computed = any(
        isinstance(part, ast.Compare)
        and isinstance(part.ops[0], (ast.Lt, ast.LtE, ast.Gt, ast.GtE))
        and any(isinstance(node, ast.Call) for node in walk(part))
        for part in (guard.test.values if isinstance(guard.test, ast.BoolOp) else [guard.test])
    )
    return computed and all(
        isinstance(stmt, ast.Expr)
        and isinstance(stmt.value, ast.Call)
        and last_name(stmt.value.func) in _REPORTS
        for stmt in guard.body
    )


def _ends_program(stmt: ast.stmt) -> bool:
    """`sys.exit()`"""
    call = stmt.value if isinstance(stmt, ast.Expr) and isinstance(stmt.value, ast.Call) else None
    return call is not None and last_name(call.func) in _EXIT_NAMES and _text(call.func) in _EXITS


def _text(node: ast.AST) -> str:
    return ast.unparse(node)
