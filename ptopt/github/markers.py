"""How we recognise our own comments: HTML comments on the first lines of a body.

They count only in a body that we wrote (the caller compares the author with our identity), and only where the
body begins: text of the pull request that we quote further down cannot pass for one.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

_LINE = re.compile(r"<!-- ptopt:([a-z-]{1,20})((?: [\w.,=-]{1,200}){0,8}) -->", re.A)


@dataclass(frozen=True, slots=True)
class Marker:
    """`<!-- ptopt:kind word word -->`; a word has letters, digits and `_ . , = -`."""

    kind: str
    words: tuple[str, ...] = ()

    def __str__(self) -> str:
        text = " ".join(("<!-- ptopt:" + self.kind, *self.words, "-->"))
        if not _LINE.fullmatch(text):
            raise ValueError(f"not a marker: {text!r}")
        return text


def finding(rule: str, fingerprint: str) -> Marker:
    """Begins a review comment."""
    return Marker("finding", (rule, fingerprint))


def review(head_sha: str) -> Marker:
    """Begins the body of a review."""
    return Marker("review", (head_sha,))


def answer(comment_id: int, commands: str, *effects: str) -> Marker:
    """Begins the answer to the slash commands of a comment; `commands` is their digest, which distinguishes edits.

    Effects: `pause`, `resume`, `ignore=RULE`, `ignore=FINGERPRINT`.
    """
    return Marker("answer", (str(comment_id), commands, *effects))


def full(head_sha: str) -> Marker:
    """Begins the comment on what stands in the files of a head beside the change."""
    return Marker("full", (head_sha,))


def config() -> Marker:
    """Begins the comment on the configuration that the pull request brings."""
    return Marker("config")


def read(body: str) -> tuple[Marker, ...]:
    """The markers that `body` begins with, one a line."""
    found = []
    for line in body.split("\n"):
        match = _LINE.fullmatch(line.rstrip("\r"))
        if match is None:
            break
        found.append(Marker(match[1], tuple(match[2].split())))
    return tuple(found)


def first(body: str, kind: str) -> Marker | None:
    """The first marker of that kind, if `body` begins with one."""
    return next((marker for marker in read(body) if marker.kind == kind), None)
