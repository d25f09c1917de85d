"""Signals: kept once each, without people, paths or code."""

from __future__ import annotations

from datetime import datetime, timezone

import pytest
from sqlalchemy import Engine, select

from feedback import signals
from feedback.signals import SignalKind
from service.database import reading, writing
from service.models import CommentRow, Installation, Repository, ReviewRow, Signal

NOW = datetime(2026, 11, 20, 12, tzinfo=timezone.utc)


@pytest.fixture
def comment(engine: Engine) -> CommentRow:
    with writing(engine) as session:
        session.add(Installation(id=1, account="octo", created_at=NOW))
        session.flush()
        session.add(Repository(id=2, installation_id=1, full_name="octo/models"))
        session.flush()
        review = ReviewRow(
            repository_id=2,
            pull=7,
            head_sha="a" * 40,
            ptopt_version="0",
            files_reviewed=1,
            findings=1,
            received_at=NOW,
            posted_at=NOW,
        )
        session.add(review)
        session.flush()
        row = CommentRow(
            review_id=review.id,
            repository_id=2,
            pull=7,
            github_id=3,
            rule="PTO101",
            fingerprint="f",
            origin="rule",
            confidence=0.9,
            path_hash="p",
            posted_at=NOW,
        )
        session.add(row)
    with reading(engine) as session:
        return session.scalars(select(CommentRow)).one()


def record(engine: Engine, comment: CommentRow, value: str = "bad", actor: str = "a", note: str = "") -> None:
    with writing(engine) as session:
        kind = SignalKind.VERDICT
        signals.record(session, comment, kind, value, actor=actor, source="s", now=NOW, note=note)


def stored(engine: Engine) -> list[tuple[str, str, str]]:
    with reading(engine) as session:
        found = session.scalars(select(Signal).order_by(Signal.id))
        return [(signal.value, signal.actor, signal.note) for signal in found]


def test_once_for_each_person_and_value(engine: Engine, comment: CommentRow) -> None:
    for value, actor in [("bad", "a"), ("bad", "a"), ("good", "a"), ("bad", "b")]:
        record(engine, comment, value, actor)
    assert stored(engine) == [("bad", "a", ""), ("good", "a", ""), ("bad", "b", "")]


def test_the_note_of_the_second_time_counts(engine: Engine, comment: CommentRow) -> None:
    for note in ("runs once", "", "runs twice"):
        record(engine, comment, note=note)
    assert stored(engine) == [("bad", "a", "runs twice")]


def test_notes_are_short_and_visible(engine: Engine, comment: CommentRow) -> None:
    record(engine, comment, actor="a", note="no\x00 \u202e\n\nfun \ud800")
    record(engine, comment, actor="b", note="ü" * 501)
    assert stored(engine) == [("bad", "a", r"no\x00 \u202e fun \ud800"), ("bad", "b", "ü" * 500)]


def test_ours_among_several(engine: Engine, comment: CommentRow) -> None:
    with reading(engine) as session:
        found = signals.comment_of(session, 2, [1, 2, 3])
        assert found is not None and found.id == comment.id
        assert signals.comment_of(session, 2, [1, 2]) is None
        assert signals.comment_of(session, 2, []) is None
        assert signals.comment_of(session, 9, [3]) is None  # a comment of another repository


def test_hashes_need_the_key() -> None:
    one, other = signals.hashed("1001", b"key"), signals.hashed("1001", b"other key")
    assert one != other and len(one) == 32
    assert one == signals.hashed("1001", b"key")
    assert len(signals.hashed("\ud800", b"key")) == 32
