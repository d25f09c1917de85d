"""The rows of signals: one for one thing that one person did about a comment. Append-only."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Iterable
from datetime import datetime

from sqlalchemy import select
from sqlalchemy.orm import Session

from feedback.signals.kinds import SignalKind
from ptopt.report.text import one_line
from service.database import insert
from service.models import CommentRow, Signal

_KEY = ("comment_id", "kind", "actor", "value", "source")
_LONGEST_NOTE = 500  # characters


def hashed(text: str, key: bytes) -> str:
    """A name for a person or a path that tells nothing to whom the key is unknown. 32 hexadecimal digits."""
    return hmac.new(key, text.encode("utf-8", "surrogatepass"), hashlib.sha256).hexdigest()[:32]


def record(
    session: Session,
    comment: CommentRow,
    kind: SignalKind,
    value: str,
    *,
    actor: str,
    source: str,
    now: datetime,
    actor_writes: bool | None = None,
    note: str = "",
) -> None:
    """Add the signal, unless it is known: then only its note may be a newer one.

    `actor` is a hash, "" where nobody can be named. Of `note`, 500 characters are kept, the invisible ones escaped.
    """
    text = one_line(note)[:_LONGEST_NOTE]
    row = insert(session, Signal).values(
        comment_id=comment.id,
        kind=kind.value,
        value=value,
        actor=actor,
        actor_writes=actor_writes,
        source=source,
        note=text,
        created_at=now,
    )
    if text:
        session.execute(row.on_conflict_do_update(index_elements=_KEY, set_={"note": text}))
    else:
        session.execute(row.on_conflict_do_nothing())


def comments_of(session: Session, repository_id: int, pull: int) -> list[CommentRow]:
    """Our comments on a pull request, oldest first."""
    found = select(CommentRow).where(CommentRow.repository_id == repository_id, CommentRow.pull == pull)
    return list(session.scalars(found.order_by(CommentRow.id)))


def comment_of(session: Session, repository_id: int, github_ids: Iterable[int]) -> CommentRow | None:
    """Our comment among these review comments."""
    found = select(CommentRow).where(
        CommentRow.repository_id == repository_id, CommentRow.github_id.in_(list(github_ids))
    )
    return session.scalars(found.order_by(CommentRow.id).limit(1)).first()


def known(session: Session, comment: CommentRow, kinds: Iterable[SignalKind]) -> list[Signal]:
    """The signals of these kinds about the comment."""
    wanted = [kind.value for kind in kinds]
    return list(
        session.scalars(select(Signal).where(Signal.comment_id == comment.id, Signal.kind.in_(wanted)))
    )


def standing(session: Session, comment: CommentRow, kinds: Iterable[SignalKind]) -> list[Signal]:
    """Those of the signals of these kinds that nobody took back."""
    found = known(session, comment, [*kinds, SignalKind.WITHDRAWN])
    withdrawn = {(s.actor, s.value, s.source) for s in found if s.kind == SignalKind.WITHDRAWN.value}
    return [
        s
        for s in found
        if s.kind != SignalKind.WITHDRAWN.value and (s.actor, s.value, s.source) not in withdrawn
    ]


def withdraw(session: Session, comment: CommentRow, signal: Signal, now: datetime) -> None:
    """Take back a signal that no longer holds."""
    record(
        session,
        comment,
        SignalKind.WITHDRAWN,
        signal.value,
        actor=signal.actor,
        actor_writes=signal.actor_writes,
        source=signal.source,
        now=now,
    )
