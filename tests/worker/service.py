"""The service without its processes: what the fake GitHub delivers becomes jobs, and the jobs are run, in order."""

from __future__ import annotations

import json
import uuid

from sqlalchemy import select

from bot import events
from fake_github import Delivery, FakeGitHub
from service import inbox
from service.database import reading
from service.models import Base, CommentRow, Job, Signal
from tests.worker.processes import free_port
from tests.worker.pulls import now
from tests.worker.rows import change, row
from worker.job_context import Resources
from worker.run_job import execute

KindAndValue = tuple[str, str]


class Service:
    """`catch_up` after each thing that people did."""

    def __init__(self, resources: Resources, github: FakeGitHub) -> None:
        self.resources, self.github = resources, github
        github.webhook_url = f"http://127.0.0.1:{free_port()}/"  # nobody listens: the log is read
        self._seen = 0

    def catch_up(self) -> list[Job]:
        """Take what was delivered, and work until nothing waits; the jobs that were run."""
        self.github.drain()
        new, self._seen = self.github.deliveries[self._seen :], len(self.github.deliveries)
        for delivery in new:
            self.take(delivery)
        return self._work()

    def twice(self) -> None:
        """Take everything once more, under other ids: they are not signed, so that anybody may do it."""
        self.github.drain()
        for delivery in self.github.deliveries:
            self.take(delivery, guid=str(uuid.uuid4()))
        self._work()

    def take(self, delivery: Delivery, guid: str | None = None) -> None:
        entry = events.load().get(delivery.event)
        handler = entry.handlers.get(delivery.action or "") if entry else None
        if entry is None or handler is None:
            return
        event = entry.model.model_validate(json.loads(delivery.body))
        jobs = handler(event, events.Delivery(delivery.body, 0.0))
        inbox.accept(
            self.resources.engine,
            guid or delivery.guid,
            delivery.event,
            delivery.action or "",
            delivery.installation_id,
            jobs,
            now(),
        )

    def _work(self) -> list[Job]:
        done: list[Job] = []
        for _ in range(50):
            with reading(self.resources.engine) as session:
                found = select(Job.id).where(Job.state == "queued").order_by(Job.id)
                job_id = session.scalar(found.limit(1))
            if job_id is None:
                return done
            change(self.resources.engine, job_id, due_at=now())
            execute(self.resources, job_id)
            done.append(row(self.resources.engine, job_id))
        raise AssertionError("the jobs never end")

    def signals(self) -> list[Signal]:
        with reading(self.resources.engine) as session:
            return list(session.scalars(select(Signal).order_by(Signal.id)))

    def signal_values(self, *kinds: str) -> list[KindAndValue]:
        """Kind and value of the signals, oldest first; of all kinds without `kinds`."""
        return [(s.kind, s.value) for s in self.signals() if not kinds or s.kind in kinds]

    def comments(self) -> list[CommentRow]:
        with reading(self.resources.engine) as session:
            return list(session.scalars(select(CommentRow).order_by(CommentRow.id)))

    def stored(self) -> str:
        """All that the database holds, as text."""
        with self.resources.engine.connect() as connection:
            tables = Base.metadata.sorted_tables
            return "\n".join(str(list(connection.execute(select(table)).all())) for table in tables)
