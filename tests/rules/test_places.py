"""Comments stand on lines that the change added, whichever lines these are."""

from __future__ import annotations

import pytest

from ptopt.change import ChangedFile, Hunk, Status
from ptopt.config import Config
from ptopt.project.facts import NO_FACTS
from ptopt.review import review_files
from ptopt.rules import known_names, rules
from ptopt.rules.examples import as_file

EXAMPLES = [
    pytest.param(as_file(case.code), number, id=f"{rule.id}-{number}")
    for rule in rules()
    for number, case in enumerate(rule.INVALID)
]
EVERYTHING = Config().model_copy(update={"select": tuple(known_names()), "min_confidence": 0.0, "skip": ()})


@pytest.mark.parametrize(("code", "number"), EXAMPLES)
def test_each_place_of_a_comment_is_on_an_added_line(code: str, number: int) -> None:
    count = code.count("\n")
    added = frozenset(range(1 + number % 2, count + 1, 2))  # every other line is new
    change = ChangedFile("lib/code.py", None, Status.MODIFIED, (Hunk(1, count),), added, code.encode())
    review = review_files([change], config=EVERYTHING, facts=NO_FACTS, limit_to_change=True)
    for finding in (*review.findings, *review.over_limit):
        for place in finding.places():
            assert not added.isdisjoint(place.span.lines()), f"{finding.name}: {finding.message}"
