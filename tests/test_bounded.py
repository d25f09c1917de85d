"""Files made to keep the reviewer busy: each ends within seconds and a gigabyte, and what was cut is named."""

from __future__ import annotations

import pytest

from ptopt import inspection
from ptopt.change import Change, whole_file
from ptopt.config import Config
from ptopt.inspection import FILE_WORK
from ptopt.project.facts import NO_FACTS
from ptopt.review import review_change
from ptopt.source.work import WorkLimitError, current, limited
from tests.hostile import PROGRAMS, STEP
from tests.limits import run_limited

_REVIEW = """
import sys
from ptopt.change import Change, whole_file
from ptopt.config import Config
from ptopt.project.facts import NO_FACTS
from ptopt.review import review_change

change = Change((whole_file({path!r}, sys.stdin.buffer.read()),), ())
print(review_change(change, config=Config(), facts=NO_FACTS).not_reviewed)
"""
_IN_PART = "reviewed in part: the analysis limit of one file was reached"
_REASONS = {
    "attention in one function": _IN_PART,
    "a long list": "treated as generated",
    "a list of many lines": "treated as generated",
    "nested parentheses": "too many nested parentheses",
}


@pytest.mark.slow
@pytest.mark.parametrize("case", PROGRAMS)
def test_a_review_ends_within_seconds_and_a_gigabyte(case: str) -> None:
    text = PROGRAMS[case]
    path = "train.ipynb" if text.startswith("{") else "train.py"
    assert _REASONS.get(case, "") in run_limited(_REVIEW.format(path=path), text.encode())


def test_the_files_after_the_work_of_a_change_is_spent_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inspection, "CHANGE_WORK", 10)
    change = Change(tuple(whole_file(path, STEP.encode()) for path in ("a.py", "b.py")), ())
    found = review_change(change, config=Config(), facts=NO_FACTS)
    assert [(note.path, note.reason.partition(":")[0]) for note in found.not_reviewed] == [
        ("a.py", "reviewed in part"),
        ("b.py", "not reviewed"),
    ]


def test_an_account_is_charged_and_closed() -> None:
    with limited(10) as work:
        current().charge(10)
        with pytest.raises(WorkLimitError):
            current().charge(1)
    assert work.spent == 11
    current().charge(FILE_WORK)  # outside of the block there is no limit
