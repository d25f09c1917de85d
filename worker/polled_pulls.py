"""Which pull requests are polled: those that we commented on, until nothing happens for long, or some days after the end."""

from __future__ import annotations

from datetime import datetime, timedelta

from sqlalchemy import case, select, update
from sqlalchemy.orm import Session

from service.database import insert
from service.leases import Claim
from service.models import PolledPull
from service.settings import Settings

_KEY = ("repository_id", "pull")


def active(
    session: Session, job: Claim, settings: Settings, now: datetime, *, reopened: bool = False
) -> None:
    """Something happened about our comments on the pull request of the job: poll it often again."""
    soon = now + timedelta(seconds=settings.poll_every)
    row = insert(session, PolledPull).values(
        repository_id=job.repository_id, pull=job.pull, active_at=now, next_poll_at=soon
    )
    earlier = case((PolledPull.next_poll_at < soon, PolledPull.next_poll_at), else_=soon)
    changed = {"active_at": now, "next_poll_at": earlier} | ({"closed_at": None} if reopened else {})
    session.execute(row.on_conflict_do_update(index_elements=_KEY, set_=changed))


def close(session: Session, job: Claim, now: datetime) -> None:
    """It was closed: poll it at once, and for some days. The second time changes nothing."""
    row = insert(session, PolledPull).values(
        repository_id=job.repository_id, pull=job.pull, active_at=now, closed_at=now, next_poll_at=now
    )
    changed = {"closed_at": now, "next_poll_at": now}
    session.execute(
        row.on_conflict_do_update(index_elements=_KEY, set_=changed, where=PolledPull.closed_at.is_(None))
    )


def lose(session: Session, job: Claim, now: datetime) -> None:
    """GitHub does not show it any more: as if it was closed, if it is polled at all."""
    known = update(PolledPull).where(
        PolledPull.repository_id == job.repository_id, PolledPull.pull == job.pull
    )
    session.execute(known.where(PolledPull.closed_at.is_(None)).values(closed_at=now, next_poll_at=now))


def is_open(session: Session, job: Claim) -> bool:
    """As far as we know."""
    row = select(PolledPull.closed_at).where(PolledPull.repository_id == job.repository_id)
    return session.scalar(row.where(PolledPull.pull == job.pull)) is None
