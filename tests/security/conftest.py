"""The service as it runs: The fake GitHub delivers to the real application, a real worker carries out the jobs."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from sqlalchemy import select

from fake_github import FakeGitHub, Pull
from fake_github.repos import Repo
from service.database import reading
from service.models import Job
from tests.bot.conftest import Served, running_at, serve  # noqa: F401 (pytest finds fixtures by name)
from tests.worker.pulls import FAST, settings_for
from worker.job_context import Resources
from worker.run_job import execute


class Service:
    """`octo/models`, its people (`dev` writes, `triager` triages, `stranger` is nobody), and what looks after it."""

    def __init__(self, github: FakeGitHub, served: Served, resources: Resources) -> None:
        self.github, self.served, self.resources = github, served, resources
        self.repo: Repo = github.repository("octo/models", {"train.py": FAST})
        self.repo.permission("dev", "write")
        self.repo.permission("triager", "triage")
        for login in ("stranger", "mallory"):
            github.account(login)

    def jobs(self, kind: str | None = None) -> list[Job]:
        with reading(self.resources.engine) as session:
            found = session.scalars(select(Job).order_by(Job.id)).all()
        return [job for job in found if kind in (None, job.kind)]

    def work(self) -> None:
        """Carry out what is queued, and what comes of that."""
        for _ in range(5):
            self.github.drain()
            queued = [job for job in self.jobs() if job.state == "queued"]
            for job in queued:
                execute(self.resources, job.id)
            if not queued:
                break
        assert not [job.error for job in self.jobs() if job.state in ("dead", "queued")]

    def written(self) -> list[tuple[str, dict[str, object]]]:
        """Path and JSON of all that was written on GitHub by us."""
        return [
            (request.path, request.json)
            for request in self.github.requests
            if request.method in ("POST", "PUT", "PATCH") and isinstance(request.json, dict)
        ]

    def bodies(self, pull: Pull) -> list[str]:
        """All that stands in our name on the pull request."""
        posts = [*pull.reviews, *pull.review_comments, *pull.issue_comments]
        return [post.body for post in posts if post.author.login == self.github.app.login and post.body]


@pytest.fixture
def github() -> Iterator[FakeGitHub]:
    with FakeGitHub() as fake:
        yield fake


@pytest.fixture
def service(github: FakeGitHub, sqlite_url: str) -> Iterator[Service]:
    settings = settings_for(github, sqlite_url)
    values = settings.model_dump(exclude={"database_url"})
    resources = Resources(settings)
    with running_at(sqlite_url, **values) as served:
        github.webhook_url = f"http://127.0.0.1:{served.port}/webhooks/github"
        yield Service(github, served, resources)
        github.drain()
        github.webhook_url = None
    resources.engine.dispose()
