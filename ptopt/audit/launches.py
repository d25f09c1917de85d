"""Shell scripts of a repository, and the commands of its README: with which options they start a training script."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import PurePosixPath

from ptopt.audit.values import Place
from ptopt.pathkind import is_readme

_LONGEST = 200_000  # bytes of one script
_LINE = 20_000
_ASSIGNED = re.compile(r"^\s*(?:export\s+)?([A-Za-z_]\w*)=(['\"]?)([\w./:+-]+)\2\s*(?:#.*)?$")
_NO_VALUE = re.compile(
    r"\$(@|\*|\{[@*]\}|\{\w+[\[@])|[|&;>]|\d>|2>&1"
)  # the rest of a command line, and what follows it
_COMMAND = re.compile(r"\s*(\$ )?([A-Z_]+=\S+ )*(python3?|torchrun|accelerate launch|deepspeed)\s")
_VARIABLE = re.compile(r"\$\{?([A-Za-z_]\w*)\}?")


@dataclass(frozen=True, slots=True)
class Launch:
    """One command that starts a script. `options`: name -> text; True where it stands alone, None where it is computed."""

    place: Place
    options: Mapping[str, str | bool | None]


def launches(files: Mapping[str, bytes]) -> dict[str, list[Launch]]:
    """Name of a Python file -> the commands that start a file of this name."""
    found: dict[str, list[Launch]] = {}
    for path, data in sorted(files.items()):
        if path.endswith(".sh") and len(data) <= _LONGEST:
            for name, launch in _of_script(path, data.decode("utf-8", "replace")):
                found.setdefault(name, []).append(launch)
    shown: dict[str, list[Launch]] = {}
    for path, data in sorted(files.items()):
        if is_readme(path) and len(data) <= _LONGEST:
            for name, launch in _of_script(path, _commands(data.decode("utf-8", "replace"))):
                if launch.options:
                    shown.setdefault(name, []).append(launch)
    return shown | found  # where scripts start it, they say more than a README


def _commands(text: str) -> str:
    """The lines of a README that are commands, and what goes on below them; the others are left empty."""
    lines, goes_on = [], False
    for line in text.split("\n"):
        kept = goes_on or bool(_COMMAND.match(line))
        goes_on = kept and line.rstrip().endswith("\\")
        lines.append(line.strip().removeprefix("$ ") if kept else "")
    return "\n".join(lines)


def _of_script(path: str, text: str) -> list[tuple[str, Launch]]:
    found: list[tuple[str, Launch]] = []
    variables: dict[str, str] = {}
    for number, line in _logical_lines(text):
        assigned = _ASSIGNED.match(line)
        if assigned:
            variables[assigned[1]] = assigned[3]
        if ".py" not in line or len(line) > _LINE:
            continue
        try:
            tokens = shlex.split(line, comments=True)
        except ValueError:
            tokens = line.split()
        at = next((i for i, token in enumerate(tokens) if token.endswith(".py")), None)
        if at is not None:
            name = PurePosixPath(tokens[at]).name
            found.append((name, Launch(Place(path, number), _options(tokens[at + 1 :], variables))))
    return found


def _logical_lines(text: str) -> list[tuple[int, str]]:
    """Lines joined at a backslash, each with the number of its first."""
    lines: list[tuple[int, str]] = []
    start = 1
    parts: list[str] = []
    for number, line in enumerate(text.split("\n"), 1):
        if not parts:
            start = number
        stripped = line.rstrip()
        if stripped.lstrip().startswith("#"):
            stripped = "\\" if parts else ""  # a comment inside a command that goes on
        if stripped.endswith("\\"):
            parts.append(stripped[:-1])
        else:
            lines.append((start, " ".join([*parts, stripped])))
            parts = []
    if parts:
        lines.append((start, " ".join(parts)))
    return lines


def _options(tokens: list[str], variables: Mapping[str, str]) -> dict[str, str | bool | None]:
    options: dict[str, str | bool | None] = {}
    for i, token in enumerate(tokens):
        if not token.startswith("--"):
            continue
        name, equals, value = token[2:].partition("=")
        following = tokens[i + 1] if i + 1 < len(tokens) else "--"
        if _NO_VALUE.match(following):
            following = "--"
        text: str | bool = value if equals else True if following.startswith("-") else following
        options[name.replace("-", "_")] = _substituted(text, variables)
    return options


def _substituted(text: str | bool, variables: Mapping[str, str]) -> str | bool | None:
    if not isinstance(text, str) or "$" not in text:
        return text
    match = _VARIABLE.fullmatch(text)
    return variables.get(match[1]) if match else None
