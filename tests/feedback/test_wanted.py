"""What those who may write think of a rule now: whose votes count, and how much, and what a change of minds does."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from feedback import wanted
from feedback.labels import Vote, votes
from ptopt.learned import shifted
from tests.feedback.evidence import Row, at, comment
from tests.feedback.test_labels import VOTES


def says(
    hour: int, good: bool, person: str = "", *, rule: str = "PTO101", score: float = 0.4, writes: bool = True
) -> Vote:
    """In each hour another person, where nobody is named."""
    who = person or f"dev{hour}"
    one = comment(hour, rule=rule, score=score, author=who)
    return votes(one, [Row("verdict", "good" if good else "bad", who, writes, created_at=at(hour))])[0]


def share(cast: list[Vote], score: float = 0.4, rule: str = "PTO101") -> float:
    """How likely a comment of the rule is wanted."""
    found = wanted.estimates(cast).get(rule)
    return score if found is None else shifted(score, found.offset)


def test_without_votes_the_score_stands() -> None:
    assert wanted.estimates([]) == {} and share([]) == 0.4


def test_votes_move_it_both_ways() -> None:
    against = [share([says(n, False) for n in range(number)]) for number in (1, 2, 4, 8)]
    assert against == sorted(against, reverse=True) and against[0] > 0.1 > against[2]
    assert share([says(n, True) for n in range(4)]) > 0.8


def test_what_was_said_before_a_change_of_minds_counts_no_more() -> None:
    liked = [says(n, True) for n in range(20)]
    assert share(liked) > 0.9
    assert share([*liked, says(20, False)]) > 0.5  # one may err
    assert share([*liked, *(says(20 + n, False) for n in range(6))]) < 0.15
    unliked = [says(n, False, f"dev{n}") for n in range(8)]
    assert share([*unliked, *(says(20 + n, True, f"dev{n}") for n in range(5))]) > 0.34 > share(unliked)


def test_time_and_votes_on_others_take_nothing_away() -> None:
    alone = [says(n, n % 2 == 0) for n in range(10)]
    others = [says(20 + n, False, rule="PTO102") for n in range(50)]
    assert share([*alone, *others]) == share(alone)


def test_a_rule_that_is_sometimes_right_is_not_taken_for_an_unwanted_one() -> None:
    mixed = [says(n, n % 3 == 0) for n in range(12)]
    assert share([*mixed, says(13, False), says(14, False)]) > 0.1


def test_a_bad_word_on_a_doubtful_comment_says_little_of_a_sure_one() -> None:
    doubtful = [says(n, False, score=0.1) for n in range(2)]
    sure = [says(n, False, score=0.9) for n in range(2)]
    assert share(doubtful, 0.9) > 0.7 > share(sure, 0.9)


def test_twenty_votes_of_one_person_weigh_what_one_does() -> None:
    one, twenty = ([says(n, False, "dev") for n in range(number)] for number in (1, 20))
    assert share(twenty) == pytest.approx(share(one), abs=0.06)  # the rest: that it was a change of mind
    assert share(twenty) > share([says(n, False) for n in range(2)])


def test_nobody_hears_strangers_or_silence() -> None:
    honest = [says(n, n > 0) for n in range(3)]
    ring = [says(10 + n, False, writes=False) for n in range(5)]
    silent = votes(comment(30), [Row("closed", "merged", "", None, created_at=at(30))])
    assert [vote.kind for vote in silent] == ["silence"]
    assert share([*honest, *ring, *silent]) == share(honest)


def test_one_person_convinces_nobody_that_the_others_changed_their_minds() -> None:
    liked = [says(n, True) for n in range(8)]
    assert share([*liked, *(says(20 + n, False, "dev0") for n in range(20))]) > 0.34


def test_all_votes_of_a_person_count_together() -> None:
    """Who errs once in the newest vote is not taken for somebody who always thought so."""
    erred = [says(n, n < 12, f"dev{n % 4}") for n in range(16)]
    newest = [says(n, False, f"dev{n % 4}") for n in range(12, 16)]
    assert share(erred) > share(newest)


def test_how_long_nobody_was_asked() -> None:
    on_another = [says(n, True, rule="PTO102") for n in range(10, 15)]
    found = wanted.estimates(
        [says(1, False), *on_another, *(says(20 + n, False, writes=False) for n in range(5))]
    )
    assert (found["PTO101"].unasked, found["PTO102"].unasked) == (5, 0)


@given(VOTES, st.randoms(use_true_random=False))
def test_neither_order_nor_copies_of_votes_matter(cast: list[Vote], chance: Any) -> None:
    again = cast * 2
    chance.shuffle(again)
    assert wanted.estimates(again) == wanted.estimates(cast)
    assert all(vote.writes for vote in wanted.counted(cast))
    for found in wanted.estimates(cast).values():
        assert 0 < shifted(0.4, found.offset) < 1 and found.unasked >= 0
