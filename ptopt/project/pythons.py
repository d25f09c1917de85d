"""The Python that a project asks for, and the newest versions of packages that install on it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from ptopt.pathkind import is_dockerfile, is_readme
from ptopt.project.pins import Pin
from ptopt.project.stated import MOST_BYTES

PYTHON_2 = 0
"""Stands for Python 2.7 where a minor version of Python 3 is asked for."""

# Minor version of Python -> the last release with wheels for it, or whose metadata admits it:
# `pip index versions torch --python-version 3.8 --only-binary=:all:`, and the files of torch 1.10.2 for 3.6.
NEWEST: Mapping[str, Mapping[int, str]] = {
    "torch": {PYTHON_2: "1.4.0", 6: "1.10.2", 7: "1.13.1", 8: "2.4.1", 9: "2.8.0"},
    "transformers": {6: "4.18.0", 7: "4.30.2", 8: "4.46.3", 9: "4.57.6"},
}
FOLDERS = (
    "docker",
    "dockerfiles",
    "env",
    "envs",
    "environment",
    "environments",
    "conda",
    "install",
    "requirements",
)
"""Folders that hold files about the environment of the folder above."""

_MINOR = r"3\.(\d{1,2})(?:\.\d+)?(?!\w)"
_ENVIRONMENT = re.compile(r"(^|[/_-])(environment|env|conda)[^/]*\.ya?ml$", re.I)
_LISTS_PACKAGES = re.compile(rb"^channels[ \t]*:.*^dependencies[ \t]*:", re.M | re.S)
_IN_ENVIRONMENT = re.compile(rf"^\s*-\s*[\"']?python\s*=+\s*{_MINOR}", re.M)
_IN_IMAGE = re.compile(
    rf"^\s*FROM\s+(?:\S+/)?python:{_MINOR}|^\s*(?:ARG|ENV)\s+PYTHON_VERSION[ =]\"?{_MINOR}", re.I | re.M
)
_COMMAND = re.compile(
    rf"\b(?:conda|mamba|micromamba)\s+(?:create|install)\b[^\n]{{0,120}}?\bpython\s*={{1,2}}\s*{_MINOR}"
    rf"|\buv\s+venv\b[^\n]{{0,60}}?--python[ =](?:python)?{_MINOR}"
    rf"|\bvirtualenv\b[^\n]{{0,60}}?(?:-p|--python)[ =](?:\S*/)?python{_MINOR}"
    rf"|^\s*(?:\$ )?(?:\S*/)?python{_MINOR}\s+-m\s+(?:venv|pip)\b",
    re.M,
)
_LISTED = re.compile(rf"(?:^\W{{0,8}}|\b(?:install|with|on|and|using|under)\s+|,\s*)\**python\**\W{{0,4}}?(?:version\W{{0,2}})?={{0,2}}\s*{_MINOR}(?P<after>[^\n]{{0,24}})", re.I | re.M)  # fmt: skip
_LISTED_2 = re.compile(r"^\W{0,8}\**python\**\W{0,4}?(?:version\W{0,2})?={0,2}\s*2\.7(?!\w)", re.I | re.M)
_NAMES_3 = re.compile(r"python\**\W{0,6}(?:version\W{0,2})?3\.|2\.7\W{0,6}(?:\w+\W){0,2}\W{0,3}3\.", re.I)
_OPEN = re.compile(
    r"^\W{0,3}(\+|x\b|or\b|and (above|later|higher|newer|up)|above|later|higher|newer|[-~–/,]\s*3\.|to\b|and 3)", re.I
)  # fmt: skip
_AT_LEAST = re.compile(r"\bpython\**\W{0,4}(?:version\W{0,2})?(>=?|≥|&gt;|\bat least|from)\s*3\.", re.I)
_SENTENCE = 80  # characters
_TESTED = re.compile(
    r"\b(tested|verified|developed|implemented|built|written|trained|experiments)\b(?:[^\n.;]|\.(?=\d))*$",
    re.I,
)
_TORCH = re.compile(r"\bpy?torch\W{0,6}(?:version\W{0,2}|v)?(\d+)\.(\d+)", re.I)
_NO_TORCH_YET = (3, 0)  # "branch `pytorch4.1`"
_STARTED = re.compile(rf"python{_MINOR}\s")


def caps(minor: int, pin: Pin) -> dict[str, Pin]:
    """The newest releases for Python 3.`minor`, which `pin` asks for; empty for a newer Python."""
    return {
        package: Pin(package, f"<={newest[minor]}", False, pin.path, pin.line, pin.specifier)
        for package, newest in NEWEST.items()
        if minor in newest
    }


def asked(files: Mapping[str, bytes], paths: Iterable[str]) -> tuple[int, Pin] | None:
    """The newest Python that environment files, images and install commands ask for, else that a README names.

    None where nothing asks for one version: a lower bound ("3.8 or later") is none.
    """
    made: list[tuple[int, Pin]] = []
    named: list[tuple[int, Pin]] = []
    for path in sorted(paths):
        if len(files[path]) > MOST_BYTES:
            continue
        text = files[path].decode("utf-8", "replace")
        if is_environment(path, files[path]):
            made += _found(_IN_ENVIRONMENT, path, text)
        elif is_dockerfile(path):
            made += _found(_IN_IMAGE, path, text) + _found(_COMMAND, path, text)
        elif is_readme(path):
            made += _found(_COMMAND, path, text)
            listed = [match for match in _LISTED.finditer(text) if not _is_tested(match, text)]
            if not _AT_LEAST.search(text) and not any(_OPEN.search(match["after"]) for match in listed):
                pins = [_pin(match, path, text) for match in listed]
                pins += [] if _NAMES_3.search(text) else _listed_2(path, text)
                named += [found for found in pins if not _speaks_of_newer(text, found[0])]
    return max(made or named, key=lambda found: found[0], default=None)


def _listed_2(path: str, text: str) -> list[tuple[int, Pin]]:
    """Python 2.7, as a line of a README lists it."""
    return [
        (PYTHON_2, Pin("python", "python=2.7", True, path, text.count("\n", 0, match.end()) + 1))
        for match in _LISTED_2.finditer(text)
    ]


def _is_tested(match: re.Match[str], text: str) -> bool:
    """Does the sentence say that the code ran with it, which does not exclude a newer one?"""
    return _TESTED.search(text[max(0, match.start() - _SENTENCE) : match.start("after")]) is not None


def _speaks_of_newer(text: str, minor: int) -> bool:
    """Does the page name a torch that this Python does not have: "tested with PyTorch 2.0"?"""
    newest = NEWEST["torch"].get(minor, "99").split(".")[:2]
    named = ((int(match[1]), int(match[2])) for match in _TORCH.finditer(text))
    return any(tuple(map(int, newest)) < version < _NO_TORCH_YET for version in named)


def started(path: str, line: int, text: str) -> tuple[int, Pin] | None:
    """The Python of a command that starts a script: `python3.7 -m torch.distributed.launch train.py`."""
    match = _STARTED.search(text)
    if match is None:
        return None
    minor = int(match[1])
    return minor, Pin("python", f"python3.{minor}", True, path, line)


def is_environment(path: str, data: bytes) -> bool:
    """Is it an environment of conda: by its name, or as `conda env export` writes it, whatever its name?"""
    if _ENVIRONMENT.search(path) is not None:
        return True
    return path.endswith((".yml", ".yaml")) and _LISTS_PACKAGES.search(data[:MOST_BYTES]) is not None


def _found(pattern: re.Pattern[str], path: str, text: str) -> list[tuple[int, Pin]]:
    return [_pin(match, path, text) for match in pattern.finditer(text)]


def _pin(match: re.Match[str], path: str, text: str) -> tuple[int, Pin]:
    """Of the first group that took part: each way to write it has one of its own."""
    group = next(number for number, part in enumerate(match.groups(), 1) if part is not None)
    minor = int(match[group])
    line = text.count("\n", 0, match.start(group)) + 1
    return minor, Pin("python", f"python=3.{minor}", True, path, line)
