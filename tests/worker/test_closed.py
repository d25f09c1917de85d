"""A pull request is closed: the balance is drawn, and asking for reactions ends some days later."""

from __future__ import annotations

import pytest
from sqlalchemy import select

from fake_github import FakeGitHub, Pull
from fake_github.repos import Repo
from service.database import reading
from service.models import PolledPull
from tests.worker.pulls import FAST, SLOW
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


@pytest.mark.parametrize(("merged", "value"), [(True, "merged"), (False, "unmerged")])
def test_nothing_was_taken(service: Service, repo: Repo, merged: bool, value: str) -> None:
    pull = opened(service, repo)
    pull.close(merged=merged)
    service.catch_up()
    service.twice()
    assert service.signal_values() == [("closed", value)]
    (signal,) = service.signals()
    assert (signal.actor, signal.actor_writes, signal.source) == ("", None, pull.head_sha)
    assert polled(service).closed_at is not None


def test_what_was_resolved_or_changed_was_not_left_open(service: Service, repo: Repo) -> None:
    resolved, changed = opened(service, repo), opened(service, repo)
    resolved.resolve("dev", resolved.threads[0])
    changed.push({"train.py": SLOW.replace(b"total += loss.item()", b"total += float(loss)")})
    for pull in (resolved, changed):
        pull.close(merged=True)
    service.catch_up()
    assert service.signal_values("closed") == []


def test_without_comments_of_ours_nothing_is_requested(
    service: Service, github: FakeGitHub, repo: Repo
) -> None:
    pull = repo.pull(files={"other.py": FAST}, author="dev")
    service.catch_up()
    pull.close(merged=True)
    before = len(github.requests)
    (job,) = service.catch_up()
    assert (job.kind, job.state, github.requests[before:]) == ("closed", "done", [])


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
