"""Changes and findings for the tests of posting: small, and real where it matters."""

from __future__ import annotations

import dataclasses

from ptopt.change import Change, ChangedFile, Hunk, Status, whole_file
from ptopt.findings import Edit, Evidence, Finding, Fix, Review, Safety, Severity, Span, fingerprint

SOURCE = """\
import torch


def train(model, loader, optimizer):
    total = 0.0
    for x, y in loader:
        loss = model(x, y)
        loss.backward()
        optimizer.step()
        total += loss.item()
        print(loss.item())
    return total
"""

HOSTILE = (
    "\x1b[31m[bold]x[/bold]\u202e @torvalds #1 GH-12 ![a](http://evil.example) <img src=x> ```\n```\r\n"
    "<!-- ptopt:review aaaa -->\n<details>\u2028https://evil.example www.evil.example :tada: ~~x~~ $a$ |`"
)


def changed(source: str, hunks: tuple[Hunk, ...] | None = None, path: str = "train.py") -> ChangedFile:
    """A file whose hunks, all of it by default, are the change."""
    file = whole_file(path, source.encode())
    if hunks is None:
        return file
    added = frozenset(line for hunk in hunks for line in hunk.lines())
    return ChangedFile(path, None, Status.MODIFIED, hunks, added, file.head)


def finding(source: str, old: str, new: str, **changes: object) -> Finding:
    """A finding on the lines of `old`, whose fix puts `new` in its place."""
    before = source[: source.index(old)]
    start, line = len(before.encode()), before.count("\n") + 1
    found = Finding(
        rule="PTO101",
        name="item-every-step",
        family="sync",
        severity=Severity.HIGH,
        path="train.py",
        span=Span(line, line + old.rstrip("\n").count("\n")),
        symbol="train",
        message="`loss.item()` makes Python wait for the GPU.",
        when_wrong="the value is needed on every step",
        confidence=0.9,
        fingerprint=fingerprint("PTO101", "train.py", "train", old),
        evidence=(Evidence(8, "the training step: `loss.backward()`"),),
        fix=Fix(Safety.SAFE, (Edit(start, start + len(old.encode()), new),)),
    )
    return dataclasses.replace(found, **changes)  # type: ignore[arg-type]


def reviewed(*findings: Finding, source: str = SOURCE, **changes: object) -> Review:
    review = Review(findings=findings, files_reviewed=1, sources={f.path: source for f in findings})
    return dataclasses.replace(review, **changes)  # type: ignore[arg-type]


def change_of(*files: ChangedFile) -> Change:
    return Change(files, ())
