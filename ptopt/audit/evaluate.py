"""What an expression of a training script comes to by default: known values, and for others the reason."""

from __future__ import annotations

import ast
import operator
import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from ptopt.audit.attributes import Attributes
from ptopt.audit.commands import Commands
from ptopt.audit.conditions import DEPTH, LONGEST, Answers, of_first_process
from ptopt.audit.configured import Configured
from ptopt.audit.known import (
    Value,
    dominating,
    is_of_torch,
    one_of,
)
from ptopt.audit.live import Live
from ptopt.audit.modules import Module, dotted_name, text_of
from ptopt.audit.options import Options
from ptopt.source.bindings import Binding, is_self
from ptopt.source.file import SourceFile
from ptopt.source.index import FUNCTIONS, own_nodes

_WITH_GPU = re.compile(r"(^|\.)is_available$|is_bf16_supported$|is_accelerator_available$")
_TORCH_VERSION = re.compile(r"(\d+(?:\.\d+)*)")
_PLATFORM = {"sys.platform": "linux", "os.name": "posix", "platform.system()": "Linux"}
_COMPARED: Mapping[type[ast.cmpop], Callable[[Any, Any], Any]] = {
    ast.Eq: operator.eq, ast.NotEq: operator.ne, ast.Is: operator.eq, ast.IsNot: operator.ne, ast.Gt: operator.gt,
    ast.GtE: operator.ge, ast.Lt: operator.lt, ast.LtE: operator.le, ast.In: lambda a, b: a in b,
    ast.NotIn: lambda a, b: a not in b,
}  # fmt: skip
_COMPUTED: Mapping[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv, ast.Mod: operator.mod,
}  # fmt: skip
DEFAULT_OF = "default of "
_FILLS = frozenset({"append", "extend", "insert", "update", "setdefault"})
_MOST_COPIES = 16  # of a list
_SAME = (
    "bool",
    "int",
    "float",
    "str",
    "str2bool",
    "torch.device",
    "Path",
    "pathlib.Path",
)  # as true as what they are given


class Evaluator(Attributes):
    """Evaluates with the options of one entry point."""

    def __init__(
        self, live: Live, options: Options, configured: Configured | None = None, commands: Commands | None = None
    ) -> None:  # fmt: skip
        super().__init__(live, options, configured, commands)
        self._busy: set[ast.AST] = set()
        self._values: Answers = {}

    # -- expressions -------------------------------------------------------------------------------------

    def of(self, expr: ast.AST | None, module: Module, depth: int = 0) -> Value:
        if expr is None:
            return Value(False, note="not given")
        if isinstance(expr, ast.Constant):
            return Value(True, expr.value, "", self.place(module, expr))
        if depth > DEPTH or expr in self._busy:
            self._cuts += 1
            return self._unknown(expr, module)
        return self.once(self._values, expr, depth, lambda: self._looked_at(expr, module, depth))

    def _looked_at(self, expr: ast.AST, module: Module, depth: int) -> Value:
        self._busy.add(expr)
        try:
            return self._of(expr, module, depth + 1)
        except (TypeError, ValueError, ZeroDivisionError, OverflowError, MemoryError, AttributeError):
            return self._unknown(expr, module)
        finally:
            self._busy.discard(expr)

    def _of(self, expr: ast.AST, module: Module, depth: int) -> Value:
        if isinstance(expr, ast.Name):
            return self._name(expr, module, depth)
        if isinstance(expr, (ast.Attribute, ast.Call)) and text_of(expr) in _PLATFORM:
            return Value(True, _PLATFORM[text_of(expr)], "on Linux", self.place(module, expr))
        if isinstance(expr, ast.Attribute):
            return self._attribute(expr, module, depth)
        if isinstance(expr, ast.Subscript):
            key = expr.slice
            if dotted_name(expr.value).endswith("environ") and isinstance(key, ast.Constant):
                return self._environment(str(key.value), depth) or self._unknown(expr, module)
            if isinstance(key, (ast.Constant, ast.UnaryOp)):
                held, at = self.of(expr.value, module, depth), self.of(key, module, depth)
                if held.known and isinstance(held.value, tuple) and isinstance(at.value, int):
                    return (
                        replace(held, value=held.value[at.value])
                        if -len(held.value) <= at.value < len(held.value)
                        else self._unknown(expr, module)
                    )
            if isinstance(key, ast.Constant) and isinstance(key.value, str):
                return self._option(key.value, expr, module, depth)
            return self._unknown(expr, module)
        if isinstance(expr, ast.UnaryOp):
            inner = self.of(expr.operand, module, depth)
            if isinstance(expr.op, ast.Not):
                return inner.mapped(operator.not_)
            return inner.mapped(operator.neg) if isinstance(expr.op, ast.USub) else inner
        if isinstance(expr, ast.BoolOp):
            return self._boolean(expr, module, depth)
        if isinstance(expr, ast.Compare) and len(expr.ops) == 1:
            return self._comparison(expr, module, depth)
        if isinstance(expr, ast.IfExp):
            test = self.truth_of(expr.test, module, depth)
            if test.known:
                chosen = self.of(expr.body if test.value else expr.orelse, module, depth)
                return replace(chosen, note=chosen.note or test.note, place=chosen.place or test.place)
            both = one_of([self.of(expr.body, module, depth), self.of(expr.orelse, module, depth)], "", None)
            return both if both.known else replace(test, choices=both.choices, passed=())
        if isinstance(expr, ast.BinOp) and type(expr.op) in _COMPUTED:
            left, right = self.of(expr.left, module, depth), self.of(expr.right, module, depth)
            if (repeated := _repeated(expr, left, right)) is not None:
                return repeated
            if not (left.known and right.known):
                return replace(left if not left.known else right, choices=(), passed=())
            if any(isinstance(v, (str, bytes)) or abs(v) > 1e9 for v in (left.value, right.value)):
                return self._unknown(expr, module)
            return replace(
                left, value=_COMPUTED[type(expr.op)](left.value, right.value), note=left.note or right.note
            )
        if isinstance(expr, (ast.List, ast.Tuple, ast.Set)):
            parts = [self.of(element, module, depth) for element in expr.elts]
            if all(part.known for part in parts):
                return Value(True, tuple(part.value for part in parts), "", self.place(module, expr))
        if isinstance(expr, ast.Call):
            return self._call(expr, module, depth)
        return self._unknown(expr, module)

    def _environment(self, name: str, depth: int) -> Value | None:
        """`os.environ["FLOAT"] = "bf16"` of what runs: the last one that surely does; None where there is none."""
        held: Value | None = None
        for module in self.live.read.values():
            for node in module.file.index.attributes_named("environ"):
                part = module.file.index.parent(node)
                if not isinstance(part, ast.Subscript):
                    continue
                assign = module.file.index.parent(part)
                if not isinstance(assign, ast.Assign) or part not in assign.targets:
                    continue
                if not isinstance(part.slice, ast.Constant) or part.slice.value != name:
                    continue
                if self.live.runs(module, assign) and self.condition(assign, module, depth).truth:
                    held = self.of(assign.value, module, depth)
        return held

    def _boolean(self, expr: ast.BoolOp, module: Module, depth: int) -> Value:
        parts = [
            Value(True, True)
            if not isinstance(value, ast.BoolOp) and of_first_process(text_of(value))
            else self.of(value, module, depth)
            for value in expr.values
        ]
        decisive = isinstance(expr.op, ast.Or)
        for part in parts:
            if part.truth is decisive:
                return part
        unknown = next((part for part in parts if part.truth is None), None)
        if unknown is not None:
            return replace(unknown, choices=(), passed=())
        return replace(parts[-1], note=_of_all(parts))

    def _comparison(self, expr: ast.Compare, module: Module, depth: int) -> Value:
        left, right = self.of(expr.left, module, depth), self.of(expr.comparators[0], module, depth)
        if left.known and right.known and type(expr.ops[0]) in _COMPARED:
            answer = bool(_COMPARED[type(expr.ops[0])](left.value, right.value))
            return replace(left, value=answer, note=left.note or right.note)
        if not (left.known and right.known) and (present := _asks_for_gpu(expr)) is not None:
            return Value(True, present, "with a GPU", self.place(module, expr))
        if (newer := self._asks_for_torch(expr)) is not None:
            return Value(True, newer, "with the torch of the project", self.place(module, expr))
        if isinstance(expr.ops[0], ast.In) and "inspect.signature(torch" in text_of(expr.comparators[0]):
            return Value(True, True, "with a current torch", self.place(module, expr))
        if not left.known and right.known and type(expr.ops[0]) in _COMPARED:
            return left.mapped(lambda held: bool(_COMPARED[type(expr.ops[0])](held, right.value)))
        return left if not left.known else replace(right, choices=(), passed=())

    def _asks_for_torch(self, expr: ast.Compare) -> bool | None:
        """`torch.__version__ >= "2.0"`: by what the project needs, a current one where that is open; None of others."""
        version = _TORCH_VERSION.search(text_of(expr.comparators[0]))
        if "torch.__version__" not in text_of(expr.left) or version is None:
            return None
        newer = not self.live.modules.facts.excludes("torch", version[1])
        if isinstance(expr.ops[0], (ast.GtE, ast.Gt)):
            return newer
        return not newer if isinstance(expr.ops[0], (ast.Lt, ast.LtE)) else None

    def _call(self, call: ast.Call, module: Module, depth: int) -> Value:
        name = dotted_name(call.func)
        last = call.func.attr if isinstance(call.func, ast.Attribute) else name
        if _WITH_GPU.search(name):
            return Value(True, True, "with a GPU", self.place(module, call))
        if name in _SAME and call.args:
            return self.of(call.args[0], module, depth)
        if name in ("hasattr", "getattr") and len(call.args) == 2 and is_of_torch(call.args[0]):
            return Value(True, True, "with a current torch", self.place(module, call))
        if name == "getattr" and len(call.args) >= 2 and isinstance(call.args[1], ast.Constant):
            default = call.args[2] if len(call.args) > 2 else None
            return self._asked_for(str(call.args[1].value), default, call, module, depth)
        if (
            last in ("get", "pop")
            and call.args
            and isinstance(call.func, ast.Attribute)
            and "environ" not in name
        ):
            key = call.args[0]
            if isinstance(key, ast.Constant) and isinstance(key.value, str):
                default = call.args[1] if len(call.args) > 1 else None
                rest = self._of_rest(key.value, call.func.value, module, depth)
                return rest or self._asked_for(key.value, default, call, module, depth)
        if last == "split" and isinstance(call.func, ast.Attribute) and len(call.args) == 1:
            inner, by = self.of(call.func.value, module, depth), self.of(call.args[0], module, depth)
            if inner.known and isinstance(inner.value, str) and by.known and by.value:
                return replace(inner, value=tuple(inner.value.split(by.value)))
        if name == "len" and len(call.args) == 1:
            held = self.of(call.args[0], module, depth)
            return (
                held.mapped(len)
                if held.known and isinstance(held.value, tuple)
                else self._unknown(call, module)
            )
        if last == "startswith" and isinstance(call.func, ast.Attribute) and len(call.args) == 1:
            inner, start = self.of(call.func.value, module, depth), self.of(call.args[0], module, depth)
            if inner.known and isinstance(inner.value, str) and isinstance(start.value, str):
                return replace(inner, value=inner.value.startswith(start.value))
            if start.value == "cuda" and "device" in text_of(call.func.value):
                return Value(True, True, "with a GPU", self.place(module, call))
        if last in ("lower", "upper", "strip") and isinstance(call.func, ast.Attribute):
            inner = self.of(call.func.value, module, depth)
            return inner.mapped(lambda text: getattr(text, last)())
        if name in ("max", "min") and call.args:
            parts = [self.of(a, module, depth) for a in call.args]
            if all(p.known and isinstance(p.value, (int, float)) for p in parts) and len(parts) > 1:
                pick = max if name == "max" else min
                return replace(parts[0], value=pick(p.value for p in parts))
        return self._returned_by(call, module, depth) or self._unknown(call, module)

    def _returned_by(self, call: ast.Call, module: Module, depth: int) -> Value | None:
        """What a function of the repository with one `return` may give, where that differs between commands; else None.

        What it gives by default is not taken for known: it may return what others set, such as a rank.
        """
        name = dotted_name(call.func)
        holder, function = (name and self.live.modules.resolve(module, name)) or (None, None)
        if holder is None or not isinstance(function, ast.FunctionDef) or function.decorator_list:
            return None
        own = [*own_nodes(function)]
        returns = [node for node in own if isinstance(node, ast.Return)]
        if len(returns) != 1 or any(isinstance(node, (ast.Yield, ast.YieldFrom)) for node in own):
            return None
        if returns[0] is not function.body[-1]:
            return None
        found = self.of(returns[0].value, holder, depth)
        return found if found.differs and not found.known else None

    def _asked_for(
        self, name: str, default: ast.expr | None, call: ast.Call, module: Module, depth: int
    ) -> Value:
        """`options.get("workers", 4)`, `getattr(args, "workers", 4)`: the option where there is one, else the default."""
        found = self._option(name, call, module, depth)
        if found.known or found.choices or default is None or self._options.of(name):
            return found
        return replace(self.of(default, module, depth), choices=())

    def _name(self, name: ast.Name, module: Module, depth: int) -> Value:
        index, bindings = module.file.index, module.file.bindings
        scope = index.function_of(name)
        while True:
            found = [b for b in bindings.of(scope, name.id) if b.node is not index.parent(name)]
            if found:
                break
            if scope is None:
                return self._imported(name, module, depth)
            scope = index.function_of(scope)
        last = dominating(name, found, module)
        live = [last] if last is not None else [b for b in found if b.kind != "parameter" or len(found) == 1]
        answers: list[Value] = []
        differs: Value | None = None  # a condition of an assignment, on which the commands do not agree
        for binding in live:
            if binding.kind == "parameter" and isinstance(scope, FUNCTIONS):
                answers.append(self._parameter(scope, name.id, module, depth))
            elif _is_filled_later(binding, scope, name.id, module):
                return self._unknown(name, module)
            elif binding.kind == "assign" and binding.value is not None:
                around = self.condition(binding.node, module, depth)
                runs = around.truth
                differs = around if runs is None and around.differs else differs
                if runs is not False:
                    value = self.of(binding.value, module, depth)
                    sure = runs and _nested(module, binding.node)  # after it nothing before counts
                    answers = [value] if sure else [*answers, value]
            elif binding.kind == "item" and binding.value is not None:
                answers.append(
                    self._item(binding.value, binding.path, module, depth) or self._unknown(name, module)
                )
            else:
                return self._unknown(name, module)
        if not answers:
            return self._unknown(name, module)
        own = self._unknown(name, module)
        held = one_of(answers, own.note, own.place)
        if differs is not None and not held.known:
            held = replace(held, note=differs.note, differs=True)
        return replace(
            held,
            place=held.place or own.place,
            environment=held.environment or (not held.known and own.environment),
        )

    def _item(self, iterable: ast.expr, path: tuple[int, ...], module: Module, depth: int) -> Value | None:
        """What a loop gives a name of its target, by all passes: of `for data, n in zip(sets, [4, 4])` 4; None where it is not known."""
        while path and isinstance(iterable, ast.Call):
            called, at = dotted_name(iterable.func), path[0]
            if any(isinstance(argument, ast.Starred) for argument in iterable.args):
                return None
            if called == "zip" and at < len(iterable.args):
                iterable, path = iterable.args[at], path[1:]
            elif called == "enumerate" and at == 1 and iterable.args:
                iterable, path = iterable.args[0], path[1:]
            else:
                return None
        held = self.of(iterable, module, depth)
        if path or not held.known or not isinstance(held.value, tuple) or not held.value:
            return None
        parts = [Value(True, part, held.note, held.place) for part in held.value]
        return one_of(parts, held.note or f"`{text_of(iterable)[:LONGEST]}`", held.place)

    def _imported(self, name: ast.Name, module: Module, depth: int) -> Value:
        origin = module.imported.get(name.id)
        if origin is None or not origin[2]:
            return self._unknown(name, module)
        path = self.live.modules.find(origin[1], origin[0], module.path)
        other = self.live.modules.parse(path) if path is not None else None
        return self._constant(other, origin[2], depth) if other is not None else self._unknown(name, module)

    def _constant(self, module: Module, name: str, depth: int) -> Value:
        assigned = [
            b for b in module.file.bindings.of(None, name) if b.kind == "assign" and b.value is not None
        ]
        if len(assigned) != 1:
            return Value(False, note=f"`{name}`")
        first = self.of(assigned[0].value, module, depth)
        later = [self.of(value, module, depth) for value in self._set_by_functions(module, name)]
        if not later:
            return first
        held = one_of([first, *later], f"`{name}`", first.place)
        return replace(held, environment=not held.known and any(value.environment for value in later))

    def _set_by_functions(self, module: Module, name: str) -> list[ast.expr]:
        """What functions that run give a variable of the module: `global distributed; distributed = world_size > 1`."""
        found: list[ast.expr] = []
        for statement in module.file.index.of_type(ast.Global):
            function = module.file.index.function_of(statement)
            if not isinstance(statement, ast.Global) or name not in statement.names or function is None:
                continue
            if self.live.runs(module, statement):
                bindings = module.file.bindings.of(function, name)
                found += [b.value for b in bindings if b.kind == "assign" and b.value is not None]
        return found

    def _attribute(self, expr: ast.Attribute, module: Module, depth: int) -> Value:
        root = dotted_name(expr).partition(".")[0]
        if expr.attr == "type" and (kind := self._device_type(expr.value, module, depth)) is not None:
            return kind
        if is_self(expr):
            return self._self_attribute(expr, module, depth)
        if root in module.imported and root not in module.definitions:
            resolved = self.live.modules.resolve(module, dotted_name(expr.value))
            if resolved is not None and resolved[1] is None:
                return self._constant(resolved[0], expr.attr, depth)
            level, name, attribute = module.imported[root]
            if not level and not attribute and not self.live.modules.is_ours(name, module.path):
                return self._unknown(expr, module)
        return self._option(expr.attr, expr, module, depth)

    def _device_type(self, device: ast.expr, module: Module, depth: int) -> Value | None:
        """`device.type`"""
        if not re.search(r"device", text_of(device), re.I):
            return None
        held = self.of(device, module, depth)
        if not held.known or not isinstance(held.value, str):
            return None
        return replace(held, value=held.value.partition(":")[0])


def _of_all(parts: list[Value]) -> str:
    """Where each of several values comes from: "default of `--no_search` and `--test`"."""
    notes = list(dict.fromkeys(part.note for part in parts if part.note))
    if len(notes) > 1 and all(note.startswith(DEFAULT_OF) for note in notes):
        return DEFAULT_OF + " and ".join(note.removeprefix(DEFAULT_OF) for note in notes)
    return parts[-1].note


def _repeated(expr: ast.BinOp, left: Value, right: Value) -> Value | None:
    """`[4] * 3`: a list as often; None of another computation."""
    if not isinstance(expr.op, ast.Mult) or not (left.known and right.known):
        return None
    held, times = (left, right) if isinstance(left.value, tuple) else (right, left)
    if not isinstance(held.value, tuple) or not isinstance(times.value, int):
        return None
    return replace(held, value=held.value * times.value) if 0 < times.value <= _MOST_COPIES else None


def _nested(module: Module, node: ast.AST) -> bool:
    """Does it stand in an `if`, and in no loop of its function?"""
    under = False
    for ancestor, _ in module.file.index.ancestors(node):
        if isinstance(ancestor, FUNCTIONS):
            break
        if isinstance(ancestor, (ast.For, ast.While)):
            return False
        under = under or isinstance(ancestor, ast.If)
    return under


def _asks_for_gpu(expr: ast.Compare) -> bool | None:
    """`device_type == "cuda"`, `"cuda" in device`: a training runs on a GPU; None of any other comparison."""
    sides = [expr.left, expr.comparators[0]]
    kind = next((s.value for s in sides if isinstance(s, ast.Constant) and isinstance(s.value, str)), "")
    if not kind.startswith(("cuda", "cpu")) or "device" not in text_of(expr):
        return None
    if isinstance(expr.ops[0], (ast.Eq, ast.In)):
        return kind.startswith("cuda")
    return not kind.startswith("cuda") if isinstance(expr.ops[0], (ast.NotEq, ast.NotIn)) else None


def _is_filled_later(binding: Binding, scope: ast.AST | None, name: str, module: Module) -> bool:
    """`gpus = []`, to which a loop appends."""
    value = binding.value
    empty = (isinstance(value, ast.List) and not value.elts) or (
        isinstance(value, ast.Dict) and not value.keys
    )
    return binding.kind == "assign" and empty and (scope, name) in module.file.once(_filled)


def _filled(file: SourceFile) -> frozenset[tuple[ast.AST | None, str]]:
    """The names that something is put into, each with its function."""
    called = [
        (call, call.func.value)
        for call in file.index.of_type(ast.Call)
        if isinstance(call.func, ast.Attribute) and call.func.attr in _FILLS
    ]
    stored = [(s, s.value) for s in file.index.of_type(ast.Subscript) if isinstance(s.ctx, ast.Store)]
    grown = [(a, a.target) for a in file.index.of_type(ast.AugAssign)]
    return frozenset(
        (file.index.function_of(node), holder.id)
        for node, holder in (*called, *stored, *grown)
        if isinstance(holder, ast.Name)
    )
