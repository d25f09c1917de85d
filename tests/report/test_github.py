from __future__ import annotations

import dataclasses

from ptopt.findings import Review
from ptopt.report import render


def test_one_command_per_finding(review: Review) -> None:
    lines = render("github", review).splitlines()
    assert lines[0].startswith(
        "::warning file=src/train.py,line=10,endLine=10,title=PTO101 item-every-step::"
        "`total += loss.item()` waits for the GPU on every step.%0AGain: 1.3–3× faster on this operation (measured: "
    )
    assert lines[1].startswith("::notice file=src/train.py,line=11,")
    assert lines[2:] == [
        "Not shown (comment limit reached): PTO101 at src/other.py:10",
        "Not reviewed: 42 files",
        "2 performance findings at 3 places in 1 of 7 files.",
    ]


def test_silence(silent: Review) -> None:
    assert render("github", silent) == "No performance findings in 12 files.\n"


def test_properties_are_escaped(review: Review) -> None:
    odd = dataclasses.replace(review.findings[0], path="a,b:c%.py", message="100%", impact=(), when_wrong="")
    line = render("github", dataclasses.replace(review, findings=(odd,), over_limit=())).splitlines()[0]
    assert line.startswith("::warning file=a%2Cb%3Ac%25.py,line=10,endLine=10,title=")
    assert "::100%25%0AAlso at line 9" in line


def test_hostile_text_starts_no_command_of_its_own(hostile: Review) -> None:
    lines = render("github", hostile).splitlines()
    assert [line.startswith("::") for line in lines] == [True, False, False, False]
