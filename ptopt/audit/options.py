"""The options of a training script and their defaults: argparse, click, absl, fields of dataclasses, yacs nodes, constants."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from dataclasses import dataclass, replace

from ptopt.audit.live import Live
from ptopt.audit.modules import dotted_name, text_of
from ptopt.audit.summaries import main_block
from ptopt.source.file import SourceFile

_CLASS = re.compile(r"(Config|Args|Arguments|Options|Opts|Params|Parameters|Settings|Hparams|HParams|Cfg)$")
_NODE = re.compile(r"^(_?C|_?cfg|_?config|conf|args|opts?|hparams|params|flags)$", re.I)
_TABLE = re.compile(r"(cfg|conf(ig)?|opts?|options|args|params|hparams|defaults|settings)$", re.I)
_MAKES_TABLE = re.compile(
    r"default|get_?(config|cfg|args|params|hparams|options)|(config|hparams|options|args)$", re.I
)
_OF_TABLE = re.compile(r"`\w+` of `([a-z_]\w*)`")
_BOOLEAN = re.compile(r"bool", re.I)
_SHORT = re.compile(r"-[A-Za-z]$")
_ABSL = re.compile(r"^DEFINE_(bool|boolean|integer|float|string|enum|list|alias)$")


@dataclass(frozen=True, slots=True)
class Option:
    """One place that says what an option holds. `default` None: it has to be given."""

    name: str
    shown: str  # "`--amp`", "`amp` of `TrainConfig`"
    default: ast.expr | None
    path: str
    line: int
    kind: (
        str  # "default" | "assigned" | "stated" (`set_defaults`) | "typed" (a field of a class of a package)
    )
    alone: object = True  # what it holds where a command gives it without a value
    type: str = ""  # of a parser: "int", "str2bool"
    takes: bool = True  # a value, on a command line
    short: str = ""  # `c` of `-c`, "--config"


class Options:
    """By name: the defaults, and the assignments that change them. `of_any_key`: a parser takes each key of a configuration, too."""

    def __init__(self, live: Live) -> None:
        self._defaults: defaultdict[str, list[Option]] = defaultdict(list)
        self._assigned: defaultdict[str, list[Option]] = defaultdict(list)
        self._written: defaultdict[tuple[str, str], list[Option]] = defaultdict(list)
        stated: defaultdict[str, list[Option]] = defaultdict(list)
        self.of_any_key = any(module.file.once(_adds_any_key) for module in live.read.values())
        tables = {"default": self._defaults, "assigned": self._assigned, "stated": stated}
        for module in live.read.values():
            own = main_block(module.file.tree) if module is not live.start else None
            for option in module.file.once(_of_file):
                aside = own is not None and own.lineno <= option.line <= (own.end_lineno or own.lineno)
                if not aside and not _passes_on(option):
                    given = _as_flag(option) if self.of_any_key else option
                    tables[option.kind][option.name].append(given)
            for holder, option in module.file.once(_writes):
                if not _passes_on(option):
                    self._written[holder, option.name].append(option)
        for name, options in stated.items():
            if name in self._defaults:  # `set_defaults` goes before `add_argument`
                self._defaults[name] = [_restated(option, self._defaults[name]) for option in options]

    def of(self, name: str) -> list[Option]:
        """The defaults of an option; where it has none, the assignments to it."""
        return self._defaults.get(name) or self._assigned.get(name, [])

    def beside(self, name: str, ending: str, wanted: str) -> Option | None:
        """The field `wanted` of the class whose field `name` ends in a text: `_target_: str = "...Trainer"`"""
        for option in self._defaults.get(name, []):
            if isinstance(option.default, ast.Constant) and str(option.default.value).endswith(ending):
                holder = option.shown.rpartition(" of ")[2]
                found = [o for o in self._defaults.get(wanted, []) if o.shown.endswith(f" of {holder}")]
                if found:
                    return found[0]
        return None

    def names(self) -> list[str]:
        """Those that have a default."""
        return list(self._defaults)

    def long_names(self, path: str) -> dict[str, str]:
        """What the options of one letter that a file has stand for: `c` -> `config`."""
        every = [option for options in self._defaults.values() for option in options if option.path == path]
        return {option.short: option.shown.strip("`-").replace("-", "_") for option in every if option.short}

    def changed(self, name: str, holder: str) -> list[Option]:
        """The assignments to an option that has a default: to what options are mostly called, or to the holder."""
        if name not in self._defaults:
            return []
        known = self._assigned.get(name, [])
        lines = {(option.path, option.line) for option in known}
        return [*known, *(o for o in self.written(holder, name) if (o.path, o.line) not in lines)]

    def written(self, holder: str, name: str) -> list[Option]:
        """The assignments `holder.name = …` and `holder["name"] = …`, whatever the holder is called."""
        return self._written.get((holder, name), [])


def _restated(stated: Option, arguments: list[Option]) -> Option:
    """The argument with the default that `set_defaults` states for it: a command still gives it as the argument."""
    flags = [option for option in arguments if option.shown.startswith("`-")]
    first = next((o for o in flags if o.shown.strip("`-").replace("-", "_") == stated.name), None)
    argument = first or next(iter(flags), stated)
    return replace(argument, default=stated.default, path=stated.path, line=stated.line, kind="default")


def _passes_on(option: Option) -> bool:
    """`{"workers": args.workers}` says nothing new of `workers`."""
    value = option.default
    if isinstance(value, ast.Attribute):
        return value.attr == option.name
    if isinstance(value, ast.Subscript) and isinstance(value.slice, ast.Constant):
        return value.slice.value == option.name
    return isinstance(value, ast.Name) and value.id == option.name


def _of_file(file: SourceFile) -> list[Option]:
    return [*_parsers(file), *_fields(file), *_nodes(file), *_tables(file)]


def _parsers(file: SourceFile) -> list[Option]:
    found: list[Option] = []
    for call in file.index.of_type(ast.Call):
        name = call.func.attr if isinstance(call.func, ast.Attribute) else dotted_name(call.func)
        if name == "add_argument" or name == "option":
            option = _argument(call, file, click=name == "option")
        elif name == "set_defaults":
            found += [
                Option(k.arg, f"`{k.arg}` of `set_defaults`", k.value, file.path, call.lineno, "stated")
                for k in call.keywords
                if k.arg
            ]
            continue
        elif _ABSL.match(name):
            option = _flag(call, file)
        else:
            continue
        if option is not None:
            found.append(option)
    return found


def _adds_any_key(file: SourceFile) -> bool:
    """`for key, value in config.items(): parser.add_argument(f"--{key}", default=value)`"""
    return any(
        isinstance(call.func, ast.Attribute)
        and call.func.attr == "add_argument"
        and bool(call.args)
        and text_of(call.args[0]).startswith(("f'--{", "'--' +"))
        for call in file.index.of_type(ast.Call)
    )


def _as_flag(option: Option) -> Option:
    """`batch_size` of `defaults` as `--batch_size`."""
    table = _OF_TABLE.fullmatch(option.shown)
    named = table is not None and (_TABLE.search(table[1]) or _MAKES_TABLE.search(table[1]))
    return replace(option, shown=f"`--{option.name}`") if named else option


def _argument(call: ast.Call, file: SourceFile, click: bool) -> Option | None:
    flags = [a.value for a in call.args if isinstance(a, ast.Constant) and isinstance(a.value, str)]
    given = {k.arg: k.value for k in call.keywords if k.arg}
    long = next((f for f in flags if f.startswith("--")), flags[0] if flags else None)
    if long is None:
        return None
    dest = given.get("dest")
    name = (
        dest.value
        if isinstance(dest, ast.Constant) and isinstance(dest.value, str)
        else long.partition("/")[0].lstrip("-").replace("-", "_").rpartition(".")[2]
    )
    action = given.get("action")
    default: ast.expr | None = given.get("default")
    if default is None:
        required = given.get("required")
        if not long.startswith("-") or (isinstance(required, ast.Constant) and required.value):
            default = None
        elif isinstance(action, ast.Constant) and action.value in ("store_true", "store_false"):
            default = ast.Constant(action.value == "store_false")
        else:
            flag = given.get("is_flag")
            default = ast.Constant(False if click and isinstance(flag, ast.Constant) and flag.value else None)
    if (
        isinstance(default, ast.Constant)
        and isinstance(default.value, str)
        and _is_boolean(given.get("type"))
    ):
        default = ast.Constant(default.value.lower() in ("true", "yes", "1", "t", "y", "on"))
    alone = not (isinstance(action, ast.Constant) and action.value == "store_false")
    kind = text_of(given["type"]) if "type" in given else ""
    takes = not (isinstance(action, ast.Constant) and str(action.value).startswith(("store_", "count")))
    short = next((f[1:] for f in flags if f != long and _SHORT.match(f)), "")
    return Option(name, f"`{long}`", default, file.path, call.lineno, "default", alone, kind, takes, short)


def _is_boolean(kind: ast.expr | None) -> bool:
    return kind is not None and bool(_BOOLEAN.search(text_of(kind)))


def _flag(call: ast.Call, file: SourceFile) -> Option | None:
    if len(call.args) < 2 or not isinstance(call.args[0], ast.Constant):
        return None
    name = str(call.args[0].value)
    return Option(name, f"`--{name}`", call.args[1], file.path, call.lineno, "default")


def _fields(file: SourceFile) -> list[Option]:
    found = []
    for cls in file.index.of_type(ast.ClassDef):
        decorated = any("dataclass" in text_of(d) or "struct" in text_of(d) for d in cls.decorator_list)
        if not decorated and not _CLASS.search(cls.name):
            continue
        for statement in cls.body:
            target: ast.expr | None = None
            if isinstance(statement, ast.AnnAssign):
                target = statement.target
            elif isinstance(statement, ast.Assign) and len(statement.targets) == 1:
                target = statement.targets[0]
            if isinstance(target, ast.Name) and isinstance(statement, (ast.AnnAssign, ast.Assign)):
                shown = f"`{target.id}` of `{cls.name}`"
                default = _field_default(statement.value)
                found.append(Option(target.id, shown, default, file.path, statement.lineno, "default"))
    return found


def _field_default(value: ast.expr | None) -> ast.expr | None:
    if isinstance(value, ast.Call) and dotted_name(value.func).rpartition(".")[2].lower() in (
        "field",
        "fields",
    ):
        given = {k.arg: k.value for k in value.keywords}
        return given.get("default") or (value.args[0] if value.args else None)
    return value


def _nodes(file: SourceFile) -> list[Option]:
    """`_C.TRAIN.AMP = False`, `args.distributed = world_size > 1`"""
    found = []
    for assign in file.index.of_type(ast.Assign):
        at_top = file.index.function_of(assign) is None
        for target in assign.targets:
            name = dotted_name(target)
            root, _, rest = name.partition(".")
            if rest and isinstance(target, ast.Attribute) and _NODE.match(root):
                kind = "default" if at_top and root in ("_C", "cfg", "config", "_cfg") else "assigned"
                found.append(Option(target.attr, f"`{name}`", assign.value, file.path, assign.lineno, kind))
    return found


def _writes(file: SourceFile) -> list[tuple[str, Option]]:
    """`h.num_gpus = torch.cuda.device_count()`, `h["num_gpus"] = …`, each with the name of its holder."""
    found = []
    for assign in file.index.of_type(ast.Assign):
        for target in assign.targets:
            name = ""
            if isinstance(target, ast.Attribute):
                name = target.attr
            elif isinstance(target, ast.Subscript) and isinstance(target.slice, ast.Constant):
                name = target.slice.value if isinstance(target.slice.value, str) else ""
            holder = holder_of(target) if name else ""
            if holder not in ("", "self", "cls"):
                shown = f"`{text_of(target)}`"
                found.append(
                    (holder, Option(name, shown, assign.value, file.path, assign.lineno, "assigned"))
                )
    return found


def holder_of(expr: ast.expr) -> str:
    """`h` of `h.num_gpus` and `h["num_gpus"]`, `train` of `cfg.train.amp`; "" where nothing names it."""
    return (
        dotted_name(expr.value).rpartition(".")[2] if isinstance(expr, (ast.Attribute, ast.Subscript)) else ""
    )


def _tables(file: SourceFile) -> list[Option]:
    """`config = {"amp": True, ...}`, `config = dict(amp=True)`, those inside them, and what `def defaults()` returns."""
    found: list[Option] = []
    for assign in file.index.of_type(ast.Assign):
        target = assign.targets[0]
        if isinstance(target, ast.Name) and (_TABLE.search(target.id) or _in_maker(file, assign)):
            found += _pairs(assign.value, target.id, file)
        else:
            found += _inner(assign.value, file)
    for answer in file.index.of_type(ast.Return):
        function = file.index.function_of(answer)
        if function is not None and answer.value is not None and _MAKES_TABLE.search(function.name):
            found += _pairs(answer.value, function.name, file)
    return found


def _in_maker(file: SourceFile, node: ast.AST) -> bool:
    function = file.index.function_of(node)
    return function is not None and bool(re.search("default", function.name))


def _items(table: ast.expr) -> list[tuple[str, ast.expr]]:
    """The keys and values of a dictionary that stands in the code."""
    if isinstance(table, ast.Dict):
        return [
            (key.value, value)
            for key, value in zip(table.keys, table.values, strict=True)
            if isinstance(key, ast.Constant) and isinstance(key.value, str)
        ]
    if isinstance(table, ast.Call) and dotted_name(table.func).rpartition(".")[2] in ("dict", "ConfigDict"):
        return [(k.arg, k.value) for k in table.keywords if k.arg]
    return []


def _pairs(table: ast.expr, name: str, file: SourceFile) -> list[Option]:
    found = []
    for key, value in _items(table):
        found.append(Option(key, f"`{key}` of `{name}`", value, file.path, value.lineno, "default"))
        found += _pairs(value, key, file)
    return found


def _inner(table: ast.expr, file: SourceFile) -> list[Option]:
    """Tables by a telling name in a table by another: `run = dict(loader_args=dict(workers=4))`"""
    found = []
    for key, value in _items(table):
        found += _pairs(value, key, file) if _TABLE.search(key) else _inner(value, file)
    return found
