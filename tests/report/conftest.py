"""Reviews for the reports to show: an ordinary one, a silent one, and one whose every text is hostile."""

from __future__ import annotations

import dataclasses

import pytest

from ptopt.findings import (
    Edit,
    Evidence,
    Finding,
    Fix,
    Impact,
    NotReviewed,
    Place,
    Proof,
    Review,
    Safety,
    Severity,
    Span,
    UnusedSuppression,
    fingerprint,
)

SOURCE = """\
import torch


def train(model, loader, optimizer):
    total = 0.0
    for x, y in loader:
        loss = model(x, y)  # größer
        loss.backward()
        optimizer.step()
        total += loss.item()
        print(loss.item())
    return total
"""


AGAIN = Place(
    Span(9, 9), "PTO101", "item-every-step", "sync", "`loss.item()` waits for the GPU on every step."
)
OTHER = Place(  # of another rule
    Span(10, 10),
    "PTO205",
    "device-move-in-dataset",
    "transfer",
    "`loader` moves each item, see line 6.",
    "it must",
)


def finding_at(source: str, old: str, new: str, **changes: object) -> Finding:
    """A finding on the line of `old`, whose fix puts `new` in its place."""
    start = len(source[: source.index(old)].encode())
    line = source[: source.index(old)].count("\n") + 1
    found = Finding(
        rule="PTO101",
        name="item-every-step",
        family="sync",
        severity=Severity.HIGH,
        path="src/train.py",
        span=Span(line, line),
        symbol="train",
        message=f"`{old}` waits for the GPU on every step.",
        when_wrong="the value is needed on every step",
        confidence=0.9,
        fingerprint=fingerprint("PTO101", "src/train.py", "train", old),
        evidence=(Evidence(8, "the training step: `loss.backward()`"),),
        fix=Fix(Safety.SAFE, (Edit(start, start + len(old.encode()), new),)),
        impact=(
            Impact(
                "time", 1.3, 3.0, "this operation", "torch 2.13, CPU, 1 thread", "measured", "data/cpu.json"
            ),
        ),
    )
    return dataclasses.replace(found, **changes)  # type: ignore[arg-type]


@pytest.fixture
def review() -> Review:
    first = finding_at(SOURCE, "total += loss.item()", "total += loss.detach()", also=(AGAIN,))
    second = finding_at(
        SOURCE,
        "print(loss.item())",
        "pass",
        severity=Severity.LOW,
        rule="PTO104",
        name="tensor-logged-every-step",
        fix=Fix(Safety.DISPLAY, ()),
        impact=(Impact("memory", 1.0, 2.0, "the step", "H100", "published", "https://example.org/a_b"),),
        assumes="torch >= 2.4",
        evidence=(),
    )
    return Review(
        findings=(first, second),
        over_limit=(dataclasses.replace(first, path="src/other.py", fix=None),),
        suppressed=(dataclasses.replace(second, span=Span(12, 12)),),
        not_reviewed=tuple(NotReviewed(f"old{n}.py", "Python 2 code") for n in range(42)),
        unused_suppressions=(UnusedSuppression("src/train.py", 3, ("PTO101",)),),
        files_reviewed=7,
        sources={"src/train.py": SOURCE},
    )


@pytest.fixture
def silent() -> Review:
    return Review(findings=(), files_reviewed=12)


HOSTILE = "\x1b[31m[bold]x[/bold]\u202e @torvalds #1 ![a](http://evil.example) <img src=x> ```\n```\r\n::error::x\u2028%0A,:|`"


@pytest.fixture
def hostile() -> Review:
    source = f"x = 1\ny = '{HOSTILE.splitlines()[0]}'\n```\n@me\n"
    path = f"a b/{HOSTILE}.py"
    finding = finding_at(
        source,
        "x = 1",
        "x = 2  # \x1b]0;title\x07 ```` \u202e",
        path=path,
        span=Span(1, 4),
        name=HOSTILE,
        symbol=HOSTILE,
        message=HOSTILE,
        when_wrong=HOSTILE,
        assumes=HOSTILE,
        evidence=(Evidence(1, HOSTILE),),
        fix=Fix(Safety.UNSAFE, (Edit(0, 5, "x = 2  # \x1b]0;t\x07 ```` \u202e"),), HOSTILE),
        impact=(Impact("time", 1.0, 1.0, HOSTILE, HOSTILE, "measured", HOSTILE),),
        proof=Proof(refused=HOSTILE, why=HOSTILE),
    )
    return Review(
        findings=(finding,),
        over_limit=(finding,),
        suppressed=(finding,),
        not_reviewed=(NotReviewed(path + "\udc80", HOSTILE),),
        unused_suppressions=(UnusedSuppression(path, 1, (HOSTILE,)),),
        files_reviewed=1,
        sources={path: source},
    )
