"""What a README says of its torch: its install commands, the oldest that will do, and the one that the code was tested with.

Read only where no file of requirements says anything: a README gives one version of an environment that works. What was tested
is no requirement: newer ones are not excluded.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from ptopt.pathkind import is_readme
from ptopt.project.pins import CUDA, Pin

_VERSION = r"v?(\d+\.\d+(?:\.\d+)?)"
_COMMAND = re.compile(
    rf"(?:pip3?|conda|mamba)\s+install[^\n]{{0,200}}?\b(?:py)?torch\s*={{1,2}}\s*{_VERSION}", re.I
)
_CUDA = re.compile(r"\b(?:conda|mamba)\s+install[^\n]{0,200}?\bcudatoolkit\s*={1,2}\s*(\d+\.\d+)", re.I)
_TORCH = r"(?<![\w/.-])(?:py)?torch(?![a-z_])(?:\]\([^)\s]{0,80}\))?"  # also as the text of a link
_IN_SENTENCE = rf"(?:[^\n.;]|\.(?=\d)){{0,60}}?{_TORCH}\W{{0,6}}(?:ver(?:sion|\.)?\s*)?={{0,2}}\s*{_VERSION}(?P<after>[^\n]{{0,24}})"
_TESTED = re.compile(
    rf"(?:tested|verified|developed|implemented|built|written|trained|experiments){_IN_SENTENCE}", re.I
)
_ASKED = re.compile(rf"(?:install|requires?|(?<!which )relies on|^\s*[-*+]){_IN_SENTENCE}", re.I | re.M)
# What stands before the version where the line tells of a change: to a version that works, or of no version that is needed.
_MOVED = re.compile(r"\b(updat|upgrad|migrat|brought|bump|simplif|switch|port(s|ed|ing)?\b)", re.I)
_ASIDE = re.compile(
    r"\b(support(?!s)|add|fix|releas|compatib|looking for\b|if\b|up to\b)|\[[ x]\]|\b(19|20)\d\d\b", re.I
)
# Nothing else in the line, as in a list without bullets: "PyTorch 0.4.0". Of several such lines none is sure to be meant.
_ALONE = re.compile(
    rf"^[ \t>`]{{0,8}}{_TORCH}[ \t]{{1,24}}{_VERSION}(?P<after>)[ \t`]{{0,8}}\r?$", re.I | re.M
)
_NAMED = re.compile(
    rf"\bpy?torch\b(?:\]\([^)\s]*\))?\W{{0,3}}(?:install\w*|version)\s*(?:={{1,2}}|:)\s*{_VERSION}(?P<after>[^\n]{{0,24}})",
    re.I,
)
# As `pip freeze` prints it, alone or behind others in a line: `python==3.7.0 torchvision==0.5.0 pytorch==1.4.0`.
_PINNED = (
    r"[a-z][\w-]{0,40}[ \t]{0,4}(?:={1,2}[ \t]{0,4}|(?<=python)[ \t]{0,4})v?\d[\w.+]{0,20}[ \t,;|`]{1,8}"
)
_FROZEN = re.compile(
    rf"^[ \t>`]{{0,8}}(?:{_PINNED}){{0,12}}(?:py)?torch[ \t]*==[ \t]*{_VERSION}(?P<after>[^\n]{{0,24}})",
    re.I | re.M,
)
_OR_LATER = re.compile(
    r"^\W{0,3}(\+(?!cu\d|cpu|rocm|xpu)|x\b|or\b(?!\W{0,3}v?\d)|and (above|later|higher|newer|up)|above|later|higher|newer)|^\.x",
    re.I,
)
_AT_LEAST = re.compile(
    rf"\b(?:py)?torch\b(?:\]\([^)\s]*\))?\W{{0,4}}(?:version\W{{0,2}})?(?:>=|≥|&gt;=|at least)\s*{_VERSION}",
    re.I,
)
# "PyTorch before 0.4"
_BEFORE = re.compile(
    rf"^\s*[-*+][^\n]{{0,20}}{_TORCH}\W{{0,4}}(?:version\W{{0,2}})?(?:before|prior to|older than|<)\s*{_VERSION}",
    re.I | re.M,
)
# "python 3.10+, torch 2.5+"
_OR_NEWER = re.compile(
    rf"\bpython\W{{0,3}}3[\d.]{{0,5}}\+?,\s*{_TORCH}\W{{0,3}}{_VERSION}\+(?!cu\d|cpu|rocm|xpu)", re.I
)
_ITEM = re.compile(r"\s*([-*+]\s|\d+[.)]\s|\w[\w-]*\s*={0,2}\s*\d[\w.]*\s*$|\s)")
_OF_TESTS = re.compile(r"\b(tested|verified|developed|experiments|our environment)\b", re.I)
_LONGEST_LIST = 600  # characters
_OTHERS_WORK = re.compile(
    r"(should|may|also|will|can)[^\n]{0,20} work|(other|later|newer|higher) versions", re.I
)
_LOWER_BOUND = re.compile(r"(>=|>|≥|at least|minimum)[^\n]{0,12}$", re.I)
_NONE_YET = (3,)  # versions of torch: "branch `pytorch4.1`"
MOST_BYTES = 200_000  # of one page
README_FOLDERS = ("", "docs", "doc", "readme")  # with the page of the whole project

_Found = tuple[tuple[int, ...], str, int]  # a version: its parts, as written, where


def cuda_of(files: Mapping[str, bytes]) -> Pin | None:
    """The newest CUDA that an install command of the README at the root names; None where none does."""
    for path in sorted(path for path in files if "/" not in path and is_readme(path)):
        text = files[path][:MOST_BYTES].decode("utf-8", "replace")
        found = [(_parts(match[1]), match[1], match.start(1)) for match in _CUDA.finditer(text)]
        if found:
            _, version, at = max(found)
            return Pin(CUDA, f"=={version}", True, path, text.count("\n", 0, at) + 1)
    return None


def torch_of(files: Mapping[str, bytes]) -> Pin | None:
    """The torch that the README of the project names; None where it names none."""
    for path in sorted(files, key=lambda path: ("/" in path, path)):
        folder, _, _ = path.rpartition("/")
        if folder not in README_FOLDERS or not is_readme(path) or len(files[path]) > MOST_BYTES:
            continue
        pin = _pin(path, files[path].decode("utf-8", "replace"))
        if pin is not None:
            return pin
    return None


def _pin(path: str, text: str) -> Pin | None:
    """The oldest torch that the text admits, unless its commands install an older one; else the newest that it installs or
    names; else the oldest that it was tested with.
    """
    commands = _versions(_COMMAND, text)
    least = _versions(_AT_LEAST, text)
    tested: list[_Found] = []
    asked: list[_Found] = []
    for pattern, found in (
        (_TESTED, tested),
        (_ASKED, asked),
        (_NAMED, asked),
        (_FROZEN, asked),
        (_ALONE, asked),
    ):
        for match in pattern.finditer(text):
            version = _found(match)
            before = text[max(0, match.start(1) - 16) : match.start(1)]
            rest = text[match.end(1) : match.end(1) + 160].partition("\n")[0]
            lead = match[0][: match.start(1) - match.start()]
            if version[0] >= _NONE_YET:
                continue
            if _OR_LATER.search(match["after"]) or _LOWER_BOUND.search(before):
                least.append(version)
            elif _ASIDE.search(lead):
                continue
            elif (
                found is tested
                or _OTHERS_WORK.search(rest)
                or _MOVED.search(lead)
                or _is_of_tests(text, match.start())
            ):
                tested.append(version)
            else:
                found.append(version)
    least += _versions(_OR_NEWER, text)
    if least and (not commands or min(least) <= max(commands)):
        return _made(path, text, min(least), ">=", named=bool(commands))
    if commands or asked:
        said = {at for _, _, at in tested}
        named = [version for version in asked if version[2] not in said]
        if commands or named:
            return _made(path, text, max(commands or named), "==")
    if tested:
        return _made(path, text, min(tested), ">=", named=True)
    excluded = _BEFORE.search(text)
    return None if excluded is None else _made(path, text, _found(excluded), "<")


def _is_of_tests(text: str, at: int) -> bool:
    """Does what stands above the list say that it is what the code ran with: "Tested environments:", also over several lines?"""
    above: list[str] = []
    for line in reversed(text[max(0, at - _LONGEST_LIST) : at].split("\n")[:-1]):
        if line.startswith("#"):  # says what the list below it is, where no text stands between
            above = above or [line]
            break
        if above and not line.strip():
            break
        if line.strip() and (above or not _ITEM.match(line)):
            above.append(line)
    said = " ".join(reversed(above))
    return _OF_TESTS.search(said) is not None and "requir" not in said.lower()


def _versions(pattern: re.Pattern[str], text: str) -> list[_Found]:
    return [_found(match) for match in pattern.finditer(text)]


def _found(match: re.Match[str]) -> _Found:
    return _parts(match[1]), match[1], match.start(1)


def _made(path: str, text: str, version: _Found, operator: str, named: bool = False) -> Pin:
    line = text.count("\n", 0, version[2]) + 1
    exact = operator == "=="
    return Pin("torch", f"{operator}{version[1]}", exact=exact, path=path, line=line, named=named)


def _parts(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split("."))
