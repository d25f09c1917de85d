"""What all formats have in common."""

from __future__ import annotations

import dataclasses
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ptopt.cli.options import FORMATS as OFFERED
from ptopt.findings import (
    Edit,
    Evidence,
    Finding,
    Fix,
    NotReviewed,
    Place,
    Review,
    Safety,
    Severity,
    Span,
)
from ptopt.report import FORMATS, render


def test_the_command_offers_every_format() -> None:
    assert (
        tuple(name for name in FORMATS if name != "statistics") == OFFERED
    )  # that one is an option of its own


@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize("case", ["review", "silent", "hostile"])
def test_a_report_is_deterministic_and_ends_in_one_newline(
    name: str, case: str, request: pytest.FixtureRequest
) -> None:
    review: Review = request.getfixturevalue(case)
    text = render(name, review)
    assert text == render(name, review)
    assert text.endswith("\n") or (name, case, text) == ("concise", "silent", "")
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


TEXT = st.text(alphabet=st.characters(), max_size=30)
SPAN = st.tuples(st.integers(1, 9), st.integers(0, 9)).map(lambda pair: Span(pair[0], sum(pair)))
EDIT = st.tuples(st.integers(0, 30), st.integers(0, 30), TEXT).map(lambda t: Edit(t[0], t[0] + t[1], t[2]))
PLACE = st.builds(Place, SPAN, st.sampled_from(["PTO101", "PTO104"]), TEXT, TEXT, TEXT, TEXT)
FINDING = st.builds(
    Finding,
    rule=st.just("PTO101"),
    name=TEXT,
    family=TEXT,
    severity=st.sampled_from(Severity),
    path=st.sampled_from(["a.py", "b.ipynb"]),
    span=SPAN,
    symbol=TEXT,
    message=TEXT,
    when_wrong=TEXT,
    confidence=st.floats(0, 1),
    fingerprint=st.just("0" * 32),
    evidence=st.lists(st.builds(Evidence, st.integers(1, 9), TEXT), max_size=2).map(tuple),
    fix=st.none() | st.builds(Fix, st.sampled_from(Safety), st.lists(EDIT, max_size=3).map(tuple), TEXT),
    also=st.lists(PLACE, max_size=2).map(tuple),
    assumes=TEXT,
)
REVIEW = st.builds(
    Review,
    findings=st.lists(FINDING, max_size=2).map(tuple),
    suppressed=st.lists(FINDING, max_size=1).map(tuple),
    not_reviewed=st.lists(st.builds(NotReviewed, TEXT, TEXT), max_size=2).map(tuple),
    sources=st.none() | st.dictionaries(st.sampled_from(["a.py", "b.ipynb"]), TEXT),
)


@given(REVIEW, st.sampled_from(sorted(FORMATS)), st.booleans())
def test_any_review_can_be_reported(review: Review, name: str, color: bool) -> None:
    text = render(name, review, color=color)
    assert text.encode("utf-8").endswith(b"\n") or (name == "concise" and not review.findings)
