"""Installations of Python packages in the text of a shell script; the text is searched, never run."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

_INSTALL = re.compile(
    r"(?<![\w./-])(?P<tool>uv[ \t]+pip|(?:python[\d.]*[ \t]+-m[ \t]+)?pip[\d.]*|(?:conda|mamba|micromamba))[ \t]+"
    r"(?:-\S+[ \t]+)*install\b(?P<rest>(?:[^\n;&|#\\]|\\\r?\n|\\(?!\r?\n))*)"
)
_LONGEST_LINE = 200
_SPACE = " \t\r\n\\"
_COMMENTED = re.compile(r"(?:^|(?<=\s))#", re.MULTILINE)
_NAME = re.compile(r"[\"']?([A-Za-z0-9][\w.-]*)")
_VALUED = frozenset(
    {
        "-r",
        "--requirement",
        "-c",
        "--constraint",
        "-i",
        "--index-url",
        "--extra-index-url",
        "-f",
        "--find-links",
        "-t",
    }
    | {
        "--target",
        "--prefix",
        "--cache-dir",
        "--timeout",
        "--progress-bar",
        "--index",
        "--torch-backend",
        "--python",
    }
    | {"--trusted-host", "--src", "--platform", "--python-version", "-e", "--editable"}
)


@dataclass(frozen=True, slots=True)
class Install:
    """One command. `start` and `end` are offsets in the text, `after` is where its first argument may stand."""

    tool: str  # "pip" | "uv" | "conda"
    packages: frozenset[str]  # in lower case, without versions
    requirements: tuple[str, ...]  # files
    local: bool  # of the project itself: `.`, `-e .`
    text: str
    start: int
    after: int
    end: int


def installs(text: str) -> Iterator[Install]:
    """The commands that install packages, in order."""
    for match in _INSTALL.finditer(text):
        near = max(
            match.start() - _LONGEST_LINE, 0
        )  # a Dockerfile may hold thousands of commands on one line
        if _COMMENTED.search(text, max(text.rfind("\n", near, match.start()) + 1, near), match.start()):
            continue
        tool = match["tool"].split()[0]
        kind = "uv" if tool == "uv" else "conda" if tool.endswith(("conda", "mamba")) else "pip"
        words = match["rest"].replace("\\\n", " ").replace("\\\r\n", " ").replace("\\ ", " ").split()
        packages: set[str] = set()
        requirements: list[str] = []
        local = False
        at = 0
        while at < len(words):
            word = words[at]
            at += 1
            if word.startswith("-"):
                if word in _VALUED and at < len(words):
                    if word in ("-r", "--requirement"):
                        requirements.append(words[at].strip("\"'"))
                    local |= word in ("-e", "--editable") and words[at].strip("\"'").startswith(".")
                    at += 1
                elif word.startswith("-r") and len(word) > 2:
                    requirements.append(word[2:])
            elif word.strip("\"'").startswith((".", "/")):
                local |= not word.endswith(".whl")
            elif name := _NAME.match(word):
                packages.add(name[1].lower().replace("_", "-"))
        yield Install(
            kind, frozenset(packages), tuple(requirements), local, match[0].rstrip(_SPACE), match.start(), match.start("rest"),
            match.start() + len(match[0].rstrip(_SPACE)),
        )  # fmt: skip
