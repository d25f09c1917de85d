"""A rule's examples, and how they become files: what the tests run, the pages print, and the model is shown."""

from __future__ import annotations

import dataclasses
import re
import textwrap

from ptopt.change import ChangedFile, whole_file

MARK = "# !"  # ends the lines of an INVALID example where a comment is expected
_REMOVED = "# - "  # starts the lines of an example that a change took out, for rules about changes
# Lines of an INVALID example that take the place of those above them: by the fix, or by an author where there is none.
_WRITTEN = re.compile(r"( *)# ([+~])(?: (.*)|$)")

PRELUDE = """\
import math
import sys

import lightning as pl
import numpy as np
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, Dataset

"""


@dataclasses.dataclass(frozen=True, slots=True)
class Invalid:
    """Code that the rule reports on the lines that end in `# !`; `fixed` is the code after the fix, if it has one.

    What the fix changes may stand in the code itself: lines that start with `# + ` take the place of the line above them,
    and `# +` alone takes that line out, or stands for an empty one below another. Where no fix is offered, `# ~ ` shows in the same way what to write: `instead`.
    """

    code: str
    fixed: str | None = None
    instead: str | None = None

    def __post_init__(self) -> None:
        text = self.code
        object.__setattr__(self, "code", _written(text, ""))
        for field, mark in (("fixed", "+"), ("instead", "~")):
            written = _written(text, mark)
            if written != self.code:
                object.__setattr__(self, field, written)


def _written(text: str, mark: str) -> str:
    """The code of an example with the lines that have the mark, in their places."""
    lines: list[str] = []
    replaces = False
    for line in text.split("\n"):
        new = _WRITTEN.fullmatch(line)
        if new is None:
            lines.append(line)
        elif new[2] == mark:
            if not replaces:
                lines.pop()
            if new[3] is not None or replaces:
                lines.append(f"{new[1]}{new[3] or ''}".rstrip())
        replaces = new is not None
    return "\n".join(lines)


def plain(code: str) -> str:
    """The example as a reader sees it: dedented, without the marks of expected comments."""
    lines = textwrap.dedent(code).strip("\n").split("\n")
    return "\n".join(line.removesuffix(MARK).rstrip() for line in lines) + "\n"


def as_file(code: str) -> str:
    """The example as a file that parses: the usual imports, unless it brings its own, then the code."""
    text = plain(code)
    return text if text.startswith(("import ", "from ")) else PRELUDE + text


def complete(code: str) -> str:
    """The example as the shortest file that rules look at: with the usual imports that it needs."""
    text = plain(code)
    if text.startswith(("import ", "from ")):
        return text
    used = set(re.findall(r"\w+", text)) | {"torch"}  # rules pass over files that do not mention a library
    lines = [line for line in PRELUDE.split("\n") if used & set(_bound(line))]
    return "\n".join(lines) + f"\n\n{text}"


def _bound(line: str) -> list[str]:
    """The names that an import binds."""
    return [name.split()[-1].split(".")[0] for name in line.rpartition("import ")[2].split(", ") if name]


def expected_lines(code: str) -> list[int]:
    """Lines of `as_file(code)` on which a comment is expected."""
    lines = textwrap.dedent(code).strip("\n").split("\n")
    first = as_file(code).count("\n") - len(lines) + 1
    return [first + i for i, line in enumerate(lines) if line.endswith(MARK)]


def config_path(code: str) -> str:
    """Where the example of a rule about configurations may lie."""
    if code.lstrip().startswith(("FROM ", "ARG ")):
        return "cpu.Dockerfile" if " AS cpu" in code else "Dockerfile"
    return ".github/workflows/ci.yml" if "\njobs:" in plain(code) else "config.yaml"


def marked_lines(code: str) -> list[int]:
    """Lines of `plain(code)` on which a comment is expected."""
    lines = textwrap.dedent(code).strip("\n").split("\n")
    return [number for number, line in enumerate(lines, 1) if line.endswith(MARK)]


def as_change(path: str, text: str) -> ChangedFile:
    """The example as a change that wrote all of its lines, and took out those that are shown so."""
    lines = text.split("\n")
    removed = []
    for number, line in enumerate(lines):
        if line.lstrip().startswith(_REMOVED):
            following = next(
                n for n in range(number, len(lines)) if not lines[n].lstrip().startswith(_REMOVED)
            )
            removed.append((following + 1, line.replace(_REMOVED, "", 1)))
    return dataclasses.replace(whole_file(path, text.encode()), removed=tuple(removed))
