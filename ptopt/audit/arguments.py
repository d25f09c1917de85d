"""What a trainer is given: arguments of transformers, TRL, Lightning, Accelerate; and how much of them the code tells."""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass, replace
from typing import Any

from ptopt.audit.known import TRANSFORMERS, TRANSFORMERS_ADDED, Value, agreed, one_of
from ptopt.audit.launches import Launch
from ptopt.audit.modules import Module, dotted_name, qualified
from ptopt.audit.setup import Setup

_FILLS = frozenset({"HfArgumentParser", "TrlParser", "H4ArgumentParser"})
_ARGUMENTS = re.compile(
    r"(TrainingArguments|SFTConfig|DPOConfig|GRPOConfig|KTOConfig|ORPOConfig|RewardConfig|PPOConfig|CPOConfig)$"
)
# The other classes of TRL that derive from `TrainingArguments`: those of the wheels of 0.7.11, 0.12.2, 0.16.1, 0.19.1, 0.24.0, 0.29.0 and
# 1.16.0. Not its `ModelConfig`, `ScriptArguments`, `DDPOConfig` and the like, so that a name alone does not do.
_OF_TRL = frozenset(
    {"A2POConfig", "AsyncDistillationConfig", "AsyncGRPOConfig", "BCOConfig", "DistillationConfig", "GKDConfig", "GMPOConfig", "GOLDConfig",
     "GRPOWithReplayBufferConfig", "IWOPDConfig", "IterativeSFTConfig", "MiniLLMConfig", "NashMDConfig", "OnlineDPOConfig", "PAPOConfig",
     "PPOv2Config", "PRMConfig", "RLOOConfig", "SDFTConfig", "SDPOConfig", "ServerDistillationConfig", "TPOConfig", "XPOConfig"}
)  # fmt: skip
_READS_FLAGS = (
    "parse_args_into_dataclasses",
    "parse_args_and_config",
    "parse",
)  # not `parse_yaml_file` alone
_FALSE = frozenset({"false", "no", "0", "none", ""})
_TRUE = frozenset({"true", "yes"})

# What `_not_passed` adds to a row
_OF_COMMANDS = re.compile(
    r"; (?:no command that starts the script was found|the one command found that starts it does not pass `--\w+`|"
    r"none of the \d+ commands found that start it passes `--\w+`)"
)
_TRL_CHANGED = frozenset(
    {"bf16", "gradient_checkpointing"}
)  # defaults of TRL's own classes changed between versions
_ONLY_TRL = frozenset({"packing"})


@dataclass(frozen=True, slots=True)
class Source:
    """A call that makes the arguments, or a class of arguments that a parser fills."""

    module: Module
    node: ast.AST
    call: ast.Call | None
    cls: tuple[Module, ast.ClassDef] | None
    name: str


class TrainerArguments:
    """The arguments of a transformers or TRL trainer."""

    def __init__(self, setup: Setup) -> None:
        self._setup = setup

    @property
    def sources(self) -> list[Source]:
        return self._setup.once(_sources)

    @property
    def are_flags(self) -> bool:
        """Does the command line of the script set them all by their names? Where the script makes them itself, a parser of other
        classes may drop their flags without a word.
        """
        filled = bool(self.sources) and all(source.call is None for source in self.sources)
        return filled and bool(self._setup.calls(*_READS_FLAGS))

    def of(self, name: str) -> Value:
        """What the argument is by default, or in the commands of the repository that start the script."""
        values = [self._from(source, name) for source in self.sources]
        if not values:
            return Value(False, note="the training arguments are made where they were not found")
        first = values[0]
        if all(v.known and v.value == first.value for v in values):
            return first
        return next((v for v in values if not v.known), None) or Value(
            False, note=f"`{name}` differs between the calls", place=first.place
        )

    def _from(self, source: Source, name: str) -> Value:
        setup = self._setup
        place = setup.place(source.module, source.node)
        if source.call is not None:
            given = setup.keyword(source.call, name)
            if given is not None:
                value = setup.value(source.module, given)
                return replace(value, place=value.place or place)
            if setup.unpacks(source.call):
                return Value(False, note=f"`**` in the arguments at {place}", place=place)
            return self._default(source, name, place)
        launched = self._launched(name, source)
        if launched is not None:
            return launched
        settings, number = setup.configured.of_trainer(name)
        if settings:
            value = agreed(settings) or Value(False)
            if value.known and len(settings) < number:
                note = f"{len(settings)} of {number} configuration files set `{name}` ({value.value})"
                return Value(False, note=note, place=value.place)
            return value
        default = self._default(source, name, place)
        if default.known and not self._too_new(name):
            default = replace(default, note=f"{default.note}; {self._not_passed(name)}")
        return default

    def _launched(self, name: str, source: Source) -> Value | None:
        """What the shell scripts of the repository pass, where all that pass something pass the same."""
        launches = [launch for launch in self._setup.launches if not _only_uses(launch)]
        given = [(launch, launch.options[name]) for launch in launches if name in launch.options]
        if not given:
            return None
        values = {_parsed(text) for _, text in given}
        place = given[0][0].place_of(name)
        if len(given) < len(launches) and None not in values:  # the rest of them has the default
            default = self._default(source, name, place)
            held = [*(Value(True, value, "", place) for value in values), default]
            both = one_of(held, "", place)
            if both.known or both.truth is not None:
                return replace(both, note=f"`--{name}` of {place}, and by default", place=place)
        if len(given) == len(launches) and len({bool(v) for v in values}) == 1 and None not in values:
            if len(values) > 1:
                return Value(False, None, f"`--{name}` of the launch scripts", place, choices=tuple(values))
            return Value(True, values.pop(), f"`--{name}` of {place}", place)
        if None in values:
            return Value(False, note=f"a variable of {place}", place=place)
        shown = ", ".join(sorted(map(str, values)))
        return Value(
            False, place=place,
            note=f"{len(given)} of {len(launches)} launch scripts pass `--{name}` ({shown})",
        )  # fmt: skip

    def _not_passed(self, name: str) -> str:
        """What is known of the commands that start the script, none of which passes the argument."""
        number = len({launch.place for launch in self._setup.launches if not _only_uses(launch)})
        if not number:
            return "no command that starts the script was found"
        if number == 1:
            return f"the one command found that starts it does not pass `--{name}`"
        return f"none of the {number} commands found that start it passes `--{name}`"

    def _too_new(self, name: str) -> bool:
        """Is it an argument that the transformers of the project does not have?"""
        added = TRANSFORMERS_ADDED.get(name)
        return added is not None and self._setup.facts.excludes(added.package, added.version)

    def _default(self, source: Source, name: str, place: Any) -> Value:
        if source.cls is not None:
            module, cls = source.cls
            for statement in cls.body:
                if (
                    isinstance(statement, ast.AnnAssign)
                    and isinstance(statement.target, ast.Name)
                    and statement.target.id == name
                ):
                    value = self._setup.evaluator.of(_field(statement.value), module)
                    at = self._setup.place(module, statement)
                    return replace(value, note=f"default of `{name}` of `{cls.name}`", place=at)
        trl = source.name.endswith("Config")
        if self._too_new(name):
            pin = self._setup.facts.span("transformers")
            added = TRANSFORMERS_ADDED[name]
            note = f"{pin}: `{name}` came with transformers {added.version}"
            return Value(True, TRANSFORMERS.get(name), note, place, lacking=added)
        if name in TRANSFORMERS and not (trl and name in _TRL_CHANGED):
            whose = "TRL" if name in _ONLY_TRL else "transformers"
            return Value(True, TRANSFORMERS[name], f"default of {whose} for `{name}`", place)
        whose = "TRL" if trl and name != "optim" else "transformers"  # which no class of TRL has changed
        return Value(
            False, note=f"the default of {whose} for `{name}`, which depends on its version", place=place
        )


def without_commands(detail: str) -> str:
    """What a row says, but for the commands of one script that do not pass the argument."""
    return _OF_COMMANDS.sub("", detail)


def _only_uses(launch: Launch) -> bool:
    """Does the command evaluate or generate, and train nothing?"""
    return _parsed(launch.options.get("do_train", True)) is False


def _of_arguments(module: Module, call: ast.Call) -> str | None:
    """The name of what makes arguments, or of what fills them."""
    last = qualified(module, call.func).rpartition(".")[2] if dotted_name(call.func) else ""
    return last if _makes(module, call.func) or last in _FILLS else None


def _makes(module: Module, node: ast.expr) -> bool:
    """Is it a class of the arguments of a trainer?"""
    name = qualified(module, node)
    last = name.rpartition(".")[2]
    return bool(_ARGUMENTS.search(last)) or (last in _OF_TRL and name.startswith("trl."))


def _sources(setup: Setup) -> list[Source]:
    """The calls that make arguments, and the classes that a parser fills."""
    found: list[Source] = []
    for module, call, last in setup.live.found(_of_arguments):
        name = dotted_name(call.func)
        resolved = setup.live.modules.resolve(module, name) if name else None
        cls = resolved if resolved is not None and isinstance(resolved[1], ast.ClassDef) else None
        if last not in _FILLS and setup.runs(module, call).truth is not False:
            found.append(Source(module, call, call, cls, last))  # type: ignore[arg-type]
        elif last in _FILLS:
            for node in ast.walk(call):
                if not isinstance(node, (ast.Name, ast.Attribute)):
                    continue
                named = dotted_name(node)
                tail = named.rpartition(".")[2]
                if _ARGUMENTS.search(tail) or (named and _makes(module, node)):
                    resolved = setup.live.modules.resolve(module, named)
                    own = resolved if resolved is not None and isinstance(resolved[1], ast.ClassDef) else None
                    found.append(Source(module, call, None, own, tail))  # type: ignore[arg-type]
    return found


def _field(value: ast.expr | None) -> ast.expr | None:
    if isinstance(value, ast.Call):
        return next((k.value for k in value.keywords if k.arg == "default"), None)
    return value


def _parsed(text: str | bool | None) -> Any:
    if not isinstance(text, str):
        return text
    lowered = text.lower()
    if lowered in _TRUE:
        return True
    if lowered in _FALSE - {"0"}:
        return False
    return int(text) if text.lstrip("-").isdigit() else text


def keyword_value(setup: Setup, calls: list[tuple[Module, ast.Call]], name: str, default: Value) -> Value:
    """An argument of the calls, all of which agree; `default` where it is not given."""
    values = []
    for module, call in calls:
        given = setup.keyword(call, name)
        place = setup.place(module, call)
        if given is not None:
            value = setup.value(module, given)
            values.append(replace(value, place=value.place or place))
        elif setup.unpacks(call):
            open_ = Value(False, note=f"`**` in the call at {place}", place=place)
            values.append(setup.unpacked(module, call, name, replace(default, place=place)) or open_)
        else:
            values.append(replace(default, place=place))
    if not values:
        return Value(False, note="the trainer is made where it was not found")
    first = values[0]
    if all(v.known and v.value == first.value for v in values):
        return first
    return next((v for v in values if not v.known), None) or Value(
        False, note=f"`{name}` differs between the calls", place=first.place
    )


def lightning_trainers(setup: Setup) -> list[tuple[Module, ast.Call]]:
    return [
        (module, call)
        for module, call in setup.calls("Trainer", "from_argparse_args")
        if setup.qualified(module, call.func).startswith(("pytorch_lightning.", "lightning."))
    ]


def lightning_argument(setup: Setup, name: str, default: Any) -> Value:
    """An argument of the Lightning `Trainer`; unknown where a command line or a configuration fills it."""
    calls = lightning_trainers(setup)
    for module, call in setup.calls("from_argparse_args", "LightningCLI"):
        place = setup.place(module, call)
        return Value(False, note=f"the trainer is filled from the command line at {place}", place=place)
    absent = Value(True, default, f"default of Lightning for `{name}`")
    if not calls:
        field = setup.evaluator.field_beside("_target_", ".Trainer", name)
        if field is not None:
            return field
        for target in setup.configured.targets:
            if str(target.value).endswith(".Trainer"):
                found = setup.configured.beside(target, name)
                return (agreed(found) if found else None) or replace(absent, place=target.place)
    return keyword_value(setup, calls, name, absent)
