"""The torch that a README asks for: its install commands, and what it says that the code was tested with.

Read only where no file of requirements says anything: a README gives one version of an environment that works.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from ptopt.pathkind import is_readme
from ptopt.project.pins import Pin

_VERSION = r"v?(\d+\.\d+(?:\.\d+)?)"
_COMMAND = re.compile(
    rf"(?:pip3?|conda|mamba)\s+install[^\n]{{0,200}}?\b(?:py)?torch\s*={{1,2}}\s*{_VERSION}", re.I
)
_TESTED = re.compile(
    rf"(?:tested|developed|implemented|built|written|trained|experiments|install|requires?|^\s*[-*+])(?:[^\n.;]|\.(?=\d)){{0,60}}?"
    rf"\bpy?torch\W{{0,6}}(?:version\s*)?={{0,2}}\s*{_VERSION}(?P<after>[^\n]{{0,24}})",
    re.I | re.M,
)
_NAMED = re.compile(
    rf"\bpy?torch\b(?:\]\([^)\s]*\))?\W{{0,3}}(?:install\w*|version)\s*(?:={{1,2}}|:)\s*{_VERSION}(?P<after>[^\n]{{0,24}})",
    re.I,
)
_OR_LATER = re.compile(
    r"^\W{0,3}(\+(?!cu\d|cpu)|x\b|or\b|and (above|later|higher|newer|up)|above|later|higher|newer)|^\.x", re.I
)
_AT_LEAST = re.compile(r"\bpy?torch\b(\]\([^)\s]*\))?\W{0,4}(>=|≥|&gt;=)\s*\d", re.I)
_OTHERS_WORK = re.compile(
    r"(should|may|also|will|can)[^\n]{0,20} work|(other|later|newer|higher) versions", re.I
)
_LOWER_BOUND = re.compile(r"(>=|>|≥|at least|minimum)[^\n]{0,12}$", re.I)
MOST_BYTES = 200_000  # of one page
README_FOLDERS = ("", "docs", "doc", "readme")  # with the page of the whole project


def torch_of(files: Mapping[str, bytes]) -> Pin | None:
    """The torch that the README of the project names; None where it names none, or only the oldest that will do."""
    for path in sorted(files, key=lambda path: ("/" in path, path)):
        folder, _, _ = path.rpartition("/")
        if folder not in README_FOLDERS or not is_readme(path) or len(files[path]) > MOST_BYTES:
            continue
        pin = _pin(path, files[path].decode("utf-8", "replace"))
        if pin is not None:
            return pin
    return None


def _pin(path: str, text: str) -> Pin | None:
    """The newest torch that the commands of the text install, else that it names; None where it says that later ones will do."""
    found = [(_parts(match[1]), match[1], match.start(1)) for match in _COMMAND.finditer(text)]
    if not found and _AT_LEAST.search(text):
        return None
    for match in [] if found else [*_TESTED.finditer(text), *_NAMED.finditer(text)]:
        before = text[max(0, match.start(1) - 16) : match.start(1)]
        rest = text[match.end(1) : match.end(1) + 160].partition("\n")[0]
        if _OR_LATER.search(match["after"]) or _LOWER_BOUND.search(before) or _OTHERS_WORK.search(rest):
            return None
        found.append((_parts(match[1]), match[1], match.start(1)))
    if not found:
        return None
    _, version, at = max(found)
    return Pin("torch", f"=={version}", exact=True, path=path, line=text.count("\n", 0, at) + 1)


def _parts(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split("."))
