"""What people read in place of the names in the database."""

from __future__ import annotations

import pytest

from bot.dashboard import words
from bot.dashboard.queries.reviews import SignalLine
from feedback.labels import TIERS, label
from feedback.signals import SignalKind
from tests.feedback.evidence import NOW, Row, comment


def said(kind: str, value: str) -> str:
    return words.signal(SignalLine(kind, value, True, "", NOW))


@pytest.mark.parametrize(
    ("kind", "value", "text"),
    [
        ("reaction", "+1", "reaction 👍"),
        ("withdrawn", "-1", "👎 taken back"),
        ("verdict", "bad", "/ptopt feedback bad"),
        ("applied", "exact", "suggestion committed"),
        ("thread", "resolved", "conversation resolved"),
        ("reply", "", "reply"),
        ("new", "thing", "new thing"),
    ],
)
def test_a_signal(kind: str, value: str, text: str) -> None:
    assert said(kind, value) == text


def test_no_signal_is_shown_as_the_database_names_it() -> None:
    for tier in TIERS:
        for value in tier.says:
            assert said(tier.kind, value) != f"{tier.kind} {value}" or tier.kind in ("reply", "reaction")


def test_the_reason_of_a_label() -> None:
    one = [Row("verdict", "bad")]
    three = [*one, Row("verdict", "bad", "rev"), Row("verdict", "good", "author")]
    assert words.reason(label(comment(), one).reason) == "/ptopt feedback"
    assert words.reason(label(comment(), three).reason) == "/ptopt feedback, 2 of 3 people"
    assert words.reason(label(comment(), []).reason).startswith("neither the author")
    for tier in TIERS:
        if tier.says:
            rows = [Row(tier.kind, next(iter(tier.says)))]
            assert "(" not in words.reason(label(comment(), rows).reason)


def test_what_weights_were_learned_from() -> None:
    spelt = words.learned_from("2323 judged comments (R 743 T 1309 W 271)")
    assert spelt == "2,323 judged comments: 743 useful, 1,309 true but trivial, 271 wrong"
    retrained = "12 judged comments and 3 that people answered"
    assert words.learned_from(retrained) == retrained


def test_every_kind_of_vote_has_words() -> None:
    assert {SignalKind(tier.kind) for tier in TIERS} <= set(words._KINDS)
