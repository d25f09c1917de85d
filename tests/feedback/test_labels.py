"""From signals to votes, labels and opinions: who counts, for how much, and that no trick makes it more."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from feedback.labels import (
    FADES,
    ORGANISATION,
    STRANGERS,
    Vote,
    label,
    limited,
    opinions,
    outliers,
    per_organisation,
    votes,
)
from tests.feedback.evidence import COMMENTS, ROWS, Row, at, comment

VOTES = st.lists(st.tuples(COMMENTS, st.lists(ROWS, max_size=6)), max_size=8).map(
    lambda several: [vote for one, rows in several for vote in votes(one, rows)]
)


@pytest.mark.parametrize(
    ("rows", "good", "weight", "reason"),
    [
        ([Row("merged", "exact", "", None)], True, 1.0, "merged (1 of 1)"),
        ([Row("applied", "similar", "", None)], True, 0.95, "applied (1 of 1)"),
        ([Row("verdict", "bad")], False, 0.9, "verdict (1 of 1)"),
        ([Row("ignored", "rule")], False, 0.85, "ignored (1 of 1)"),
        ([Row("reply", "disagreement")], False, 0.8, "reply (1 of 1)"),
        ([Row("thread", "resolved")], True, 0.3, "thread (1 of 1)"),
        ([Row("reaction", "-1")], False, 0.7, "reaction (1 of 1)"),
        ([Row("closed", "merged", "", None)], False, 0.15, "merged without a reaction"),
        # What is trusted more decides, whoever says it and however many say otherwise.
        (
            [Row("merged", "exact", "", None), Row("verdict", "bad"), Row("verdict", "bad", "rev")],
            True,
            1.0,
            None,
        ),
        ([Row("verdict", "good"), Row("reaction", "-1", "rev"), Row("reaction", "-1", "x")], True, 0.9, None),
        # A resolved thread is done with; the reaction of the same person tells which way.
        ([Row("thread", "resolved"), Row("reaction", "-1")], False, 0.75, None),
        ([Row("thread", "resolved"), Row("thread", "unresolved", created_at=at(1))], None, 0.0, None),
        # The newest of one person and kind; a draw goes on to the next kind.
        ([Row("verdict", "good"), Row("verdict", "bad", created_at=at(1))], False, 0.9, None),
        (
            [Row("verdict", "good"), Row("verdict", "bad", "rev"), Row("reaction", "-1", "x")],
            False,
            0.7,
            "reaction (1 of 1)",
        ),
        # Nothing that says anything.
        ([Row("reply", "")], None, 0.0, "neither the author nor anybody with write access has answered"),
        ([Row("reaction", "eyes")], None, 0.0, None),
        ([Row("closed", "unmerged", "", None)], None, 0.0, None),
        ([Row("reaction", "-1", source="r"), Row("withdrawn", "-1", source="r")], None, 0.0, None),
        # Those who may not write do not count, but for the author.
        ([Row("verdict", "bad", "eve", False)], None, 0.0, None),
        ([Row("verdict", "bad", "eve", None)], None, 0.0, None),
        ([Row("verdict", "bad", "author", False)], False, 0.9, None),
    ],
)
def test_a_label(rows: list[Row], good: bool | None, weight: float, reason: str | None) -> None:
    found = label(comment(), rows)
    assert (found.good, found.weight) == (good, weight)
    assert reason is None or found.reason == reason


def test_nobody_is_the_author_where_the_author_is_not_known() -> None:
    assert votes(comment(author=""), [Row("verdict", "bad", "", False)]) == ()
    (merged,) = votes(comment(author=""), [Row("merged", "exact", "", None)])
    assert (merged.person, merged.voter, merged.writes) == ("", "#1", True)


def test_who_commits_a_suggestion_may_write_if_that_is_known_otherwise() -> None:
    """Nobody is named for a push, but GitHub resolves the conversation in the name of whoever commits a suggestion."""
    applied, resolved = Row("applied", "exact", "", None), Row("thread", "resolved", "author")
    for rows in ([applied, resolved], [Row("reaction", "+1", "author"), applied]):
        (vote,) = votes(comment(), rows)
        assert (vote.kind, vote.writes) == ("applied", True)
        (opinion,) = limited(opinions([vote]))
        assert opinion.weight == 0.95
    for others in ([], [Row("thread", "resolved", "author", False)], [Row("reaction", "+1", "dev")]):
        by_author = next(v for v in votes(comment(), [applied, *others]) if v.person == "author")
        assert not by_author.writes
    taken = [resolved, Row("reaction", "+1", "author", False, created_at=at(1)), applied]
    assert not votes(comment(), taken)[0].writes, "the newest of what is known counts"


def test_who_hid_a_comment_does_not_stand_for_an_author_who_is_not_known() -> None:
    applied, hidden = Row("applied", "exact", "", None), Row("hidden", "hidden", "", True)
    (vote,) = votes(comment(author=""), [applied, hidden])
    assert (vote.person, vote.kind, vote.writes) == ("", "applied", False)
    (alone,) = votes(comment(author=""), [hidden])
    assert (alone.kind, alone.writes) == ("hidden", True)


def test_a_stranger_who_replies_gives_an_applied_suggestion_no_weight() -> None:
    """Neither one who is not the author, nor an author who may not write, nor both together."""
    applied = Row("applied", "exact", "", None)
    other, author = (Row("reply", "agreement", who, False) for who in ("mallory", "author"))
    for replies in ([other], [author], [other, author]):
        (vote,) = votes(comment(), [applied, *replies])
        assert (vote.person, vote.kind, vote.writes) == ("author", "applied", False)


@given(COMMENTS, st.lists(ROWS, max_size=8), st.randoms(use_true_random=False))
def test_neither_order_nor_copies_of_signals_matter(one: Any, rows: list[Row], chance: Any) -> None:
    cast, found = votes(one, rows), label(one, rows)
    again = [*rows, *rows[: len(rows) // 2]]
    chance.shuffle(again)
    assert votes(one, again) == cast and label(one, again) == found
    assert len({vote.voter for vote in cast}) == len(cast)
    assert all(0 < vote.weight <= 1 for vote in cast)


@given(VOTES, st.randoms(use_true_random=False))
def test_neither_order_nor_copies_of_votes_matter(cast: list[Vote], chance: Any) -> None:
    found = limited(opinions(cast))
    again = cast * 2
    chance.shuffle(again)
    assert limited(opinions(again)) == found
    assert outliers(again) == outliers(cast)


@given(VOTES)
def test_a_person_has_one_vote_on_a_rule_and_strangers_have_one_together(cast: list[Vote]) -> None:
    found = limited(opinions(cast))
    assert len({(o.rule, o.voter) for o in found}) == len(found)
    assert all(o.weight <= 1 and 0 <= o.good <= 1 for o in found)
    for rule in {o.rule for o in found}:
        strangers = sum(o.weight for o in found if o.rule == rule and not o.writes)
        assert strangers <= STRANGERS + 1e-9


@given(st.lists(st.tuples(st.integers(1, 3), st.sampled_from(["PTO101", "PTO102"])), max_size=60))
def test_an_organisation_has_its_limit(of: list[tuple[int, str]]) -> None:
    weights = per_organisation(of)
    for key in set(of):
        assert of.count(key) * weights[key] == pytest.approx(min(of.count(key), ORGANISATION))


def cast_by(person: str, good: bool, number: int, *, writes: bool = True, first: int = 1) -> list[Vote]:
    """Votes on as many pull requests, the author of which the person is."""
    rows = [
        Row("verdict", "good" if good else "bad", person, writes, created_at=at(n)) for n in range(number)
    ]
    return [votes(comment(first + n, author=person), [row])[0] for n, row in enumerate(rows)]


def test_twenty_votes_of_one_person_weigh_what_one_does() -> None:
    (one,), (twenty,) = opinions(cast_by("dev", False, 1)), opinions(cast_by("dev", False, 20))
    assert (twenty.weight, twenty.good) == (one.weight, one.good) == (0.9, 0.0)


def test_a_change_of_mind_shows() -> None:
    (found,) = opinions(
        cast_by("dev", True, 10)
        + [dataclasses.replace(v, good=False) for v in cast_by("dev", True, 1, first=50)]
    )
    assert found.good > 0.5  # an old vote is no change of mind
    late = [dataclasses.replace(v, good=False, at=at(99)) for v in cast_by("dev", True, 1, first=50)]
    (found,) = opinions(cast_by("dev", True, 10) + late)
    assert found.good < 0.5


def test_older_opinions_fade() -> None:
    cast = [votes(comment(n), [Row("verdict", "bad", f"dev{n}", created_at=at(n))])[0] for n in range(1, 4)]
    weights = {o.voter: o.weight for o in limited(opinions(cast))}
    assert weights == pytest.approx({"dev3": 0.9, "dev2": 0.9 * FADES, "dev1": 0.9 * FADES**2})


def test_who_always_disagrees_is_reported_and_so_is_a_ring() -> None:
    rules = [f"PTO{n}" for n in range(100, 120)]
    cast = [
        votes(comment(n, rule=rule), [Row("verdict", "good", who), Row("verdict", "bad", "mallory")])
        for n, rule in enumerate(rules)
        for who in ("dev", "rev", "ann")
    ]
    found = outliers([vote for several in cast for vote in several])
    assert [(o.people, o.reason) for o in found] == [(("mallory",), "against the others in 20 of 20 votes")]
    ring = [v for n in range(20) for v in cast_by(f"ring{n:02}", False, 1, writes=False, first=n)]
    (found_ring,) = outliers([*ring, *cast_by("dev", True, 1)])
    assert len(found_ring.people) == 20 and "20 people without write access" in found_ring.reason
    assert outliers(cast_by("dev", True, 20) + cast_by("rev", True, 20)) == ()
