from __future__ import annotations

from datetime import datetime, timedelta, timezone

from ptopt.github import markers
from ptopt.github.pullstate import PullState, fold, ignore
from ptopt.github.values import Actor, IssueComment, PostedComment

US = "ptopt[bot]"
START = datetime(2026, 11, 20, tzinfo=timezone.utc)


def said(at: int, *effects: str, login: str = US, before: str = "") -> IssueComment:
    body = f"{before}{markers.answer(7, 'abc', *effects)}\ntext"
    return IssueComment(100 + at, Actor(1, login, True), body, START + timedelta(seconds=at))


def replied(at: int, *effects: str) -> PostedComment:
    body = f"{markers.answer(7, 'abc', *effects)}\ntext"
    time = START + timedelta(seconds=at)
    return PostedComment(at, Actor(1, US, True), body, "a.py", 1, 1, "0" * 40, None, 3, time)


def test_nothing_said_is_nothing_in_force() -> None:
    assert fold(US, []) == PullState(paused=False, ignored=frozenset())
    assert fold(US, [said(1)]) == PullState()


def test_the_last_word_counts_wherever_it_stands() -> None:
    assert fold(US, [said(1, "pause")]).paused
    assert not fold(US, [said(1, "pause"), replied(2, "resume")]).paused
    assert fold(US, [said(3, "pause"), replied(2, "resume")]).paused
    assert not fold(US, [said(1, "pause", "resume")]).paused


def test_ignored_rules_and_findings_add_up() -> None:
    state = fold(US, [said(1, ignore("PTO101")), replied(2, ignore("f" * 32), ignore("PTO102"))])
    assert state.ignored == {"PTO101", "PTO102", "f" * 32}


def test_what_others_write_does_not_count() -> None:
    assert fold(US, [said(1, "pause", login="mallory")]) == PullState()
    assert fold(US, [said(1, "pause", login="ptopt")]) == PullState()


def test_a_marker_counts_where_the_body_begins_only() -> None:
    assert fold(US, [said(1, "pause", before="> quoted\n")]) == PullState()


def test_the_comment_id_and_the_digest_are_no_effects() -> None:
    body = f"{markers.answer(7, 'pause')}\ntext"
    assert fold(US, [IssueComment(1, Actor(1, US, True), body, START)]) == PullState()
