"""Installations and their repositories are kept as GitHub tells; what is removed leaves nothing."""

from __future__ import annotations

from typing import Any

from sqlalchemy import func, select

from fake_github import FakeGitHub, Request, Response
from fake_github.repos import Repo
from service import inbox
from service.database import reading
from service.jobs import InstallationPayload, InstalledRepository, Kind, NewJob
from service.models import CommentRow, DeliveryRow, Installation, Job, Repository, ReviewRow
from tests.worker.pulls import SLOW, job_for, now, run
from worker.job_context import Resources
from worker.run_job import execute

_guids = (f"guid-{n}" for n in range(10**6))


def tell(resources: Resources, action: str, installation_id: int = 1, **more: Any) -> Job:
    guid = next(_guids)
    payload = InstallationPayload(action, installation_id, "octo", **more)
    new = NewJob(Kind.INSTALLATION, installation_id=installation_id, subject=guid, payload=payload)
    inbox.accept(resources.engine, guid, "installation", action, installation_id, [new], now())
    with reading(resources.engine) as session:
        job_id = session.scalars(select(Job.id).where(Job.subject == guid)).one()
    return run(resources, job_id)


def seen(resources: Resources, number: int, name: str, *, private: bool = False) -> InstalledRepository:
    return InstalledRepository(number, name, private)


def repositories(resources: Resources) -> dict[int, tuple[int, str, bool]]:
    with reading(resources.engine) as session:
        found = session.scalars(select(Repository))
        return {row.id: (row.installation_id, row.full_name, row.private) for row in found}


def test_created_then_changed(resources: Resources) -> None:
    tell(
        resources,
        "created",
        repositories=[seen(resources, 1, "octo/a"), seen(resources, 2, "octo/b", private=True)],
    )
    assert repositories(resources) == {1: (1, "octo/a", False), 2: (1, "octo/b", True)}
    tell(resources, "added", repositories=[seen(resources, 3, "octo/c"), seen(resources, 1, "octo/renamed")])
    tell(resources, "removed", removed=[2])
    assert repositories(resources) == {1: (1, "octo/renamed", False), 3: (1, "octo/c", False)}
    tell(resources, "created", repositories=[])
    assert len(repositories(resources)) == 2


def test_suspended_and_back(resources: Resources) -> None:
    def suspended() -> bool:
        with reading(resources.engine) as session:
            return session.scalars(select(Installation.suspended)).one()

    tell(resources, "created")
    tell(resources, "suspend")
    assert suspended()
    tell(resources, "new_permissions_accepted")
    assert suspended()
    tell(resources, "unsuspend")
    assert not suspended()


def test_deleting_an_installation_deletes_what_belongs_to_it(resources: Resources, repo: Repo) -> None:
    tell(resources, "created", 1, repositories=[seen(resources, 1, "other/a")])
    pull = repo.pull(files={"train.py": SLOW}, author="dev")
    run(resources, job_for(resources, pull))
    waiting = job_for(resources, pull, head="b" * 40)
    assert repo.installation is not None
    ours = repo.installation.id
    tell(resources, "created", ours, repositories=[seen(resources, repo.id, "octo/models")])
    job = tell(resources, "deleted", ours)
    with reading(resources.engine) as session:
        for table in (ReviewRow, CommentRow):
            assert session.scalar(select(func.count()).select_from(table)) == 0
        assert session.scalars(select(Installation.id)).all() == [1]
        assert session.get(Job, waiting) is None
        assert set(session.scalars(select(Job.installation_id))) == {1, ours}
        assert session.scalars(select(DeliveryRow.installation_id).distinct()).all() == [1]
    assert repositories(resources) == {1: (1, "other/a", False)}
    assert (job.state, job.payload) == ("done", {})


def test_a_review_under_way_leaves_nothing_either(
    resources: Resources, github: FakeGitHub, repo: Repo
) -> None:
    """The App is removed after the review was posted, before it is written down."""
    pull = repo.pull(files={"train.py": SLOW}, author="dev")
    job_id = job_for(resources, pull)
    assert repo.installation is not None
    ours = repo.installation.id
    told: list[Job] = []

    def remove(request: Request, response: Response) -> None:
        if request.method == "POST" and request.path.endswith("/reviews") and not told:
            told.append(tell(resources, "deleted", ours))

    github.checks.append(remove)
    execute(resources, job_id)
    assert told[0].state == "done" and len(pull.reviews) == 1
    with reading(resources.engine) as session:
        for table in (Installation, Repository, ReviewRow, CommentRow):
            assert session.scalar(select(func.count()).select_from(table)) == 0
        assert session.scalars(select(Job.kind)).all() == ["installation"]
