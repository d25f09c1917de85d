"""The App was installed, removed or suspended somewhere, or sees other repositories. Removed: its data goes, too."""

from __future__ import annotations

from datetime import datetime, timezone

from sqlalchemy import delete
from sqlalchemy.orm import Session

from ptopt.github.errors import SupersededError
from service import leases
from service.database import insert, writing
from service.jobs import InstallationPayload
from service.models import DeliveryRow, Installation, Job, Repository
from worker.job_context import JobContext
from worker.review_records import add_repository


def handle(context: JobContext, payload: InstallationPayload) -> str:
    job, installation_id, action = context.job, payload.installation_id, payload.action
    with writing(context.engine) as session:
        if not leases.is_ours(session.connection(), job):
            raise SupersededError("the App was removed")
        if action == "deleted":
            _forget(session, installation_id, but=job.id)
            return ""
        row = insert(session, Installation).values(
            id=installation_id,
            account=payload.account,
            suspended=action == "suspend",
            created_at=datetime.now(timezone.utc),
        )
        changed: dict[str, object] = {"account": payload.account}
        if action in ("suspend", "unsuspend"):
            changed["suspended"] = action == "suspend"
        session.execute(row.on_conflict_do_update(index_elements=["id"], set_=changed))
        for each in payload.repositories:
            add_repository(session, installation_id, each.id, each.full_name, private=each.private)
        jobs = delete(Job).where(Job.installation_id == installation_id, Job.id != job.id)
        session.execute(jobs.where(Job.repository_id.in_(payload.removed)))
        removed = delete(Repository).where(Repository.installation_id == installation_id)
        session.execute(removed.where(Repository.id.in_(payload.removed)))
    return ""


def _forget(session: Session, installation_id: int, *, but: int) -> None:
    """Delete all but the job that does it, which shows no more than that there was an installation.

    The jobs go first: one that runs sees it before it stores anything, or has stored it by then.
    """
    session.execute(delete(Job).where(Job.installation_id == installation_id, Job.id != but))
    session.execute(delete(Installation).where(Installation.id == installation_id))
    session.execute(delete(DeliveryRow).where(DeliveryRow.installation_id == installation_id))
