"""Reactions, hidden and deleted comments, and what is left open: from what GitHub shows to what is new."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone

import pytest

from feedback.labels import TIERS, label
from feedback.signals import SignalKind, closed, hidden, reactions
from feedback.signals.replies import Says
from ptopt.github.values import Actor, PullResponses, Reaction, ThreadResponses
from service.models import Signal
from tests.feedback.evidence import Row, comment

NOW = datetime(2026, 11, 20, 12, tzinfo=timezone.utc)
ADA = Actor(7, "ada", False)


def reaction(number: int, actor: Actor = ADA) -> Reaction:
    return Reaction(number, "+1", actor, NOW)


def signal(value: str, source: str = "s") -> Signal:
    return Signal(kind="any", value=value, source=source, actor="", note="", created_at=NOW)


def test_reactions_that_are_new_and_that_are_gone() -> None:
    listed = [
        reaction(1),
        reaction(2),
        reaction(3, Actor(8, "ci[bot]", True)),
        reaction(4, Actor(0, "ghost", False)),
    ]
    known = [signal("+1", "reaction-1"), signal("-1", "reaction-9")]
    assert reactions.new(listed, known) == [reaction(2)]
    assert reactions.gone(listed, known) == [known[1]]


@pytest.mark.parametrize(
    ("reason", "standing", "value", "back"),
    [
        (None, [], None, []),
        ("spam", [], "hidden", []),
        ("", [], "hidden", []),
        ("of-a-later-year", [], "hidden", []),
        ("outdated", [], "outdated", []),
        ("off-topic", ["hidden"], None, []),
        (None, ["hidden"], None, ["hidden"]),
        ("resolved", ["hidden"], "resolved", ["hidden"]),
        ("spam", ["resolved"], "hidden", ["resolved"]),
    ],
)
def test_hidden_and_shown_again(
    reason: str | None, standing: list[str], value: str | None, back: list[str]
) -> None:
    new, taken = hidden.changed(reason, [signal(each) for each in standing])
    assert (new, [each.value for each in taken]) == (value, back)


def test_deleted() -> None:
    assert hidden.was_deleted(NOW - timedelta(hours=1), NOW, [])
    assert not hidden.was_deleted(NOW - timedelta(minutes=1), NOW, [])  # not listed yet
    assert not hidden.was_deleted(NOW - timedelta(hours=1), NOW, [signal("deleted")])


def thread(number: int, *, resolved: bool = False, outdated: bool = False) -> ThreadResponses:
    return ThreadResponses(number, resolved, outdated, None, (), True)


def test_left_open() -> None:
    threads = (thread(1), thread(2, resolved=True), thread(3, outdated=True))
    assert closed.left_open(PullResponses(False, True, "a", threads)) == ("merged", {1})
    assert closed.left_open(PullResponses(False, False, "a", threads)) == ("unmerged", {1})
    assert closed.left_open(PullResponses(True, False, "a", threads))[1] == frozenset()


def test_labels_know_every_value_that_says_something() -> None:
    said = {tier.kind: set(tier.says) for tier in TIERS}
    assert said[SignalKind.REPLY.value] == {s.value for s in Says} - {"", "question"}
    assert said[SignalKind.HIDDEN.value] == {hidden.HIDDEN, hidden.DELETED}
    assert {tier.kind for tier in TIERS} | {"closed", "withdrawn"} == {kind.value for kind in SignalKind}


def test_who_hid_a_comment_may_write_and_is_not_the_author() -> None:
    hid = Row("hidden", "hidden", "", True, "poll-1")
    found = label(comment(), [hid])
    assert (found.good, found.weight, found.reason) == (False, 0.8, "hidden (1 of 1)")
    # The author's own word stands beside it, and is less trusted.
    assert label(comment(), [hid, Row("reaction", "+1", "author", False)]).reason == "hidden (1 of 1)"
    assert label(comment(), [hid, Row("merged", "exact", "", None)]).good is True
    assert label(comment(), [hid, Row("withdrawn", "hidden", "", True, "poll-1")]).good is None
    assert label(comment(), [Row("hidden", "resolved", "", True, "poll-1")]).good is None


def test_what_was_applied_and_undone_says_nothing() -> None:
    rows = [Row("applied", "exact", "", None, "abc"), Row("withdrawn", "exact", "", None, "abc")]
    assert label(comment(), rows).good is None
    assert label(comment(), [*rows, Row("applied", "exact", "", None, "def")]).good is True
