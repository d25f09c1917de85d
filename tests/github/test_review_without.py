"""What people silenced is not heard of, and leaves its place to the next finding."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from ptopt.change import Change, Hunk, whole_file
from ptopt.config import Config
from ptopt.github.pipeline import review_without
from ptopt.project.facts import NO_FACTS
from ptopt.review import review_change

EXAMPLE = Path(__file__).parents[2] / "examples" / "pull-request" / "head"
CHANGE = Change(
    tuple(whole_file(name, (EXAMPLE / name).read_bytes()) for name in ("model.py", "train.py")), ()
)
CONFIG = Config()
PLAIN = review_change(CHANGE, config=CONFIG, facts=NO_FACTS)


def test_nothing_silenced_is_the_plain_review() -> None:
    assert len(PLAIN.findings) == 5 and PLAIN.over_limit
    assert review_without(CHANGE, CONFIG, NO_FACTS, ()) == (PLAIN, ())


@pytest.mark.parametrize("count", [1, 3, 6])
def test_a_silenced_finding_leaves_its_place_to_the_next(count: int) -> None:
    ranked = [*PLAIN.findings, *PLAIN.over_limit]
    silenced = {finding.fingerprint for finding in ranked[:count]}
    review, _ = review_without(CHANGE, CONFIG, NO_FACTS, silenced)
    assert [*review.findings, *review.over_limit] == ranked[count:]
    assert len(review.findings) == min(5, len(ranked) - count)
    assert {finding.path for finding in review.findings} <= set(review.sources or {})


def test_a_silenced_rule_is_off_by_its_id_its_name_and_its_family() -> None:
    first = PLAIN.findings[0]
    for key in (first.rule, first.name, first.family):
        review, _ = review_without(CHANGE, CONFIG, NO_FACTS, {key, "no-such-rule"})
        assert first.fingerprint not in {f.fingerprint for f in (*review.findings, *review.over_limit)}
    assert not Config().ignore


def test_with_full_the_rest_of_the_changed_files_is_told_too() -> None:
    train = CHANGE.files[1]
    line = next(f.span.start for f in PLAIN.findings if f.name == "anomaly-detection-on")
    touched = dataclasses.replace(train, hunks=(Hunk(line, 1),), added=frozenset({line}))
    change = Change((touched,), ())
    review, elsewhere = review_without(change, CONFIG, NO_FACTS, (), full=True)
    assert [f.name for f in review.findings] == ["anomaly-detection-on"]
    comments = [f for f in (*PLAIN.findings, *PLAIN.over_limit) if f.path == "train.py"]
    everything = {place.name for f in comments for place in f.places()}
    assert {f.name for f in elsewhere} == everything - {"anomaly-detection-on"}
    # Each place is told, also the ones that a review would mention in the comment on another one.
    assert len([f for f in elsewhere if f.name == "item-every-step"]) == 2
    silenced = {elsewhere[0].fingerprint, "anomaly-detection-on"}
    review, left = review_without(change, CONFIG, NO_FACTS, silenced, full=True)
    assert (review.findings, left) == ((), elsewhere[1:])
