"""What the options of one entry point hold: their defaults, what changes them, what commands and configurations say."""

from __future__ import annotations

import ast
import re
from collections.abc import Sequence
from dataclasses import replace

from ptopt.audit.commands import Commands
from ptopt.audit.conditions import LONGEST, Conditions, of_environment
from ptopt.audit.configured import Configured, Setting
from ptopt.audit.known import TRANSFORMERS, Value, agreed, keys_of, one_of
from ptopt.audit.live import Live
from ptopt.audit.modules import Module, dotted_name, text_of
from ptopt.audit.options import Option, Options, holder_of
from ptopt.audit.receivers import Receivers
from ptopt.audit.values import Place

_PARSERS = ("HfArgumentParser", "TrlParser")
OF_LIBRARY = "default of transformers"
_FIELD_OF = re.compile(r" of `([A-Z]\w*)`$")
# The workers of one process: `int((args.workers + n - 1) / n)`, `math.ceil(p["num_workers"] / n)`.
_SHARES = (
    re.compile(r"(int\()?\(\S*?(?P<name>\w*workers)['\"\]]* \+ (?P<by>[\w.]+(\(\))?) - 1\) //? (?P=by)\)?$"),
    re.compile(r"(int\()?(\w+\.)?ceil\(\S*?(?P<name>\w*workers)['\"\]]* / (?P<by>[\w.]+(\(\))?)\)\)?$"),
)


def _place(module: Module, node: ast.AST) -> Place:
    line = getattr(node, "lineno", 1)
    return Place(module.path, module.file.head_line(line))


def _as_written(module: Module, expr: ast.AST) -> Value:
    """What is not known, with its code."""
    text = " ".join(text_of(expr).split())
    short = text if len(text) <= LONGEST else f"{text[:LONGEST]}…"
    return Value(
        False, note=f"`{short}`".replace("``", "`"), place=_place(module, expr), environment=of_environment(text)
    )  # fmt: skip


def _path_to(expr: ast.expr, name: str) -> tuple[str, ...]:
    """("config", "data", "wrap") of `self.config.data.wrap`, and of `config.data.get("wrap")`."""
    holder = expr.func if isinstance(expr, ast.Call) else expr
    names = dotted_name(holder.value) if isinstance(holder, (ast.Attribute, ast.Subscript)) else ""
    return (*names.removeprefix("self.").split("."), name)


def _shared_by(changed: Option) -> str:
    """`n` of `workers = int((args.workers + n - 1) / n)`, which is never less than 1; "" of other assignments."""
    text = "" if changed.default is None else text_of(changed.default)
    found = next((match for share in _SHARES if (match := share.match(text))), None)
    return found["by"] if found is not None and found["name"] == changed.name else ""


class OptionValues(Conditions):
    """Of one entry point. What other expressions come to, a subclass knows."""

    def __init__(
        self, live: Live, options: Options, configured: Configured | None = None, commands: Commands | None = None
    ) -> None:  # fmt: skip
        super().__init__(live)
        self._configured = configured
        self._commands = commands
        self._options = options
        self._receivers = Receivers(live)

    def place(self, module: Module, node: ast.AST) -> Place:
        return _place(module, node)

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
            settings = self._settings(expr, name)
            if not settings and name in TRANSFORMERS and "transformers" in self.live.packages():
                note = f"{OF_LIBRARY} for `{name}`"
                default = Value(True, TRANSFORMERS[name], note, self.place(module, expr))
                return self._typed(name, default, module) or default
            filed = self._of_run(keys_of(expr, name)) or agreed(settings) or self._part(expr, name, module)
            if filed is None and (held := self._written_before(expr, name, module, depth)) is not None:
                return held
            if filed is None:
                unknown = self._unknown(expr, module)
                return self._typed(name, unknown, module) or unknown
            if self._options.of_any_key and self._commands is not None:
                taken = Option(name, f"`--{name}`", None, module.path, 0, "default")
                filed = self._commands.of(taken, filed, keys_of(expr, name)) or filed
            return self._changed(filed, self._options.written(holder_of(expr), name), depth)
        fields, stores = self._receivers.fields(options, expr, module)
        options = fields or options
        here = [option for option in options if option.path == self.live.start.path]
        assigned = options[0].kind == "assigned"
        answers = [self._of_option(option, depth) for option in (options if assigned else here or options)]
        place = answers[0].place
        first = one_of(answers, f"several defaults of {options[0].shown}", place)
        if self._commands is not None and not assigned:
            first = self._commands.of((here or options)[0], first, keys_of(expr, name)) or first
        first = replace(first, option=options[0].shown)
        unset = not first.known and all(option.default is None for option in here or options)
        if unset or (first.known and first.value is None and first.note.startswith("default of")):
            first = self._filled(name, expr) or first
        if assigned and first.known and not any(self._assignment_guard(o, depth).truth for o in options):
            return Value(False, note=f"{options[0].shown} is set at {place}", place=place)
        if not first.known:
            return (self._written_before(expr, name, module, depth) if assigned else None) or first
        return self._changed(first, stores if fields else self._options.changed(name, holder_of(expr)), depth)

    def _changed(self, first: Value, assigned: Sequence[Option], depth: int) -> Value:
        """The value after the assignments that the script makes to it."""
        if type(first.value) is int and first.value > 0:
            for change in [each for each in assigned if _shared_by(each)]:
                assigned = [each for each in assigned if each is not change]
                if self._assignment_guard(change, depth).truth:
                    note = f"{first.note}, divided by `{_shared_by(change)}` and rounded up"
                    first = replace(first, note=note.removeprefix(", "))
        changes = [(c, self.of(c.default, self.live.read[c.path], depth)) for c in assigned]
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

    def _written_before(self, expr: ast.expr, name: str, module: Module, depth: int) -> Value | None:
        """What the one assignment that runs gives, of `if args.cpu: args.pin = False else: args.pin = True` before the use in the same
        function; None where others may.
        """
        index = module.file.index
        reached: list[tuple[Option, Value]] = []
        for each in self._options.written(holder_of(expr), name):
            is_before = each.path == module.path and each.line < getattr(expr, "lineno", 0)
            if (
                not is_before
                or each.default is None
                or index.function_of(each.default) is not index.function_of(expr)
            ):
                return None
            guard = self._assignment_guard(each, depth)
            if guard.truth is not False:
                reached.append((each, guard))
        if len(reached) != 1 or not reached[0][1].truth:
            return None
        value = self.of(reached[0][0].default, module, depth)
        return replace(value, note=value.note or reached[0][1].note) if value.known else None

    def _filled(self, name: str, expr: ast.expr) -> Value | None:
        """What the configurations say of an option that has to be given."""
        settings = [] if self._configured is None else self._configured.of(keys_of(expr, name))
        return self._of_run(keys_of(expr, name)) or agreed(settings)

    def _of_run(self, keys: tuple[str, ...]) -> Value | None:
        """What the configuration of the run says, where commands or a default name its file and Hydra does not compose it."""
        if self._commands is None or self._configured is None or self._configured.is_composed:
            return None
        return self._commands.filed(keys)

    def _settings(self, expr: ast.expr, name: str) -> list[Setting]:
        if self._configured is None:
            return []
        return self._configured.exactly(_path_to(expr, name)) or self._configured.of(keys_of(expr, name))

    def _part(self, expr: ast.expr, name: str, module: Module) -> Value | None:
        """The keys of a part of the composed configuration, for `if config.get("wandb")`; None where it has no such part."""
        keys = () if self._configured is None else self._configured.keys_below(_path_to(expr, name))
        return Value(True, keys, "", self.place(module, expr)) if keys else None

    def _typed(self, name: str, default: Value, module: Module) -> Value | None:
        """What commands give a field of a class of a package, which a parser of transformers or TRL fills; None where none gives it."""
        if self._commands is None or not any(self.live.calls_spelled(parser) for parser in _PARSERS):
            return None
        option = Option(name, f"`--{name}`", None, module.path, 1, "typed")
        return self._commands.of(option, default, (name,))

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
        calls = self.live.calls_named(cls[1]) if cls is not None else []
        found = [
            (module, next((k.value for k in call.keywords if k.arg == option.name), None))
            for module, call in calls
        ]
        values = [self.of(given, module, depth) for module, given in found if given is not None]
        if not values or len(values) < len(found) or not all(value.known for value in values):
            return None
        held = one_of(values, f"`{option.name}`", values[0].place)
        return replace(held, note=held.note or f"`{option.name}` at {held.place}") if held.known else None

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
        return module.once(_as_written, expr)

    def option(self, name: str) -> Value | None:
        """The default of an option; None where there is none of this name."""
        return self._option(name, ast.Name(name), self.live.start, 0) if self._options.of(name) else None

    def field_beside(self, name: str, ending: str, wanted: str) -> Value | None:
        """The default of a field of the class whose field `name` ends in a text."""
        found = self._options.beside(name, ending, wanted)
        return None if found is None else self._of_option(found, 0)

    def option_names(self) -> list[str]:
        return self._options.names()
