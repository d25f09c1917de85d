"""Reactions: GitHub is asked for them, and they may be withdrawn."""

from __future__ import annotations

from datetime import timedelta

import pytest
from sqlalchemy import select, update

from fake_github import FakeGitHub, Pull
from fake_github.repos import Repo
from service.database import reading, writing
from service.models import PolledPull, Repository
from tests.worker.pulls import SLOW, now
from tests.worker.service import Service
from worker import periodic_tasks


@pytest.fixture
def pull(service: Service, repo: Repo) -> Pull:
    pull = repo.pull(files={"train.py": SLOW}, author="mallory")
    service.catch_up()
    return pull


class Clock:
    """Each poll is a day after the one before."""

    def __init__(self, service: Service) -> None:
        self._service, self._at = service, now()

    def poll(self) -> int:
        """How many pull requests were asked about."""
        self._at += timedelta(days=1)
        asked = periodic_tasks.poll(self._service.resources, self._at)
        assert all(job.state == "done" and not job.error for job in self._service.catch_up())
        return asked


@pytest.fixture
def clock(service: Service) -> Clock:
    return Clock(service)


def test_of_people_with_and_without_write_access(service: Service, clock: Clock, pull: Pull) -> None:
    comment = pull.review_comments[0].id
    pull.react("dev", comment, "+1")
    pull.react("mallory", comment, "-1")
    pull.react("robot[bot]", comment, "-1")
    assert clock.poll() == clock.poll() == 1
    assert service.signal_values() == [("reaction", "+1"), ("reaction", "-1")]
    first, second = service.signals()
    assert (first.actor_writes, second.actor_writes) == (True, False)
    assert first.actor != second.actor and len(first.actor) == 32


def test_withdrawn_and_given_again(service: Service, clock: Clock, pull: Pull) -> None:
    comment = pull.review_comments[0]
    pull.react("dev", comment.id, "+1")
    clock.poll()
    comment.reactions.clear()
    clock.poll()
    clock.poll()
    assert service.signal_values() == [("reaction", "+1"), ("withdrawn", "+1")]
    given, taken = service.signals()
    assert (given.actor, given.source, given.actor_writes) == (taken.actor, taken.source, taken.actor_writes)
    pull.react("dev", comment.id, "-1")
    pull.react("dev", comment.id, "+1")
    clock.poll()
    assert sorted(service.signal_values()[2:]) == [("reaction", "+1"), ("reaction", "-1")]


def test_without_reactions_comments_are_not_asked_one_by_one(
    service: Service, clock: Clock, github: FakeGitHub, pull: Pull
) -> None:
    before = len(github.requests)
    clock.poll()
    assert service.signal_values() == []
    assert not [r for r in github.requests[before:] if r.path.endswith("/reactions")]


def test_a_comment_that_is_gone_tells_nothing(service: Service, clock: Clock, pull: Pull) -> None:
    comment = pull.review_comments[0]
    pull.react("dev", comment.id, "-1")
    clock.poll()
    comment.review.comments.remove(comment)
    clock.poll()
    assert service.signal_values() == [("reaction", "-1")]


def test_reactions_to_comments_of_others(service: Service, clock: Clock, pull: Pull) -> None:
    other = pull.review_comment("mallory", "train.py", 11, "Why?")
    pull.react("dev", other, "-1")
    clock.poll()
    assert service.signal_values() == []


def test_asking_ends_a_week_after_the_end(service: Service, clock: Clock, pull: Pull) -> None:
    pull.close()
    service.catch_up()
    pull.react("dev", pull.review_comments[0].id, "heart")
    asked = [clock.poll() for _ in range(9)]
    assert asked == [1] * 7 + [0] * 2
    assert service.signal_values() == [("reaction", "heart")]


def test_the_end_is_noticed_when_nobody_tells(
    service: Service, clock: Clock, github: FakeGitHub, pull: Pull
) -> None:
    pull.accept(pull.review_comments[0].id, "mallory")
    service.catch_up()
    github.webhook_url = None
    pull.close(merged=True)
    clock.poll()
    with reading(service.resources.engine) as session:
        assert session.scalars(select(PolledPull.closed_at)).one() is not None
    assert service.signal_values("merged") == [("merged", "exact")]


def test_asking_ends_when_the_pull_request_is_gone(service: Service, pull: Pull) -> None:
    engine = service.resources.engine
    with writing(engine) as session:
        session.execute(update(Repository).values(full_name="octo/gone"))
    at, states = now(), []
    for _ in range(10):
        at += timedelta(days=1)
        if periodic_tasks.poll(service.resources, at):
            states += [(job.state, "404" in job.error) for job in service.catch_up()]
    assert states == [("done", True)] * len(states) and 1 < len(states) < 10
    with reading(engine) as session:
        assert session.scalars(select(PolledPull)).all() == []
