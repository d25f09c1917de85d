"""How the service is, and how long the viewer's own jobs wait."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from sqlalchemy import func, select
from sqlalchemy.orm import Session

import ptopt
from bot.dashboard.queries import jobs
from service.models import Job, JobState, ReviewRow

_RECENT = timedelta(days=1)
_MOST = 1_000  # reviews that latencies are taken of


@dataclass(frozen=True, slots=True)
class Health:
    """`checks`: name -> passed, of the process that answers. Seconds are None where nothing can be measured."""

    version: str
    checks: dict[str, bool]
    jobs: dict[str, int]
    oldest_due_seconds: float | None
    reviews: int  # of the last day
    median_seconds: float | None
    p95_seconds: float | None


def page(
    session: Session, scope: Collection[int], checks: Sequence[str], failing: Collection[str], now: datetime
) -> Health:
    due = select(func.min(Job.due_at)).where(
        Job.repository_id.in_(scope), Job.state == JobState.QUEUED.value, Job.due_at <= now
    )
    oldest = session.scalar(due)
    wanted = select(ReviewRow.received_at, ReviewRow.posted_at).where(ReviewRow.repository_id.in_(scope))
    rows = session.execute(wanted.order_by(ReviewRow.id.desc()).limit(_MOST))
    seconds = sorted(
        (posted - received).total_seconds() for received, posted in rows if posted > now - _RECENT
    )
    return Health(
        version=ptopt.__version__,
        checks={name: name not in failing for name in checks},
        jobs=jobs.counts(session, scope),
        oldest_due_seconds=None if oldest is None else (now - oldest).total_seconds(),
        reviews=len(seconds),
        median_seconds=_quantile(seconds, 0.5),
        p95_seconds=_quantile(seconds, 0.95),
    )


def _quantile(ordered: Sequence[float], share: float) -> float | None:
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))] if ordered else None
