"""Frames of Python in a trace: which are the user's, and where a stack of them stands.

torch.profiler names a frame `file(line): function`, where the line is that of the definition; for functions that already
ran when the recording began it is the line that they were at. The line of a call is not recorded.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Collection
from dataclasses import dataclass

from ptopt.profiles.trace import Names

_FRAME = re.compile(r"(?P<path>.+)\((?P<line>\d{1,7})\): (?P<function>.+)", re.S)
_BUILTIN = re.compile(r"<built-in (?:method|function) (?P<name>\w+)")
_MOST = 100_000  # stacks that are kept apart
# What a user calls, where torch wraps it in something of another name.
_WRAPPED = {
    ("torch/optim/optimizer.py", "wrapper"): "step",
    ("torch/_compile.py", "inner"): "zero_grad",
    ("torch/optim/lr_scheduler.py", "wrapper"): "scheduler.step",
    ("torch/optim/lr_scheduler.py", "step"): "scheduler.step",
    ("torch/profiler/profiler.py", "step"): "profiler.step",
}
_LIBRARIES = frozenset(
    "accelerate apex bitsandbytes cupy datasets deepspeed diffusers fairscale fsspec huggingface_hub ignite lightning "
    "lightning_fabric lightning_utilities matplotlib megatron numba numpy pandas peft PIL pyarrow pytorch_lightning scipy "
    "sklearn timm tokenizers torch torchaudio torchdata torchmetrics torchvision tqdm transformers triton trl wandb xformers"
    .split()
)  # fmt: skip
# Modules of Python that a training run hardly uses, and whose names scripts like to have.
_LIKELY_OWN = frozenset({"cmd", "code", "profile", "test", "trace"})
_INSTALLED = _LIBRARIES | (sys.stdlib_module_names - _LIKELY_OWN)


@dataclass(frozen=True, slots=True, order=True)
class Frame:
    """A Python function: `line` is that of its definition, or one inside it."""

    path: str
    line: int
    function: str


@dataclass(frozen=True, slots=True, order=True)
class Place:
    """A function of the user, and what it called there: a function, a method, a module; "" where it ran itself."""

    frame: Frame
    callee: str = ""


def frame_of(name: str) -> Frame | None:
    match = _FRAME.fullmatch(name)
    return None if match is None else Frame(match["path"], int(match["line"]), match["function"])


def callee_of(name: str) -> str:
    """What a user calls the thing that an event is named after: `backward`, `item`, `nn.Module: Linear`."""
    frame = frame_of(name)
    if frame is not None:
        inside = frame.path.replace("\\", "/").rpartition("site-packages/")[2]
        return _WRAPPED.get((inside, frame.function), frame.function)
    builtin = _BUILTIN.match(name)
    if builtin is not None:
        return builtin["name"]
    if name.startswith("nn.Module: "):
        return re.sub(r"_\d+$", "", name)
    return name


def is_library(path: str) -> bool:
    """Installed or built in, as far as the path says: torch.profiler drops what `sys.path` has in front."""
    folders = path.replace("\\", "/").split("/")
    if path.startswith("<") or {"site-packages", "dist-packages"} & set(folders):
        return True
    if any(re.fullmatch(r"python\d(\.\d+)?", folder) for folder in folders[:-1]) and "lib" in folders:
        return True
    first = folders[0].removesuffix(".py")
    return first in _INSTALLED


class Frames:
    """Stacks of the user's frames as numbers; 0 is the empty one.

    `own` are paths as the trace has them that belong to the user whatever they look like.
    """

    def __init__(self, names: Names, own: Collection[str] = ()) -> None:
        self._names = names
        self._own = frozenset(own)
        self._frames: dict[int, Frame | None] = {}  # name -> the user's frame; None: not the user's
        self._known: dict[tuple[int, int], int] = {}
        # Of each stack: the stack outside, its innermost frame and what that calls (names; -1: nothing).
        self._stacks: list[tuple[int, int, int]] = [(0, -1, -1)]
        self._numbers: dict[tuple[int, int, int], int] = {}

    def step(self, stack: int, name: int) -> int:
        """The stack after a call from `stack` of what has this name."""
        found = self._known.get((stack, name))
        return self._called(stack, name) if found is None else found

    def places(self, stack: int) -> tuple[Place, ...]:
        """The user's frames, innermost first, each with what it called."""
        found: list[Place] = []
        while stack:
            stack, name, callee = self._stacks[stack]
            frame = self._user(name)
            if frame is not None:
                text = "" if callee < 0 else callee_of(self._names.texts[callee])
                found.append(Place(frame, text))
        return tuple(found)

    def _called(self, stack: int, name: int) -> int:
        outside, innermost, callee = self._stacks[stack]
        calling = self._number(outside, innermost, name) if innermost >= 0 and callee < 0 else stack
        result = self._number(calling, name, -1) if self._user(name) is not None else calling
        if len(self._known) < 4 * _MOST:
            self._known[stack, name] = result
        return result

    def _number(self, outside: int, frame: int, callee: int) -> int:
        key = (outside, frame, callee)
        number = self._numbers.get(key)
        if number is None:
            if len(self._stacks) >= _MOST:
                return outside
            number = self._numbers[key] = len(self._stacks)
            self._stacks.append(key)
        return number

    def _user(self, name: int) -> Frame | None:
        if name not in self._frames:
            frame = frame_of(self._names.texts[name])
            library = frame is None or (frame.path not in self._own and is_library(frame.path))
            self._frames[name] = None if library else frame
        return self._frames[name]
