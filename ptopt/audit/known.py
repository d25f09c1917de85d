"""What an audit knows of one expression, and what its surroundings tell of it."""

from __future__ import annotations

import ast
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from ptopt.audit.configured import Setting
from ptopt.audit.modules import Module, dotted_name
from ptopt.audit.values import Place
from ptopt.project.added import ADDED, Added
from ptopt.source.bindings import Binding
from ptopt.source.index import FunctionNode

# Defaults that no version of transformers has changed, but for what counts as off: `python -m benchmarks.versions` asks them.
TRANSFORMERS = {
    "bf16": False, "fp16": False, "tf32": None, "dataloader_num_workers": 0, "dataloader_pin_memory": True,
    "dataloader_persistent_workers": False, "dataloader_prefetch_factor": None, "gradient_accumulation_steps": 1,
    "torch_compile": False, "deepspeed": None, "fsdp": "", "packing": False, "group_by_length": False,
    "gradient_checkpointing": False, "activation_checkpointing": None,
}  # fmt: skip
DIFFER_IN_PARTS = "differs between the parts of"  # of one file: stages of a run, or its networks
CALLS_DIFFER = "the calls of "  # how a note begins that says so
UNFOUND = "the value of "  # how one begins that names an expression, and no condition
# Arguments that older `TrainingArguments` lack, each with its entry of `ptopt.project.added`.
TRANSFORMERS_ADDED = {
    "bf16": ADDED["bf16=True"],
    "dataloader_persistent_workers": ADDED["dataloader_persistent_workers"],
    **{
        name: ADDED[f"TrainingArguments.{name}"]
        for name in ("gradient_checkpointing", "tf32", "optim", "torch_compile", "dataloader_prefetch_factor")
    },
}


@dataclass(frozen=True, slots=True)
class Value:
    """`known`: what it is by default. `note`: where it comes from, or why it is not known.

    `choices`: where it is not known, all that it may be; empty where that is not known either. `passed`: what some of
    the calls of a function give its parameter. `option`: the one that it was read from, as it is shown; the choices of two
    values of one option belong together.
    """

    known: bool
    value: Any = None
    note: str = ""
    place: Place | None = None
    environment: bool = False  # the machine or the launcher decides
    choices: tuple[Any, ...] = ()
    passed: tuple[Any, ...] = ()
    differs: bool = False  # commands or configurations say different things of it
    option: str = ""
    lacking: Added | None = None  # what the library of the project does not have yet, so that `value` holds

    @property
    def truth(self) -> bool | None:
        if self.known:
            return bool(self.value)
        answers = {bool(choice) for choice in self.choices}
        return answers.pop() if len(answers) == 1 else None

    def mapped(self, change: Callable[[Any], Any]) -> Value:
        """The value after a computation that needs nothing else."""
        # Written out: `replace` takes several times as long, and this is asked most.
        return Value(
            self.known, change(self.value) if self.known else None, self.note, self.place, self.environment,
            tuple(map(change, self.choices)), tuple(map(change, self.passed)), self.differs, self.option, self.lacking,
        )  # fmt: skip


def one_of(values: list[Value], note: str, place: Place | None) -> Value:
    """What several values come to: themselves where they agree, else not known, with what is known of them."""
    first = values[0]
    if all(v.known and v.value == first.value and type(v.value) is type(first.value) for v in values):
        return first
    every = [(v.value,) if v.known else v.choices for v in values]
    passed = tuple(c for v, found in zip(values, every, strict=True) for c in (found or v.passed))
    unknown = next((v for v in values if not v.known), None)
    base = unknown if unknown is not None else Value(False, note=note, place=place)
    return replace(
        base, choices=tuple(c for found in every for c in found) if all(every) else (), passed=passed
    )


def dominating(name: ast.Name, found: list[Binding], module: Module) -> Binding | None:
    """The last assignment before the use, where the use cannot be reached without it."""
    before = [b for b in found if (b.line, b.column) < (name.lineno, name.col_offset)]
    if not before or before[-1].kind != "assign":
        return None
    holder = module.file.index.parent(before[-1].node)
    index = module.file.index
    if isinstance(holder, (ast.If, ast.Try, ast.For, ast.While)) and not index.within(name, holder):
        return None
    if isinstance(holder, ast.If) and (before[-1].node in holder.body) is not any(
        index.within(name, statement) for statement in holder.body
    ):
        return None
    loops = [loop for loop, _ in index.ancestors(name) if isinstance(loop, (ast.For, ast.While))]
    again = any(index.within(b.node, loop) for b in found for loop in loops if b is not before[-1])
    if again and not any(index.within(before[-1].node, loop) for loop in loops):
        return None  # bound anew in the loop that holds the use
    return before[-1] if holder is not None and index.within(name, holder) else None


def is_of_torch(node: ast.expr) -> bool:
    return dotted_name(node).partition(".")[0] in ("torch", "F", "nn", "dist")


def agreed(settings: list[Setting]) -> Value | None:
    """What configuration files say; not known where they differ; None where none says it."""
    if not settings:
        return None
    first = settings[0]
    files = list(dict.fromkeys(s.place.path for s in settings))
    if any(type(s.value) is not type(first.value) or s.value != first.value for s in settings):
        shown = ", ".join(sorted({str(s.value) for s in settings})[:4])
        note = f"`{first.keys[-1]}` differs between {len(settings)} configurations ({shown})"
        parts = {".".join(s.keys[:-1]) for s in settings}
        if len(files) == 1 and len(parts) == len(settings):
            each = ", ".join(f"{s.value} at line {s.place.line}" for s in settings[:4])
            note = f"`{first.keys[-1]}` {DIFFER_IN_PARTS} {files[0]} ({each})"
        return Value(
            False, note=note, place=first.place, choices=tuple(s.value for s in settings), differs=True
        )
    more = f" and {len(files) - 1} more" if len(files) > 1 else ""
    return Value(True, first.value, f"`{first.keys[-1]}` of {first.place.path}{more}", first.place)


def keys_of(expr: ast.expr, name: str) -> tuple[str, ...]:
    """The names that lead to an option: ("train", "fp16_run") of `hps.train.fp16_run`."""
    holder = expr.value if isinstance(expr, (ast.Attribute, ast.Subscript)) else None
    if isinstance(holder, ast.Attribute):
        return holder.attr, name
    if isinstance(holder, ast.Subscript) and isinstance(holder.slice, ast.Constant):
        return str(holder.slice.value), name
    return (name,)


def position_of(function: FunctionNode, name: str) -> int | None:
    names = [a.arg for a in (*function.args.posonlyargs, *function.args.args)]
    return names.index(name) if name in names else None


def default_of(function: FunctionNode, name: str) -> ast.expr | None:
    """The default of a parameter; None where it has none."""
    positional = [*function.args.posonlyargs, *function.args.args]
    defaults = dict(
        zip([a.arg for a in reversed(positional)], reversed(function.args.defaults), strict=False)
    )
    named = zip(function.args.kwonlyargs, function.args.kw_defaults, strict=True)
    return {**defaults, **{a.arg: d for a, d in named if d is not None}}.get(name)
