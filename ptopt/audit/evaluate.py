"""What an expression of a training script comes to by default: known values, and for others the reason."""

from __future__ import annotations

import ast
import operator
import re
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import cached_property
from typing import Any

from ptopt.audit.calling import callers, lineage
from ptopt.audit.commands import Commands
from ptopt.audit.conditions import DEPTH, ENVIRONMENT, LONGEST, Conditions
from ptopt.audit.configured import Configured
from ptopt.audit.known import (
    TRANSFORMERS,
    Value,
    agreed,
    dominating,
    is_of_torch,
    keys_of,
    one_of,
    position_of,
)
from ptopt.audit.live import Live
from ptopt.audit.modules import Module, dotted_name
from ptopt.audit.options import Option, Options
from ptopt.audit.values import Place
from ptopt.source.bindings import is_self
from ptopt.source.index import FUNCTIONS, FunctionNode

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
_FIELD_OF = re.compile(r" of `([A-Z]\w*)`$")
_OF_LIBRARY = "default of transformers"


class Evaluator(Conditions):
    """Evaluates with the options of one entry point."""

    def __init__(
        self, live: Live, options: Options, configured: Configured | None = None, commands: Commands | None = None
    ) -> None:  # fmt: skip
        super().__init__(live)
        self._configured = configured
        self._commands = commands
        self._options = options
        self._busy: set[ast.AST] = set()
        self._parameters: dict[tuple[FunctionNode, str], Value] = {}

    def place(self, module: Module, node: ast.AST) -> Place:
        line = getattr(node, "lineno", 1)
        return Place(module.path, module.file.head_line(line))

    # -- expressions -------------------------------------------------------------------------------------

    def of(self, expr: ast.AST | None, module: Module, depth: int = 0) -> Value:
        if expr is None:
            return Value(False, note="not given")
        if isinstance(expr, ast.Constant):
            return Value(True, expr.value, "", self.place(module, expr))
        if depth > DEPTH or expr in self._busy:
            return self._unknown(expr, module)
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
        if isinstance(expr, (ast.Attribute, ast.Call)) and ast.unparse(expr) in _PLATFORM:
            return Value(True, _PLATFORM[ast.unparse(expr)], "on Linux", self.place(module, expr))
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
                assign = module.file.index.parent(part) if isinstance(part, ast.Subscript) else None
                if not isinstance(assign, ast.Assign) or part not in assign.targets:
                    continue
                if not isinstance(part.slice, ast.Constant) or part.slice.value != name:  # type: ignore[union-attr]
                    continue
                if self.live.runs(module, assign) and self.condition(assign, module, depth).truth:
                    held = self.of(assign.value, module, depth)
        return held

    def _boolean(self, expr: ast.BoolOp, module: Module, depth: int) -> Value:
        parts = [self.of(value, module, depth) for value in expr.values]
        decisive = isinstance(expr.op, ast.Or)
        for part in parts:
            if part.known and bool(part.value) is decisive:
                return part
        unknown = next((part for part in parts if not part.known), None)
        return replace(unknown, choices=(), passed=()) if unknown else parts[-1]

    def _comparison(self, expr: ast.Compare, module: Module, depth: int) -> Value:
        left, right = self.of(expr.left, module, depth), self.of(expr.comparators[0], module, depth)
        if left.known and right.known and type(expr.ops[0]) in _COMPARED:
            answer = bool(_COMPARED[type(expr.ops[0])](left.value, right.value))
            return replace(left, value=answer, note=left.note or right.note)
        if not (left.known and right.known) and (present := _asks_for_gpu(expr)) is not None:
            return Value(True, present, "with a GPU", self.place(module, expr))
        if (newer := self._asks_for_torch(expr)) is not None:
            return Value(True, newer, "with the torch of the project", self.place(module, expr))
        if isinstance(expr.ops[0], ast.In) and "inspect.signature(torch" in ast.unparse(expr.comparators[0]):
            return Value(True, True, "with a current torch", self.place(module, expr))
        if not left.known and right.known and type(expr.ops[0]) in _COMPARED:
            return left.mapped(lambda held: bool(_COMPARED[type(expr.ops[0])](held, right.value)))
        return left if not left.known else replace(right, choices=(), passed=())

    def _asks_for_torch(self, expr: ast.Compare) -> bool | None:
        """`torch.__version__ >= "2.0"`: by what the project needs, a current one where that is open; None of others."""
        version = _TORCH_VERSION.search(ast.unparse(expr.comparators[0]))
        if "torch.__version__" not in ast.unparse(expr.left) or version is None:
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
        if last == "startswith" and isinstance(call.func, ast.Attribute) and len(call.args) == 1:
            inner, start = self.of(call.func.value, module, depth), self.of(call.args[0], module, depth)
            if inner.known and isinstance(inner.value, str) and isinstance(start.value, str):
                return replace(inner, value=inner.value.startswith(start.value))
            if start.value == "cuda" and "device" in ast.unparse(call.func.value):
                return Value(True, True, "with a GPU", self.place(module, call))
        if last in ("lower", "upper", "strip") and isinstance(call.func, ast.Attribute):
            inner = self.of(call.func.value, module, depth)
            return replace(inner, value=getattr(inner.value, last)()) if inner.known else inner
        if name in ("max", "min") and call.args:
            parts = [self.of(a, module, depth) for a in call.args]
            if all(p.known and isinstance(p.value, (int, float)) for p in parts) and len(parts) > 1:
                pick = max if name == "max" else min
                return replace(parts[0], value=pick(p.value for p in parts))
        return self._unknown(call, module)

    def _of_rest(self, name: str, table: ast.expr, module: Module, depth: int) -> Value | None:
        """`kwargs.get("scaler")` in a function with `**kwargs`: what its calls give by that name; None where none does."""
        function = module.file.index.function_of(table)
        if (
            function is None
            or not isinstance(table, ast.Name)
            or table.id != getattr(function.args.kwarg, "arg", "")
        ):
            return None
        given = [
            self.of(keyword.value, other, depth)
            for other, site, _ in callers(self.live, function, module)
            for keyword in site.keywords
            if keyword.arg == name
        ]
        return one_of(given, f"`{name}`", given[0].place) if given else None

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
        for binding in live:
            if binding.kind == "parameter" and isinstance(scope, FUNCTIONS):
                answers.append(self._parameter(scope, name.id, module, depth))
            elif binding.kind == "assign" and binding.value is not None:
                runs = self.condition(binding.node, module, depth, within=scope).truth
                if runs is not False:
                    value = self.of(binding.value, module, depth)
                    sure = runs and _nested(module, binding.node)  # after it nothing before counts
                    answers = [value] if sure else [*answers, value]
            else:
                return self._unknown(name, module)
        if not answers:
            return self._unknown(name, module)
        own = self._unknown(name, module)
        held = one_of(answers, own.note, own.place)
        return replace(
            held,
            place=held.place or own.place,
            environment=held.environment or (not held.known and own.environment),
        )

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
        return (
            self.of(assigned[0].value, module, depth)
            if len(assigned) == 1
            else Value(False, note=f"`{name}`")
        )

    def _parameter(self, function: FunctionNode, name: str, module: Module, depth: int) -> Value:
        """What the callers pass; the default where none is seen."""
        key = (function, name)
        if key not in self._parameters:
            self._parameters[key] = self._default(
                function, name, module, depth
            )  # a circle of calls ends here
            self._parameters[key] = self._passed(function, name, module, depth)
        return self._parameters[key]

    def _passed(self, function: FunctionNode, name: str, module: Module, depth: int) -> Value:
        values: list[Value] = []
        position = position_of(function, name)
        for other, call, shift in callers(self.live, function, module):
            given = {k.arg: k.value for k in call.keywords}
            at = None if position is None else position - shift
            if name in given:
                values.append(self.of(given[name], other, depth))
            elif (through := self._passed_through(name, other, call, depth)) is not None:
                values.append(through)
            elif any(isinstance(a, ast.Starred) for a in call.args):
                values.append(
                    Value(False, note=f"`*` at {self.place(other, call)}", place=self.place(other, call))
                )
            elif at is not None and 0 <= at < len(call.args):
                values.append(self.of(call.args[at], other, depth))
            elif None in given:
                passed = self._unpacked(name, given[None], other, call, depth)
                own = self._default(function, name, module, depth)
                values.append(own if own.known and passed.note.startswith(_OF_LIBRARY) else passed)
            else:
                values.append(self._default(function, name, module, depth))
        if not values:
            return self._default(function, name, module, depth)
        return one_of(values, f"the calls of `{function.name}` differ", self.place(module, function))

    def _passed_through(self, name: str, module: Module, call: ast.Call, depth: int) -> Value | None:
        """`def __init__(self, *args, **kwargs): super().__init__(*args, **kwargs)`: what the calls of the former give by name."""
        held = next((k.value for k in call.keywords if k.arg is None), None)
        return None if held is None else self._of_rest(name, held, module, depth)

    def _unpacked(self, name: str, held: ast.expr, module: Module, call: ast.Call, depth: int) -> Value:
        """`f(**options)`: the option of this name."""
        found = self._option(name, held, module, depth)
        place = self.place(module, call)
        return found if found.known or found.choices else Value(False, note=f"`**` at {place}", place=place)

    def _default(self, function: FunctionNode, name: str, module: Module, depth: int) -> Value:
        positional = [*function.args.posonlyargs, *function.args.args]
        defaults = dict(
            zip([a.arg for a in reversed(positional)], reversed(function.args.defaults), strict=False)
        )
        defaults |= {
            a.arg: d
            for a, d in zip(function.args.kwonlyargs, function.args.kw_defaults, strict=True)
            if d is not None
        }
        if name not in defaults:
            if function.decorator_list and self._options.of(name):  # click and its like fill the parameter
                return self._option(name, ast.Name(name), module, depth)
            return Value(
                False, note=f"the parameter `{name}` of `{function.name}`", place=self.place(module, function)
            )
        value = self.of(defaults[name], module, depth)
        return (
            replace(value, note=value.note or f"default of `{name}` of `{function.name}`")
            if value.known
            else value
        )

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
        if not re.search(r"device", ast.unparse(device), re.I):
            return None
        held = self.of(device, module, depth)
        if not held.known or not isinstance(held.value, str):
            return None
        return replace(held, value=held.value.partition(":")[0])

    def _self_attribute(self, expr: ast.Attribute, module: Module, depth: int) -> Value:
        held = self.held(expr, module)
        if held is not None:
            if _changes(*held, expr.attr):
                return self._unknown(expr, module)
            later = self._set_from_outside(expr, depth)
            return later if later is not None else self.of(held[1], held[0], depth)
        return self._option(expr.attr, expr, module, depth)

    def _set_from_outside(self, expr: ast.Attribute, depth: int) -> Value | None:
        """`for layer in layers: layer.flag = flag`: what such an assignment gives `self.flag`, where one class alone has it."""
        owners: set[ast.ClassDef | None] = set()
        given: list[tuple[Module, ast.expr]] = []
        for module in self.live.read.values():
            for node in module.file.index.attributes_named(expr.attr):
                assign = module.file.index.parent(node)
                if not isinstance(assign, ast.Assign) or node not in assign.targets:
                    continue
                if is_self(node):
                    owners.add(module.file.index.class_of(node))
                elif (
                    isinstance(node.value, ast.Name)
                    and _is_item(module, node.value)
                    and self.live.runs(module, node)
                    and self.runs(node, module).truth is True
                ):
                    given.append((module, assign.value))
        if len(owners) != 1 or len(given) != 1:
            return None
        return self.of(given[0][1], given[0][0], depth)

    def held(self, expr: ast.Attribute, module: Module) -> tuple[Module, ast.expr] | None:
        """What `self.name` is given in its class or in one that it derives from."""
        for holder, owner in lineage(self.live, module, module.file.index.class_of(expr)):
            value = holder.file.bindings.attribute(owner, expr.attr)
            if value is not None:
                return holder, value
        return None

    def arguments(
        self, function: FunctionNode, name: str, module: Module
    ) -> Iterator[tuple[Module, ast.expr]]:
        """What the calls of a function pass as one of its parameters."""
        position = position_of(function, name)
        for other, call, shift in callers(self.live, function, module):
            at = None if position is None else position - shift
            given = next((k.value for k in call.keywords if k.arg == name), None)
            if given is None and at is not None and 0 <= at < len(call.args):
                given = call.args[at]
            if given is not None:
                yield other, given

    def configured_entry(self, table: ast.expr, name: str, module: Module, absent: Value) -> Value | None:
        """The value under a key of a part of the configuration."""
        keys = keys_of(ast.Attribute(table, name), name)
        if len(keys) > 1 and self._configured is not None:
            settings = self._configured.under(keys)
            if settings is not None:
                return agreed(settings) or absent
        found = self._option(name, table, module, 0)
        return found if found.known or found.choices else None

    def _option(self, name: str, expr: ast.expr, module: Module, depth: int) -> Value:
        options = self._options.of(name)
        options = [option for option in options if option.default is not None] or options
        filed = self._in_files_of_arguments(name)
        if filed is not None:
            return filed
        if not options:
            settings = [] if self._configured is None else self._configured.of(keys_of(expr, name))
            if not settings and name in TRANSFORMERS and "transformers" in self.live.packages():
                note = f"{_OF_LIBRARY} for `{name}`"
                return Value(True, TRANSFORMERS[name], note, self.place(module, expr))
            return agreed(settings) or self._unknown(expr, module)
        here = [option for option in options if option.path == self.live.start.path]
        assigned = options[0].kind == "assigned"
        answers = [self._of_option(option, depth) for option in (options if assigned else here or options)]
        place = answers[0].place
        first = one_of(answers, f"several defaults of {options[0].shown}", place)
        if self._commands is not None and not assigned:
            first = self._commands.of((here or options)[0], first, keys_of(expr, name)) or first
        unset = not first.known and all(option.default is None for option in here or options)
        if unset or (first.known and first.value is None and first.note.startswith("default of")):
            first = self._filled(name, expr) or first
        if assigned and first.known and not any(self._assignment_guard(o, depth).truth for o in options):
            return Value(False, note=f"{options[0].shown} is set at {place}", place=place)
        if not first.known:
            return first
        changes = [
            (c, self.of(c.default, self.live.read[c.path], depth)) for c in self._options.changed(name)
        ]
        # By default, and in one process, the others are not reached.
        reached = [(c, after) for c, after in changes if self._is_changed(c, after, depth)]
        different = [(c, after) for c, after in reached if not after.known or after.value != first.value]
        if not different:
            return first
        change, after = different[0]
        at = Place(change.path, self.live.read[change.path].file.head_line(change.line))
        note = after.note or f"{change.shown} is set at {at}"
        if after.known and len(reached) == 1:
            return replace(after, note=note, place=after.place or at)
        return Value(False, note=f"{change.shown} is set at {at}", place=at, environment=after.environment)

    def _filled(self, name: str, expr: ast.expr) -> Value | None:
        """What the configurations say of an option that has to be given."""
        settings = [] if self._configured is None else self._configured.of(keys_of(expr, name))
        return agreed(settings)

    def _is_changed(self, change: Option, after: Value, depth: int) -> bool:
        """Does the assignment run: by its conditions, or because `if given("amp"): config.AMP = args.amp` asks for what is given?"""
        guard = self._assignment_guard(change, depth)
        value = change.default
        if (
            guard.truth is not None
            or not isinstance(value, ast.Attribute)
            or not (after.known and after.value)
        ):
            return guard.truth is True
        return f"'{value.attr}'" in guard.note or f".{value.attr}" in guard.note

    def _in_files_of_arguments(self, name: str) -> Value | None:
        """What all files of arguments say, which a parser of transformers reads; None where not all say it."""
        if self._configured is None or "transformers" not in self.live.packages():
            return None
        settings, number = self._configured.of_trainer(name)
        return agreed(settings) if number and len(settings) == number else None

    def _of_option(self, option: Option, depth: int) -> Value:
        module = self.live.read[option.path]
        place = Place(option.path, module.file.head_line(option.line))
        given = self._given_to_class(option, depth)
        if given is not None:
            return given
        if option.default is None:
            return Value(False, note=f"{option.shown} has no default", place=place)
        value = self.of(option.default, module, depth)
        if not value.known:
            return replace(value, note=value.note or option.shown, place=place)
        origin = f"default of {option.shown}" if option.kind == "default" else f"{option.shown}"
        return Value(True, value.value, origin, place)

    def _given_to_class(self, option: Option, depth: int) -> Value | None:
        """`TrainConfig(workers=2)`: what all calls of the class give its field; None where one of them gives nothing."""
        cls = _FIELD_OF.search(option.shown)
        calls = self._calls_by_name.get(cls[1], []) if cls is not None else []
        found = [
            (module, next((k.value for k in call.keywords if k.arg == option.name), None))
            for module, call in calls
        ]
        values = [self.of(given, module, depth) for module, given in found if given is not None]
        if not values or len(values) < len(found) or not all(value.known for value in values):
            return None
        held = one_of(values, f"`{option.name}`", values[0].place)
        return replace(held, note=held.note or f"`{option.name}` at {held.place}") if held.known else None

    @cached_property
    def _calls_by_name(self) -> dict[str, list[tuple[Module, ast.Call]]]:
        table: defaultdict[str, list[tuple[Module, ast.Call]]] = defaultdict(list)
        for module, call in self.live.calls:
            table[dotted_name(call.func).rpartition(".")[2]].append((module, call))
        return table

    def _assignment_guard(self, change: Option, depth: int) -> Value:
        """Whether an assignment to an option runs."""
        module = self.live.read[change.path]
        for assign in module.file.index.of_type(ast.Assign):
            if assign.lineno == change.line:
                if not self.live.runs(module, assign):
                    return Value(True, False)
                return self.condition(assign, module, depth)
        return Value(False, note=change.shown)

    def _unknown(self, expr: ast.AST, module: Module) -> Value:
        text = " ".join(ast.unparse(expr).split())
        short = text if len(text) <= LONGEST else f"{text[:LONGEST]}…"
        return Value(
            False, note=f"`{short}`".replace("``", "`"), place=self.place(module, expr),
            environment=bool(ENVIRONMENT.search(text)),
        )  # fmt: skip

    def option(self, name: str) -> Value | None:
        """The default of an option; None where there is none of this name."""
        return self._option(name, ast.Name(name), self.live.start, 0) if self._options.of(name) else None

    def field_beside(self, name: str, ending: str, wanted: str) -> Value | None:
        """The default of a field of the class whose field `name` ends in a text."""
        found = self._options.beside(name, ending, wanted)
        return None if found is None else self._of_option(found, 0)

    def option_names(self) -> list[str]:
        return self._options.names()


def _changes(module: Module, first: ast.expr, name: str) -> bool:
    """Is `self.name` a counter, or nothing until a method gives it something?"""
    if not isinstance(first, ast.Constant):
        return False
    cls = module.file.index.class_of(first)
    if first.value is None:
        return any(
            isinstance(assign := module.file.index.parent(node), ast.Assign)
            and node in assign.targets
            and assign.value is not first
            and module.file.index.class_of(node) is cls
            for node in module.file.index.attributes_named(name)
        )
    return isinstance(first.value, int) and any(
        isinstance(each.target, ast.Attribute)
        and each.target.attr == name
        and module.file.index.class_of(each) is cls
        for each in module.file.index.of_type(ast.AugAssign)
    )


def _is_item(module: Module, name: ast.Name) -> bool:
    """Is it one of the things that a loop goes through?"""
    binding = module.file.bindings.last_before(name)
    return binding is not None and isinstance(binding.node, ast.For)


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
    if not kind.startswith(("cuda", "cpu")) or "device" not in ast.unparse(expr):
        return None
    if isinstance(expr.ops[0], (ast.Eq, ast.In)):
        return kind.startswith("cuda")
    return not kind.startswith("cuda") if isinstance(expr.ops[0], (ast.NotEq, ast.NotIn)) else None
