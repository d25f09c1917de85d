"""A pull request is closed: the balance is drawn, and asking for reactions ends some days later."""

from __future__ import annotations

from sqlalchemy import select

from fake_github import Pull
from fake_github.repos import Repo
from service.database import reading
from service.models import PolledPull
from tests.worker.pulls import SLOW
from tests.worker.rows import change
from tests.worker.service import Service
from worker.run_job import execute


def opened(service: Service, repo: Repo) -> Pull:
    pull = repo.pull(files={"train.py": SLOW}, author="dev")
    service.catch_up()
    return pull


def polled(service: Service) -> PolledPull:
    with reading(service.resources.engine) as session:
        return session.scalars(select(PolledPull)).one()


def test_closed_without_a_merge(service: Service, repo: Repo) -> None:
    pull = opened(service, repo)
    later = polled(service).next_poll_at
    pull.accept(pull.review_comments[0].id, "dev")
    pull.close()
    service.catch_up()
    assert service.signal_values("applied", "merged") == [("applied", "exact")]
    now = polled(service)
    assert now.closed_at is not None and now.next_poll_at < later  # one more look, at once


def test_nothing_was_taken(service: Service, repo: Repo) -> None:
    pull = opened(service, repo)
    pull.close(merged=True)
    service.catch_up()
    assert service.signal_values() == []
    assert polled(service).closed_at is not None


def test_closed_first_and_merged_later(service: Service, repo: Repo) -> None:
    pull = opened(service, repo)
    pull.accept(pull.review_comments[0].id, "dev")
    pull.close()
    service.catch_up()
    pull.reopen()
    service.catch_up()
    pull.close(merged=True)
    service.catch_up()
    assert service.signal_values("applied", "merged") == [("applied", "exact"), ("merged", "exact")]


def test_a_job_that_comes_before_the_api_knows(service: Service, repo: Repo) -> None:
    """Or somebody opened it again: then there is nothing to do, after a while."""
    pull = opened(service, repo)
    pull.close()
    pull.reopen()
    jobs = [job for job in service.catch_up() if job.kind == "closed"]
    assert [(job.state, job.deferrals) for job in jobs] == [
        ("queued", 1),
        ("queued", 2),
        ("queued", 3),
        ("done", 3),
    ]
    assert polled(service).closed_at is None


def test_the_second_time_is_no_other_time(service: Service, repo: Repo) -> None:
    pull = opened(service, repo)
    pull.close()
    (job,) = service.catch_up()
    at = polled(service).closed_at
    change(service.resources.engine, job.id, state="queued")
    execute(service.resources, job.id)
    assert polled(service).closed_at == at
