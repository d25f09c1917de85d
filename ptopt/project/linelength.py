"""How long a line of the project's code may be, from the settings of its formatter or linter."""

from __future__ import annotations

import re
from collections.abc import Mapping

_KEY = re.compile(
    r"[ \t]*(?:line[-_]length|max[-_]line[-_]length|column_limit)[ \t]*[=:][ \t]*(\d{2,3})[ \t]*(?:[#;].*)?\r?$"
)
_SECTION = re.compile(r"[ \t]*\[[ \t]*([\w.:-]+)[ \t]*\]")
_TOP = ""  # above the first section

# Those that decide first: of several tools the one that formats.
_SETTINGS = (
    ("ruff.toml", _TOP),
    (".ruff.toml", _TOP),
    ("pyproject.toml", "tool.ruff"),
    ("pyproject.toml", "tool.black"),
    ("pyproject.toml", "tool.yapf"),
    (".style.yapf", "style"),
    ("setup.cfg", "yapf"),
    (".flake8", "flake8"),
    ("setup.cfg", "flake8"),
    ("tox.ini", "flake8"),
    ("setup.cfg", "pycodestyle"),
    ("tox.ini", "pycodestyle"),
    ("pyproject.toml", "tool.flake8"),
)
_BY_DEFAULT = {"tool.ruff": 88, "tool.black": 88}
_SHORTEST = 40

LENGTH_FILES = tuple(dict.fromkeys(name for name, _ in _SETTINGS))
"""The files that `line_length` reads."""


def line_length(files: Mapping[str, bytes]) -> int | None:
    """The characters that a line may have; None where no tool is configured. Never raises."""
    found = {name: _lengths(files[name]) for name in LENGTH_FILES if name in files}
    for name, section in _SETTINGS:
        length = found.get(name, {}).get(section)
        if length is not None:
            return max(length, _SHORTEST)
    return None


def _lengths(data: bytes) -> dict[str, int]:
    """Section -> length, as far as sections say. By lines, so that no file is too large or too broken."""
    lengths: dict[str, int] = {}
    section = _TOP
    for line in data.decode("utf-8", "replace").split("\n"):
        if match := _SECTION.match(line):
            section = match[1]
            parent = ".".join(section.split(".")[:2])
            if parent in _BY_DEFAULT:
                lengths.setdefault(parent, _BY_DEFAULT[parent])
        elif match := _KEY.match(line):
            lengths[section] = int(match[1])
    return lengths
