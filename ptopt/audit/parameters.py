"""What the calls of a function give its parameters."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from dataclasses import replace

from ptopt.audit.calling import callers, partials, passes_its_own
from ptopt.audit.commands import Commands
from ptopt.audit.configured import Configured
from ptopt.audit.known import CALLS_DIFFER, Value, agreed, default_of, one_of, position_of
from ptopt.audit.live import Live
from ptopt.audit.modules import Module, dotted_name, text_of
from ptopt.audit.offered import is_offered
from ptopt.audit.options import Option, Options
from ptopt.audit.optionvalues import OF_LIBRARY, OptionValues
from ptopt.source.calls import last_name
from ptopt.source.index import FUNCTIONS, FunctionNode

_READS_FILES = frozenset({"load", "safe_load", "full_load", "fromfile"})


class Parameters(OptionValues):
    """Of the functions that one entry point runs."""

    def __init__(
        self, live: Live, options: Options, configured: Configured | None = None, commands: Commands | None = None
    ) -> None:  # fmt: skip
        super().__init__(live, options, configured, commands)
        self._parameters: dict[tuple[FunctionNode, str], Value] = {}

    def _parameter(self, function: FunctionNode, name: str, module: Module, depth: int) -> Value:
        """What the callers pass; the default where none is seen."""
        key = (function, name)
        if key in self._parameters:
            self._cuts += key in self._open
        else:
            self._open.add(key)
            self._parameters[key] = self._default(
                function, name, module, depth
            )  # a circle of calls ends here
            self._parameters[key] = self._passed(function, name, module, depth, self._parameters[key])
            self._open.discard(key)
        return self._parameters[key]

    def of_calls(
        self, function: FunctionNode, name: str, module: Module, counts: Callable[[Module, ast.Call], bool]
    ) -> Value:
        """What those calls of the function that count give a parameter; its default where none does."""
        default = self._default(function, name, module, 0)
        return self._passed(function, name, module, 0, default, counts)

    def _passed(
        self, function: FunctionNode, name: str, module: Module, depth: int, default: Value,
        counts: Callable[[Module, ast.Call], bool] = lambda module, call: True,
    ) -> Value:  # fmt: skip
        values: list[Value] = []
        handed: list[tuple[ast.expr, Module]] = []  # by parts of the same name, which say nothing new
        position = position_of(function, name)
        for other, call, shift in callers(self.live, function, module):
            if not counts(other, call):
                continue
            given = {k.arg: k.value for k in call.keywords}
            at = None if position is None else position - shift
            stated = given.get(name)
            if stated is None and at is not None and 0 <= at < len(call.args):
                stated = None if any(isinstance(a, ast.Starred) for a in call.args) else call.args[at]
            if stated is not None:
                if passes_its_own(other, call, stated, function):
                    handed.append((stated, other))
                else:
                    values.append(self.of(stated, other, depth))
            elif (through := self._passed_through(name, other, call, depth)) is not None:
                values.append(through)
            elif any(isinstance(a, ast.Starred) for a in call.args):
                values.append(
                    Value(False, note=f"`*` at {self.place(other, call)}", place=self.place(other, call))
                )
            elif None in given:
                passed = self._unpacked(name, given[None], other, call, depth)
                absent = passed.note.startswith(OF_LIBRARY) or (
                    not (passed.known or passed.choices) and self._is_in_no_file(name, given[None], other)
                )
                values.append(default if default.known and absent else passed)
            else:
                values.append(default)
        values = values or [self.of(expr, other, depth) for expr, other in handed]
        for other, call, shift in partials(self.live, function, module):
            bound = {k.arg: k.value for k in call.keywords}.get(name)
            at = 0 if position is None else position - shift
            if bound is None and 0 < at < len(call.args):
                bound = call.args[at]
            if bound is not None:
                values.append(self.of(bound, other, depth))
        if not values:
            return self._by_target(function, name, module) or default
        return one_of(values, f"{CALLS_DIFFER}`{function.name}` differ", self.place(module, function))

    def _by_target(self, function: FunctionNode, name: str, module: Module) -> Value | None:
        """`_target_: package.Data`, `num_workers: 2`: what configurations give the class whose `__init__` no code calls."""
        cls = module.file.index.class_of(function)
        if function.name != "__init__" or cls is None or self._configured is None:
            return None
        return agreed(self._configured.given_to(cls.name, name))

    def _passed_through(self, name: str, module: Module, call: ast.Call, depth: int) -> Value | None:
        """`def __init__(self, *args, **kwargs): super().__init__(*args, **kwargs)`: what the calls of the former give by name."""
        held = next((k.value for k in call.keywords if k.arg is None), None)
        return None if held is None else self._of_rest(name, held, module, depth)

    def _unpacked(self, name: str, held: ast.expr, module: Module, call: ast.Call, depth: int) -> Value:
        """`f(**options)`: the option of this name."""
        found = self._option(name, held, module, depth)
        place = self.place(module, call)
        return found if found.known or found.choices else Value(False, note=f"`**` at {place}", place=place)

    def _is_in_no_file(self, name: str, held: ast.expr, module: Module) -> bool:
        """`config = OmegaConf.load(path); main(**config)`: has none of the configurations near the script the key?"""
        made = module.file.bindings.assigned(held)
        if (
            not isinstance(made, ast.Call)
            or last_name(made.func) not in _READS_FILES
            or self._configured is None
        ):
            return False
        return bool(self._configured.near()) and not self._configured.of((name,))

    def _default(self, function: FunctionNode, name: str, module: Module, depth: int) -> Value:
        default = default_of(function, name)
        if (option := self._offered_as(function, name, default, module)) is not None:
            held = self._of_option(option, depth)
            return (self._commands and self._commands.of(option, held, (name,))) or held
        if default is None:
            if function.decorator_list and self._options.of(name):  # click and its like fill the parameter
                return self._option(name, ast.Name(name), module, depth)
            return Value(
                False, note=f"the parameter `{name}` of `{function.name}`", place=self.place(module, function)
            )
        value = self.of(default, module, depth)
        return (
            replace(value, note=value.note or f"default of `{name}` of `{function.name}`")
            if value.known
            else value
        )

    @staticmethod
    def _offered_as(
        function: FunctionNode, name: str, default: ast.expr | None, module: Module
    ) -> Option | None:
        """`--workers` of `def train(workers: int = 4)` below `@app.command()`: the signature declares the options."""
        if default is None or not is_offered(module, function):
            return None
        if isinstance(default, ast.Call) and last_name(default.func) in ("Option", "Argument"):
            if not default.args:
                return None
            default = default.args[0]  # of typer
        parameters = [*function.args.posonlyargs, *function.args.args, *function.args.kwonlyargs]
        parameter = next(each for each in parameters if each.arg == name)
        kind = text_of(parameter.annotation) if parameter.annotation is not None else ""
        return Option(name, f"`--{name}`", default, module.path, parameter.lineno, "default", type=kind)

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
        given += [
            self.of(value, holder, depth)
            for other, site, _ in callers(self.live, function, module)
            for keyword in site.keywords
            if keyword.arg is None
            for holder, value in self._returned(name, keyword.value, other)
        ]
        return one_of(given, f"`{name}`", given[0].place) if given else None

    def _returned(self, name: str, spread: ast.expr, module: Module) -> Iterator[tuple[Module, ast.expr]]:
        """What the dictionaries that a function returns have under a key: of `Net(**arguments_of(args))`."""
        called = dotted_name(spread.func) if isinstance(spread, ast.Call) else ""
        resolved = self.live.modules.resolve(module, called) if called else None
        if resolved is None or not isinstance(resolved[1], FUNCTIONS):
            return
        for node in ast.walk(resolved[1]):
            if isinstance(node, ast.Return) and isinstance(node.value, ast.Dict):
                for key, value in zip(node.value.keys, node.value.values, strict=True):
                    if isinstance(key, ast.Constant) and key.value == name:
                        yield resolved[0], value
