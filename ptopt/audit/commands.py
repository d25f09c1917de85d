"""What the commands that start a script give its options, on the command line or by the configuration file that they name."""

from __future__ import annotations

import ast
import re
from dataclasses import replace

from ptopt.audit.configured import Configured, Setting
from ptopt.audit.known import Value, agreed, one_of
from ptopt.audit.launches import Launch
from ptopt.audit.options import Option, Options

_FLAG = re.compile(r"`--?([\w.-]+)")
_FIELD = re.compile(r" of `[A-Z]")
_FILE = re.compile(
    r"^(cfg|conf|config|yaml|hparams|params)(_?(file|path|yaml|yml))?$|^exp(eriment)?(_?file)?$"
)
_MAY_BE_FILE = re.compile(r"^(cfg|conf|config|yaml)_\w+$")  # `--config_env env.yml --config_exp exp.yml`
_BOOLEAN = re.compile(r"bool", re.I)
_TRUE, _FALSE = frozenset({"true", "yes", "y", "t", "on"}), frozenset({"false", "no", "n", "f", "off"})
_PLACEHOLDER = re.compile(r"^[<{\[$]|^\.\.\.$|^(YOUR|your)_|^(X|N|K)+$")


class Commands:
    """The commands of one script; those that only evaluate are left out."""

    def __init__(
        self, launches: tuple[Launch, ...], configured: Configured, options: Options | None = None, script: str = ""
    ) -> None:  # fmt: skip
        """`options`: those of the script, of which one may name the configuration file of a run that names none."""
        names = {} if options is None else options.long_names(script)
        self._launches = [
            replace(launch, options={names.get(name, name): given for name, given in launch.options.items()})
            for launch in launches
            if not launch.evaluates
        ]
        self._configured = configured
        self._default = None if options is None else _default_file(options, script, configured)

    def filed(self, keys: tuple[str, ...]) -> Value | None:
        """What the configuration files of the runs say of a setting; of a command that names none, the file that an option has by default.

        None where no file is known, or none of them says anything.
        """
        shown, default = self._default or ("", None)
        runs = [(launch, default if file is None else file) for launch, file in self._files()] or [
            (None, default)
        ]
        found = [(launch, file, self._set_in(file, keys)) for launch, file in runs]
        values = [value for _, _, value in found if value is not None]
        if not values or len(values) < len(found):
            return None
        first = values[0]
        if not all(v.known and v.value == first.value and type(v.value) is type(first.value) for v in values):
            names = ", ".join(dict.fromkeys(str(v.value) if v.known else "?" for v in values))
            note = f"`{keys[-1]}` differs between {len(values)} commands ({names})"
            return replace(
                one_of(values, note, first.place), known=False, value=None, note=note, differs=True
            )
        if default is None or any(file != default for _, file, _ in found):
            return first
        others = {s.value for s in self._configured.of(keys) if s.place.path != default} - {first.value}
        more = f"; others say {', '.join(sorted(map(str, others))[:3])}" if others else ""
        return replace(first, note=f"{first.note}, the default of {shown}{more}")

    def _set_in(self, file: str | None, keys: tuple[str, ...]) -> Value | None:
        """What a file says of a setting: under these keys, else anywhere in it."""
        if not file:
            return None
        return agreed(
            self._configured.within(file, keys) or self._configured.within(file, keys, anywhere=True)
        )

    def of(self, option: Option, default: Value, keys: tuple[str, ...]) -> Value | None:
        """What the option holds in all commands; not known where they differ; None where none says anything of it.

        `default`: what it holds where a command says nothing. `keys`: the names that lead to it in a configuration.
        """
        name = _name_of(option)
        files = self._files()
        values: list[Value] = []
        stated: Value | None = None
        for launch, file in files or [(None, None)]:
            said = self._given(launch, name, option) if launch is not None else None
            if said is None:
                said = self._filed(keys, file)
            stated = stated or said
            values.append(said or default)
        if stated is None:
            return None
        if all(v.known and v.value == stated.value for v in values):
            return stated
        shown = ", ".join(dict.fromkeys((str(v.value) or "empty") if v.known else "?" for v in values))
        note = f"{option.shown} differs between {len(values)} commands ({shown})"
        if not any(v.known for v in values):
            note = f"{option.shown} is a variable of {stated.place}"
        held = one_of(values, note, stated.place)
        return replace(held, known=False, value=None, note=note, place=stated.place, passed=(), differs=True)

    def _given(self, launch: Launch, name: str, option: Option) -> Value | None:
        if name and f"no_{name}" in launch.options and name not in launch.options:
            place = launch.place_of(f"no_{name}")
            return Value(True, False, f"`--no-{_as_typed(option, name)}` of {place}", place)
        if not name or name not in launch.options:
            return None
        place = launch.place_of(name)
        note = f"`--{_as_typed(option, name)}` of {place}"
        text = launch.options[name]
        found = _parsed(text, option)
        if found is None and isinstance(text, str) and text and not _is_number(option):
            return Value(False, note=note, place=place, choices=(text,))  # a path of the reader: it is given
        return Value(False, note=note, place=place) if found is None else Value(True, found, note, place)

    def _files(self) -> list[tuple[Launch | None, str | None]]:
        """Each command with the configuration file that it names; "" where it names one that is left to the reader.

        An example that names a file says more than a pattern of the same command.
        """
        pairs: list[tuple[Launch | None, str | None]] = []
        for launch in self._launches:
            given = [text for name, text in launch.options.items() if _FILE.match(name)]
            path = next((p for p in (self._configured.path_of(str(text)) for text in given) if p), None)
            if path is None:  # the one of them that holds settings of a training
                maybe = [text for name, text in launch.options.items() if _MAY_BE_FILE.match(name)]
                read = [p for p in (self._configured.path_of(str(text)) for text in maybe) if p]
                path = read[0] if len(read) == 1 else None
            open_ = bool(given) and (given[0] is None or bool(_PLACEHOLDER.match(str(given[0]))))
            pairs.append((launch, path if path is not None else "" if open_ else None))
        return [pair for pair in pairs if pair[1] != ""] if any(file for _, file in pairs) else pairs

    def _filed(self, keys: tuple[str, ...], file: str | None) -> Value | None:
        """What the named file says; where any file of a folder may be meant, what all of them say."""
        if file is None:
            return None
        if file:
            settings: list[Setting] = self._configured.within(file, keys)
            return agreed(settings) if settings else None
        found = self._configured.common(keys)
        value = agreed(found) if found else None
        return value if value is not None and value.known else None


def _as_typed(option: Option, name: str) -> str:
    """The name of an option as a command line has it: `allow-tf32`, where the code reads `allow_tf32`."""
    flag = option.shown.strip("`").removeprefix("--")
    return flag if flag.replace("-", "_") == name else name


def _default_file(options: Options, script: str, configured: Configured) -> tuple[str, str] | None:
    """The option that names a configuration file by default, as it is shown, and the file; None where none does."""
    found: dict[str, str] = {}
    for name in options.names():
        every = options.of(name) if _FILE.match(name) else []
        for option in [each for each in every if each.path == script] or every:
            given = option.default.value if isinstance(option.default, ast.Constant) else None
            path = configured.path_of(given) if isinstance(given, str) else None
            if path is not None:
                found[path] = option.shown
    return next(((shown, path) for path, shown in found.items()), None) if len(found) == 1 else None


def _is_number(option: Option) -> bool:
    default = option.default.value if isinstance(option.default, ast.Constant) else None
    return option.type in ("int", "float") or isinstance(default, (int, float))


def _name_of(option: Option) -> str:
    """The name under which a command gives it; "" where no command can."""
    flag = _FLAG.match(option.shown)
    if flag is not None:
        return flag[1].replace("-", "_")
    return option.name if _FIELD.search(option.shown) else ""


def _parsed(text: str | bool | None, option: Option) -> object:
    """The text of a command line as the type of the option; None where it is a variable or a placeholder."""
    if isinstance(text, bool) or not option.takes:
        return option.alone
    if text is None or _PLACEHOLDER.match(text):
        return None
    default = option.default.value if isinstance(option.default, ast.Constant) else None
    is_field = not option.shown.startswith("`-") or option.kind == "typed"
    lowered = text.lower()
    if _BOOLEAN.search(option.type) or isinstance(default, bool) or is_field:
        if lowered in _TRUE or lowered in _FALSE:
            return lowered in _TRUE
        if (_BOOLEAN.search(option.type) or isinstance(default, bool)) and text in ("0", "1"):
            return text == "1"
    if option.type in ("int", "float") or isinstance(default, (int, float)) or is_field:
        try:
            return int(text) if re.fullmatch(r"-?\d+", text) else float(text)
        except ValueError:
            return text
    return text
