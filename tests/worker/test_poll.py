"""Polling: reactions, which may be taken back, and comments that somebody hid or deleted."""

from __future__ import annotations

from datetime import timedelta
from itertools import pairwise

import pytest
from sqlalchemy import select, update

from fake_github import FakeGitHub, Pull
from fake_github.repos import Repo
from service.database import reading, writing
from service.models import CommentRow, PolledPull, Repository
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


def test_one_request_for_all_comments(service: Service, clock: Clock, github: FakeGitHub, repo: Repo) -> None:
    pull = repo.pull(files={"a.py": SLOW, "b.py": SLOW}, author="dev")
    service.catch_up()
    for comment in pull.review_comments:
        pull.react("dev", comment.id, "+1")
        pull.react("mallory", comment.id, "-1")
    before = len(github.requests)
    clock.poll()
    assert service.signal_values() == [("reaction", "+1"), ("reaction", "-1")] * 2
    # One of each person's permission, and on the next day none.
    assert sorted(r.path.rpartition("/collaborators/")[2] or r.path for r in github.requests[before:]) == [
        "/graphql", "dev/permission", "mallory/permission",
    ]  # fmt: skip
    before = len(github.requests)
    clock.poll()
    assert [r.path for r in github.requests[before:]] == ["/graphql"]


def test_more_reactions_than_the_query_lists(service: Service, clock: Clock, pull: Pull) -> None:
    comment = pull.review_comments[0]
    for number in range(105):
        pull.react(f"person{number}", comment.id, "+1")
    clock.poll()
    assert service.signal_values() == [("reaction", "+1")] * 105
    comment.reactions[:] = comment.reactions[1:]
    clock.poll()
    assert service.signal_values("withdrawn") == [("withdrawn", "+1")]


def posted_long_ago(service: Service) -> None:
    with writing(service.resources.engine) as session:
        session.execute(update(CommentRow).values(posted_at=now() - timedelta(hours=1)))


@pytest.mark.parametrize("by", ["webhook", "poll"])
def test_deleted(service: Service, clock: Clock, github: FakeGitHub, pull: Pull, by: str) -> None:
    comment = pull.review_comments[0]
    pull.react("dev", comment.id, "-1")
    clock.poll()
    if by == "poll":
        github.webhook_url = None
    pull.delete_comment("dev", comment.id)
    service.catch_up()
    posted_long_ago(service)
    clock.poll()
    clock.poll()
    assert service.signal_values() == [("reaction", "-1"), ("hidden", "deleted")]
    signal = service.signals()[-1]
    assert signal.actor_writes is True and bool(signal.actor) == (by == "webhook")


def test_a_comment_that_github_does_not_list_yet(
    service: Service, clock: Clock, github: FakeGitHub, pull: Pull
) -> None:
    github.webhook_url = None
    pull.delete_comment("dev", pull.review_comments[0].id)
    clock.poll()
    assert service.signal_values() == []


def test_deleted_by_a_bot_and_of_others(service: Service, pull: Pull) -> None:
    other = pull.review_comment("mallory", "train.py", 11, "Why?")
    reply = pull.reply("dev", pull.review_comments[0].id, "Hm")
    service.catch_up()
    for login, comment in (("dev", other), ("dev", reply), ("ptopt[bot]", pull.review_comments[0].id)):
        pull.delete_comment(login, comment)
    service.catch_up()
    assert service.signal_values("hidden") == []


def test_hidden_and_shown_again(service: Service, clock: Clock, pull: Pull) -> None:
    comment = pull.review_comments[0].id
    for reason in ("off-topic", "spam", None, "outdated", "abuse"):
        pull.minimize(comment, reason)
        clock.poll()
    assert service.signal_values() == [
        ("hidden", "hidden"),
        ("withdrawn", "hidden"),
        ("hidden", "outdated"),
        ("withdrawn", "outdated"),
        ("hidden", "hidden"),
    ]
    assert {(s.actor, s.actor_writes) for s in service.signals()} == {("", True)}


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
    assert service.signal_values() == [("closed", "unmerged"), ("reaction", "heart")]


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
            states += [
                (job.state, "Could not resolve to a Repository" in job.error) for job in service.catch_up()
            ]
    assert states == [("done", True)] * len(states) and 1 < len(states) < 10
    with reading(engine) as session:
        assert session.scalars(select(PolledPull)).all() == []


def test_polling_becomes_rarer_and_ends_while_the_pull_request_is_open(service: Service, pull: Pull) -> None:
    at, times = now(), []
    for _ in range(24 * 40):
        at += timedelta(hours=1)
        if periodic_tasks.poll(service.resources, at):
            times.append(at)
            for job in service.catch_up():
                assert job.state == "done"
    waits = [later - earlier for earlier, later in pairwise(times)]
    assert waits == sorted(waits) and waits[0] == timedelta(hours=1) and waits[-1] == timedelta(days=1)
    assert 40 < len(times) < 60 and times[-1] < now() + timedelta(days=30)
    with reading(service.resources.engine) as session:
        assert session.scalars(select(PolledPull)).all() == []
    # Somebody remembers it: then what else they do is noticed again, and its end as well.
    pull.reply("dev", pull.review_comments[0].id, "Good catch")
    service.catch_up()
    with reading(service.resources.engine) as session:
        assert session.scalars(select(PolledPull.closed_at)).all() == [None]


def test_what_people_do_brings_polling_back_to_each_hour(service: Service, pull: Pull) -> None:
    def row() -> PolledPull:
        with reading(service.resources.engine) as session:
            return session.scalars(select(PolledPull)).one()

    with writing(service.resources.engine) as session:
        long_ago = now() - timedelta(days=9)
        session.execute(
            update(PolledPull).values(active_at=long_ago, next_poll_at=now() + timedelta(hours=20))
        )
    pull.resolve("dev", pull.threads[0])
    service.catch_up()
    assert row().next_poll_at - now() <= timedelta(hours=1)
    with writing(service.resources.engine) as session:
        session.execute(update(PolledPull).values(active_at=long_ago, next_poll_at=now()))
    pull.react("dev", pull.review_comments[0].id, "+1")
    assert periodic_tasks.poll(service.resources, now()) == 1
    service.catch_up()
    assert now() - row().active_at < timedelta(minutes=5) and row().next_poll_at - now() <= timedelta(hours=1)
