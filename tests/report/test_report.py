"""What all formats have in common."""

from __future__ import annotations

import dataclasses
import unicodedata

import pytest

from ptopt.cli_support import FORMATS as OFFERED
from ptopt.findings import Review
from ptopt.report import FORMATS, render


def test_the_command_offers_every_format() -> None:
    assert tuple(FORMATS) == OFFERED


@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize("case", ["review", "silent", "hostile"])
def test_a_report_is_deterministic_and_ends_in_one_newline(
    name: str, case: str, request: pytest.FixtureRequest
) -> None:
    review: Review = request.getfixturevalue(case)
    text = render(name, review)
    assert text == render(name, review)
    assert text.endswith("\n")
    assert not text.endswith("\n\n")


@pytest.mark.parametrize("name", FORMATS)
def test_a_report_without_sources_still_names_each_finding(name: str, review: Review) -> None:
    text = render(name, dataclasses.replace(review, sources=None))
    assert "PTO101" in text
    assert "PTO104" in text


@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize("color", [False, True])
def test_nothing_invisible_reaches_the_reader(name: str, color: bool, hostile: Review) -> None:
    text = render(name, hostile, color=color)
    text.encode("utf-8")  # no lone surrogate
    if name == "terminal" and color:
        from rich.text import Text

        assert "\x1b]" not in text
        text = Text.from_ansi(text).plain
    bad = {c for c in text if unicodedata.category(c) in ("Cc", "Cf", "Cs", "Zl", "Zp") and c != "\n"}
    assert not bad


@pytest.mark.parametrize("name", FORMATS)
def test_edits_outside_of_the_text_cost_the_diff_and_nothing_else(name: str, review: Review) -> None:
    short = dataclasses.replace(review, sources={"src/train.py": "x\n"})
    assert "PTO101" in render(name, short)
