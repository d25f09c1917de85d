"""How often a call runs in a training: the loop and the conditions around it, also around the calls that lead to it."""

from __future__ import annotations

import ast
import itertools
import math
import re
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property

from ptopt.audit.calling import callers
from ptopt.audit.conditions import joined_by, of_environment, of_first_process
from ptopt.audit.known import Value, default_of, position_of
from ptopt.audit.modules import Module, text_of
from ptopt.audit.setup import Setup
from ptopt.source.index import FUNCTIONS, LOOPS, FunctionNode, Loop

_DEEPEST = 8
_MOST_SITES = 12  # calls of one function
_MOST_WAYS = 6  # to one function
_MOST_SHOWN = 2  # conditions
_LONGEST = 60  # characters of a condition
_BETTER = re.compile(r"best|improve", re.I)
_COUNTS = re.compile(r"epoch|step|iter|batch", re.I)
_UNITS = {
    "epoch": ("epoch", "epochs"), "step": ("step", "steps"), "iter": ("iteration", "iterations"), "batch": ("batch", "batches"),
}  # fmt: skip
# `self.args.epochs == epoch`, `epoch + 1 == num_epochs`: after the last one.
_COUNTER = re.compile(
    r"(\w+\.)*(cur\w*_|i_)?(?P<unit>epoch|step|iter)(ation)?(_?(i|idx|num|no|id))?( [+-] 1)?$", re.I
)
_END = re.compile(
    r"(int\()?[\w.\[\]'\"]*(epochs|steps|iters|iterations|(max|num|n|total|end|last)_?(epoch|step|iter|iteration)|"
    r"(epoch|step|iter|iteration)_?(max|num|end))[\]'\"]*\)?( - 1)?$",
    re.I,
)
_LOADER_LENGTH = re.compile(r"len\([\w.\[\]'\"]*(loader|_dl|_dataloader)\w*['\"\]]*\)$", re.I)
_MOST_NAMES = 4  # for one expression
_IS_THERE = re.compile(r"(!=|>) 0$")
_COUNTED = re.compile(r"epoch|step|iter|batch|loader|round|episode|update|train|range\(", re.I)


@dataclass(frozen=True, slots=True)
class Frequency:
    """What stands around a call, from the inside out."""

    every: str = ""  # "every 5 epochs"
    best: bool = False  # only where the evaluation is better than before
    conditions: tuple[str, ...] = ()  # those that are open
    loop: str = ""  # "each epoch", "each pass of the loop"; "once" where there is surely none
    last: str = ""  # "after the last epoch", and no other

    @property
    def rank(self) -> int:
        """From the most frequent on: each pass, so many passes, under a condition, where it is the best, outside of loops."""
        if self.best:
            return 3
        if self.every:
            return 1
        if self.last:
            return 4
        if self.loop in ("", "once"):
            return 5 - bool(self.loop)
        return 2 if self.conditions else 0

    @property
    def text(self) -> str:
        """In words; "" where nothing is known."""
        only = _shown(self.conditions)
        if self.every:
            return self.every + (" where it is the best so far" if self.best else "") + only
        if self.best:
            return f"{self.loop} where it is the best so far".removeprefix("once ").strip() + only
        if self.last:
            return self.last + only
        return f"{self.loop}{only}" if self.rank == 2 else self.loop

    def within(self, outer: Frequency) -> Frequency:
        """With what stands around the call of its function."""
        conditions = tuple(dict.fromkeys((*self.conditions, *outer.conditions)))
        every, best, last = self.every or outer.every, self.best or outer.best, self.last or outer.last
        return Frequency(every, best, conditions, outer.loop, last)


def _shown(conditions: tuple[str, ...]) -> str:
    """In words, the inner ones, which say most."""
    if not conditions:
        return ""
    more = " and more holds" if len(conditions) > _MOST_SHOWN else ""
    return ", if " + " and ".join(conditions[:_MOST_SHOWN]) + more


class Frequencies:
    """Of the calls of one entry point."""

    def __init__(self, setup: Setup) -> None:
        self._setup = setup
        self._around: dict[tuple[FunctionNode, frozenset[str]], tuple[Frequency, ...]] = {}

    def of(self, module: Module, call: ast.AST) -> Frequency:
        """That of the most frequent of the ways that lead to a call."""
        return self.ways(module, call)[0]

    def ways(self, module: Module, call: ast.AST, depth: int = 0) -> tuple[Frequency, ...]:
        """Those of all the ways that lead to a call, the most frequent one first."""
        met = Frequency()
        flags: set[str] = set()  # what has to be true
        for ancestor, child in module.file.index.ancestors(call):
            if isinstance(ancestor, ast.If) and child is not ancestor.test:
                taken = child in ancestor.body
                if taken and isinstance(ancestor.test, ast.Name):
                    flags.add(ancestor.test.id)
                if _calls_the_same(ancestor.orelse if taken else ancestor.body, call):
                    continue  # where the condition decides otherwise, the other branch does it
                met = self._guarded(module, ancestor, taken, met)
            elif isinstance(ancestor, LOOPS) and child in ancestor.body and _is_counted(module, ancestor):
                return (replace(met, loop=_named(ancestor)),)
            elif isinstance(ancestor, FUNCTIONS):
                found = self._of_function(ancestor, module, depth, frozenset(flags))
                ways = (met.within(outer) for outer in found)
                return tuple(sorted(dict.fromkeys(ways), key=lambda way: way.rank))
        return (replace(met, loop="once"),)

    def _of_function(
        self, function: FunctionNode, module: Module, depth: int, flags: frozenset[str]
    ) -> tuple[Frequency, ...]:
        """Those of its calls, but for calls that leave one of `flags` off."""
        if depth >= _DEEPEST:
            return (Frequency(),)
        key = function, flags
        if key not in self._around:
            self._around[key] = (Frequency(),)  # a circle of calls ends here
            sites = itertools.islice(self._sites(function, module), _MOST_SITES)
            ways = {
                way: None
                for other, site in sites
                if not any(_is_off(flag, function, site) for flag in flags)
                for way in self.ways(other, site, depth + 1)
            }
            found = sorted(ways, key=lambda way: way.rank)[:_MOST_WAYS]
            self._around[key] = tuple(found) or (Frequency(),)
        return self._around[key]

    def _sites(self, function: FunctionNode, module: Module) -> Iterator[tuple[Module, ast.Call]]:
        """The calls of a function that run; none of what others define under the name of a method."""
        owner = module.file.index.parent(function)
        if not isinstance(owner, ast.ClassDef) and module.file.index.function_of(function) is not None:
            yield from ((module, site) for site in module.file.calls.callers(function))
            return
        for other, site, _ in callers(self._setup.live, function, module):
            if isinstance(owner, ast.ClassDef) and self._is_of_others(function.name, owner, other, site):
                continue
            if other.file.index.function_of(site) is function:
                continue  # `net.train()` in a method `train`: what calls it is asked
            if self._setup.runs(other, site).truth is not False:
                yield other, site

    def _is_of_others(self, name: str, owner: ast.ClassDef, module: Module, site: ast.Call) -> bool:
        """`torch.save(x)` for a method `save`; `self.video.save(x)` where a class `VideoRecorder` has one, too."""
        if not isinstance(site.func, ast.Attribute):
            return False
        root: ast.AST = site.func
        while isinstance(root, (ast.Attribute, ast.Subscript, ast.Call)):
            root = root.func if isinstance(root, ast.Call) else root.value
        if (
            isinstance(root, ast.Name)
            and root.id in module.imported
            and self._setup.is_external(module, root)
        ):
            return True
        receiver = text_of(site.func.value).rpartition(".")[2].strip("_").lower()
        alike = [c for c in self._owners.get(name, ()) if len(receiver) > 2 and receiver in c.name.lower()]
        return bool(alike) and owner not in alike

    @cached_property
    def _owners(self) -> dict[str, list[ast.ClassDef]]:
        """Name of a method -> the classes that have it."""
        table: defaultdict[str, list[ast.ClassDef]] = defaultdict(list)
        for cls in self._setup.live.classes:
            for statement in cls.body:
                if isinstance(statement, FUNCTIONS):
                    table[statement.name].append(cls)
        return table

    def _guarded(self, module: Module, guard: ast.If, taken: bool, met: Frequency) -> Frequency:
        """With what one condition says."""
        test = text_of(guard.test)
        of_best = taken and (_BETTER.search(test) or _is_made_of_best(module, guard.test))
        if of_best:
            met = replace(met, best=True)
        every = next((node for node in ast.walk(guard.test) if _is_remainder(node)), None)
        if isinstance(every, ast.BinOp) and taken:
            number = self._setup.value(module, every.right)
            if number.known and number.value in (None, 0, -1, math.inf):
                return _also(met, f"`{text_of(every.right)}` is set")
            for part in _beside(guard.test, every):
                met = self._open(module, part, met)
            return met if met.every else replace(met, every=self._every(module, every))
        if isinstance(every, ast.BinOp):
            return _also(met, f"not `{test}`" if len(test) < _LONGEST else "a condition holds")
        if all(map(_is_of_processes, joined_by(guard.test))):
            return met
        if of_best:
            return met
        ends = [(part, last) for part in _all_of(guard.test) if (last := _last(part))] if taken else []
        for part, last in ends[:1]:
            for other in _beside(guard.test, part):
                met = self._open(module, other, met)
            return replace(met, last=met.last or last)
        known = self._setup.evaluator.truth_of(guard.test, module).truth is not None
        if known or test.endswith(" is not None"):
            return met
        shown = f"`{test}`" if taken else f"not `{test}`"
        return _also(met, shown if len(test) < _LONGEST else "a condition holds")

    def _open(self, module: Module, part: ast.expr, met: Frequency) -> Frequency:
        """With what stands beside a remainder, where that leaves out more than the first pass."""
        text = text_of(part)
        if _IS_THERE.search(text) or text.endswith(" is not None") or _is_of_processes(part):
            return met
        if _BETTER.search(text) or self._setup.evaluator.truth_of(part, module).truth is not None:
            return met
        return _also(met, f"`{text}`" if len(text) < _LONGEST else "a condition holds")

    def _every(self, module: Module, remainder: ast.BinOp) -> str:
        """`(epoch + 1) % args.every == 0`: "every 5 epochs (default of `--every`)"."""
        value = self._setup.value(module, remainder.right)
        text = text_of(remainder.right)
        literal = isinstance(remainder.right, ast.Constant)
        number = _whole(value.value) if literal and value.known else text if literal else f"`{text}`"
        note = ""
        if value.known and value.note:
            number, note = _whole(value.value), f" ({value.note})"
        elif not literal and value.known and type(value.value) is int:
            number, note = str(value.value), f" (`{text}`)"
        elif not literal and (held := self._of_passes(module, remainder.right)):
            return held
        left = _held(module, remainder.left)
        is_product = isinstance(left, ast.BinOp) and isinstance(left.op, ast.Mult)  # it grows by more than 1
        counted = None if is_product else _COUNTS.search(text_of(remainder.left))
        if counted is None:
            shown = left if is_product else remainder.left
            return f"each time that `{text_of(shown)[:40]}` is a multiple of {number}{note}"
        one, many = _UNITS[counted[0].lower()]
        return f"each {one}{note}" if number == "1" else f"every {number} {many}{note}"

    def _of_passes(self, module: Module, number: ast.expr) -> str:
        """Of a name that holds `int(args.save_epochs * len(loader))`: each epoch, or every so many; "" of others."""
        made = _held(module, number)
        factors = (
            [made.left, made.right]
            if isinstance(made, ast.BinOp) and isinstance(made.op, ast.Mult)
            else [made]
        )
        rest = [factor for factor in factors if not _is_pass(_held(module, factor))]
        if len(rest) == len(factors) or len(rest) > 1:
            return ""
        value = self._setup.value(module, rest[0]) if rest else Value(True, 1)
        if not value.known or not isinstance(value.value, (int, float)) or value.value <= 0:
            return f"every `{text_of(rest[0])}` epochs" if rest and len(text_of(rest[0])) < _LONGEST else ""
        note = f" ({value.note})" if value.note else ""
        times = _whole(value.value)
        return f"each epoch{note}" if times == "1" else f"every {times} epochs{note}"


def _held(module: Module, expr: ast.expr) -> ast.expr:
    """What a name is given by its one assignment before, without the rounding around it."""
    for _ in range(_MOST_NAMES):
        if isinstance(expr, ast.Call) and text_of(expr.func) in ("int", "round") and expr.args:
            expr = expr.args[0]
        elif isinstance(expr, ast.Name):
            bindings = module.file.bindings.of(module.file.index.function_of(expr), expr.id)
            if len(bindings) != 1 or bindings[0].kind != "assign" or bindings[0].value is None:
                break
            expr = bindings[0].value
    return expr


def _is_pass(expr: ast.expr) -> bool:
    """`len(self.train_loader)`: the steps of an epoch."""
    return isinstance(expr, ast.Call) and _LOADER_LENGTH.match(text_of(expr)) is not None


def _beside(test: ast.expr, remainder: ast.AST) -> list[ast.expr]:
    """The other parts of `first and step % every == 0 and more`."""
    return [part for part in _all_of(test) if not any(node is remainder for node in ast.walk(part))]


def _all_of(test: ast.expr) -> list[ast.expr]:
    """What has to hold together."""
    return test.values if isinstance(test, ast.BoolOp) and isinstance(test.op, ast.And) else [test]


def _last(part: ast.expr) -> str:
    """`epoch == args.epochs - 1`: "after the last epoch"; "" of others."""
    if not isinstance(part, ast.Compare) or len(part.ops) != 1 or not isinstance(part.ops[0], ast.Eq):
        return ""
    sides = text_of(part.left), text_of(part.comparators[0])
    for counter, end in (sides, sides[::-1]):
        if (found := _COUNTER.match(counter)) and _END.match(end):
            return f"after the last {_UNITS[found['unit'].lower()][0]}"
    return ""


def _is_off(flag: str, function: FunctionNode, site: ast.Call) -> bool:
    """Does the call leave a parameter off, `def save(step, copy=False)`, under which the rest stands?"""
    spec = function.args
    parameters = [*spec.posonlyargs, *spec.args, *spec.kwonlyargs]
    default = default_of(function, flag)
    if flag not in {each.arg for each in parameters} or any(
        keyword.arg in (None, flag) for keyword in site.keywords
    ):
        return any(
            keyword.arg == flag and isinstance(keyword.value, ast.Constant) and not keyword.value.value
            for keyword in site.keywords
        )
    position = position_of(function, flag)
    given = position is not None and len(site.args) >= position  # perhaps behind `self`
    return not given and isinstance(default, ast.Constant) and not default.value


def _whole(number: object) -> str:
    """`1e5` steps are 100000."""
    return str(int(number)) if isinstance(number, float) and number.is_integer() else str(number)


def _calls_the_same(branch: list[ast.stmt], call: ast.AST) -> bool:
    """Does a statement of the branch, under no further condition, call the same?"""
    if not isinstance(call, ast.Call):
        return False
    called = text_of(call.func)
    return any(
        isinstance(node, ast.Call) and text_of(node.func) == called
        for statement in branch
        if isinstance(statement, ast.Expr)
        for node in ast.walk(statement)
    )


def _is_of_processes(test: ast.expr) -> bool:
    """Does it say which of several processes it is, or whether there are several: one of them saves?"""
    text = text_of(test)
    return of_first_process(text) or of_environment(text)


def _also(met: Frequency, condition: str) -> Frequency:
    return met if condition in met.conditions else replace(met, conditions=(*met.conditions, condition))


def _is_made_of_best(module: Module, test: ast.expr) -> bool:
    """`if update:` behind `score, update = compare(score, best_score)`"""
    if not isinstance(test, ast.Name):
        return False
    binding = module.file.bindings.last_before(test)
    made = None if binding is None else module.file.index.statement_of(binding.node)
    return isinstance(made, ast.Assign) and _BETTER.search(text_of(made.value)) is not None


def _is_remainder(node: ast.AST) -> bool:
    """`step % every`, not the number of a process."""
    return isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mod) and "rank" not in text_of(node.left)


def _is_counted(module: Module, loop: Loop) -> bool:
    """Is it a loop of the training, and not one over the networks to save?"""
    return isinstance(loop, ast.While) or bool(
        _COUNTED.search(f"{text_of(loop.target)} {text_of(loop.iter)}") or module.file.context.step_mark(loop)
    )


def _named(loop: Loop) -> str:
    header = "" if isinstance(loop, ast.While) else f"{text_of(loop.target)} {text_of(loop.iter)}"
    return "each epoch" if "epoch" in header.lower() else "each pass of the loop"
