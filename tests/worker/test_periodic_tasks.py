"""What the scheduler does: missed deliveries, polling, pruning, and that no task stops another."""

from __future__ import annotations

import threading
from datetime import timedelta

import pytest
from celery import Celery
from sqlalchemy import select

from fake_github import FakeGitHub
from fake_github.repos import Repo
from ptopt.github.errors import GitHubError
from service import inbox, leases
from service.database import reading, writing
from service.jobs import Kind
from service.models import DashboardSession, DeliveryRow, Installation, Job, PolledPull, Repository
from tests.worker.processes import free_port, wait_for
from tests.worker.pulls import FAST, job_for, now, run
from tests.worker.rows import NOW, add, after, change, claimed, row
from worker.job_context import Resources
from worker.periodic_tasks import MissedDeliveries, PeriodicTask, periodic_tasks, poll, prune, sweep
from worker.scheduler import Scheduler


def asked(github: FakeGitHub) -> list[str]:
    return [delivery.guid for delivery in github.deliveries if delivery.redelivery]


def test_deliveries_that_failed_are_asked_for_again(
    resources: Resources, github: FakeGitHub, repo: Repo
) -> None:
    github.webhook_url = f"http://127.0.0.1:{free_port()}/"  # nobody listens
    repo.pull(files={"a.py": FAST}, author="dev")
    repo.pull(files={"b.py": FAST}, author="dev")
    first, second = (d.guid for d in github.deliveries if d.event == "pull_request")
    inbox.accept(
        resources.engine, first, "pull_request", "opened", 1, [], now()
    )  # stored, but the answer was lost
    task = MissedDeliveries(resources)
    # It fails again and is asked for again, further and further apart.
    for minutes, expected in ((0, 1), (9, 0), (11, 1), (19, 0), (21, 1), (29, 0), (31, 1), (31, 1)):
        assert task.look(now() + timedelta(minutes=minutes)) == expected, minutes
        github.drain()
    assert asked(github) == [second] * 5


def test_deliveries_that_succeeded_at_last_are_left_alone(
    resources: Resources, github: FakeGitHub, repo: Repo
) -> None:
    github.webhook_url = f"http://127.0.0.1:{free_port()}/"
    repo.pull(files={"a.py": FAST}, author="dev")
    (delivery,) = (d for d in github.deliveries if d.event == "pull_request")
    again = github.redeliver(delivery)
    assert again is not None
    again.status_code = 202
    assert MissedDeliveries(resources).look(now()) == 0


def test_deliveries_are_looked_for_once_more_after_an_error(
    resources: Resources, github: FakeGitHub, repo: Repo
) -> None:
    github.webhook_url = f"http://127.0.0.1:{free_port()}/"
    repo.pull(files={"a.py": FAST}, author="dev")
    github.faults.add("POST", r"/attempts$", "500", times=1)
    task = MissedDeliveries(resources)
    with pytest.raises(GitHubError):
        task.look(now())
    assert task.look(now()) == 1


def test_what_one_look_leaves_the_next_one_finds(
    resources: Resources, github: FakeGitHub, repo: Repo, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After an outage of hours, more than one look may ask for."""
    monkeypatch.setattr("worker.periodic_tasks._AT_ONCE", 2)
    github.webhook_url = f"http://127.0.0.1:{free_port()}/"
    for name in "abcde":
        repo.pull(files={f"{name}.py": FAST}, author="dev")
    missed = {d.guid for d in github.deliveries if d.event == "pull_request"}
    task, hours = MissedDeliveries(resources), timedelta(hours=5)
    for number in (2, 2, 1):
        assert task.look(now() + hours) == number
        github.drain()
        for delivery in github.deliveries:
            delivery.status_code = 202 if delivery.redelivery else delivery.status_code
    assert set(asked(github)) == missed
    assert task.look(now() + hours) == 0


def test_missed_deliveries_are_found_behind_more_pages_than_other_lists_have(
    resources: Resources, github: FakeGitHub, repo: Repo, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Some ten thousand deliveries were more than 100 pages, and none of those that failed was asked for again."""
    monkeypatch.setattr("ptopt.github.transport.MAX_PAGES", 1)
    monkeypatch.setattr("ptopt.github.transport.PER_PAGE", 2)
    github.webhook_url = f"http://127.0.0.1:{free_port()}/"
    for name in "abcde":
        repo.pull(files={f"{name}.py": FAST}, author="dev")
    missed = {d.guid for d in github.deliveries if d.event == "pull_request"}
    assert MissedDeliveries(resources).look(now()) == len(missed) == 5
    github.drain()
    assert set(asked(github)) == missed


def test_without_an_app_no_delivery_is_missed(resources: Resources) -> None:
    early = Resources(resources.settings.model_copy(update={"app_id": None, "private_key": None}))
    assert MissedDeliveries(early).look(now()) == 0
    early.engine.dispose()


def polled(resources: Resources) -> list[PolledPull]:
    with reading(resources.engine) as session:
        return list(session.scalars(select(PolledPull).order_by(PolledPull.pull)))


def poll_jobs(resources: Resources) -> list[Job]:
    with reading(resources.engine) as session:
        return list(session.scalars(select(Job).order_by(Job.id)))


@pytest.fixture
def known(resources: Resources) -> None:
    with writing(resources.engine) as session:
        session.add(Installation(id=1, account="octo", created_at=NOW))
        session.flush()
        session.add(Repository(id=2, installation_id=1, full_name="octo/models"))


@pytest.mark.usefixtures("known")
def test_polling_takes_its_turns(resources: Resources) -> None:
    with writing(resources.engine) as session:
        long_ago = NOW - timedelta(days=8)
        session.add(PolledPull(repository_id=2, pull=3, next_poll_at=NOW))
        session.add(PolledPull(repository_id=2, pull=4, next_poll_at=after(60)))
        session.add(PolledPull(repository_id=2, pull=5, next_poll_at=NOW, closed_at=long_ago))
        session.add(PolledPull(repository_id=2, pull=6, next_poll_at=after(60), closed_at=NOW))
    assert poll(resources, NOW) == 1
    assert poll(resources, NOW) == 0
    assert [(row.pull, row.next_poll_at) for row in polled(resources)] == [
        (3, after(3600)),
        (4, after(60)),
        (6, after(60)),
    ]
    (job,) = poll_jobs(resources)
    assert (job.kind, job.pull, job.repository, job.installation_id) == ("poll", 3, "octo/models", 1)
    assert (job.repository_id, job.subject, job.head_sha) == (2, "2026-11-20T12:00:00", "")
    leases.finish(resources.engine, claimed(resources.engine, job.id), NOW)
    assert poll(resources, after(3600)) == 3


@pytest.mark.usefixtures("known")
def test_polling_more_often_than_each_hour(resources: Resources) -> None:
    resources.settings = resources.settings.model_copy(update={"poll_every": 600.0})
    with writing(resources.engine) as session:
        session.add(PolledPull(repository_id=2, pull=3, next_poll_at=NOW))
    for turn in range(3):
        assert poll(resources, after(600 * turn)) == 1
        job = poll_jobs(resources)[turn]
        leases.finish(resources.engine, claimed(resources.engine, job.id, now=after(600 * turn)), NOW)


@pytest.mark.usefixtures("known")
def test_polls_do_not_pile_up(resources: Resources) -> None:
    with writing(resources.engine) as session:
        session.add(PolledPull(repository_id=2, pull=3, next_poll_at=NOW))
    assert [poll(resources, after(3600 * turn)) for turn in range(3)] == [1, 0, 0]
    (job,) = poll_jobs(resources)
    leases.finish(resources.engine, claimed(resources.engine, job.id), NOW)
    assert poll(resources, after(3600 * 3)) == 1


@pytest.mark.usefixtures("known")
def test_a_suspended_installation_is_not_polled(resources: Resources) -> None:
    with writing(resources.engine) as session:
        session.add(PolledPull(repository_id=2, pull=3, next_poll_at=NOW))
        session.get_one(Installation, 1).suspended = True
    assert poll(resources, NOW) == 0
    with writing(resources.engine) as session:
        session.get_one(Installation, 1).suspended = False
    assert poll(resources, NOW) == 1


def test_old_rows_are_pruned(resources: Resources) -> None:
    engine = resources.engine
    old, fresh = NOW - timedelta(days=31), NOW - timedelta(days=29)
    inbox.accept(engine, "old", "e", "", 1, [], old)
    inbox.accept(engine, "fresh", "e", "", 1, [], fresh)
    ids = [add(engine, kind=Kind.COMMAND, head=str(i), now=old) for i in range(5)]
    states = [("done", old), ("superseded", old), ("dead", old), ("done", fresh), ("queued", None)]
    for job_id, (state, finished) in zip(ids, states, strict=True):
        change(engine, job_id, state=state, finished_at=finished)
    prune(resources, NOW)
    with reading(engine) as session:
        assert session.scalars(select(DeliveryRow.guid)).all() == ["fresh"]
        assert set(session.scalars(select(Job.id))) == set(ids[3:])


def test_sessions_that_are_over_are_pruned(resources: Resources) -> None:
    ends = {"over": after(-1), "lasts": after(1)}
    with writing(resources.engine) as session:
        session.add_all(
            DashboardSession(id=name, login="dev", sealed_token="x", expires_at=at)
            for name, at in ends.items()
        )
    prune(resources, NOW)
    with reading(resources.engine) as session:
        assert session.scalars(select(DashboardSession.id)).all() == ["lasts"]


def test_who_asked_is_forgotten(resources: Resources) -> None:
    old = add(resources.engine, kind=Kind.COMMAND, head="a", now=after(-7300), actor="dev")
    fresh = add(resources.engine, kind=Kind.COMMAND, head="b", now=after(-7100), actor="dev")
    prune(resources, NOW)
    assert [row(resources.engine, job_id).actor for job_id in (old, fresh)] == ["", "dev"]


def test_the_sweeper_uses_the_settings(resources: Resources) -> None:
    job = claimed(resources.engine, add(resources.engine))
    sweep(resources, after(59))
    assert row(resources.engine, job.id).state == "running"
    sweep(resources, after(61))
    assert row(resources.engine, job.id).state == "queued"
    assert not leases.finish(resources.engine, job, after(62))


def test_every_periodic_task_can_be_done(resources: Resources, repo: Repo) -> None:
    pull = repo.pull(files={"a.py": FAST}, author="dev")
    job_id = job_for(resources, pull)
    every = periodic_tasks(resources, Celery(broker="memory://localhost/", set_as_current=False))
    for task in every:
        task.run(now())
    assert row(resources.engine, job_id).published_at is not None
    assert run(resources, job_id).state == "done"
    names = ["relay", "sweep", "redeliver", "poll", "prune", "canary", "retrain"]
    assert [task.name for task in every] == names


def test_a_task_that_fails_or_hangs_does_not_stop_the_others() -> None:
    done: list[str] = []
    release = threading.Event()

    def fails(_: object) -> None:
        done.append("failed")
        raise RuntimeError("once more")

    scheduler = Scheduler(
        [
            PeriodicTask("fails", 0.01, fails),
            PeriodicTask("hangs", 0.01, lambda _: release.wait()),
            PeriodicTask("works", 0.01, lambda _: done.append("worked")),
        ]
    )
    scheduler.start()
    wait_for(lambda: done.count("failed") > 2 and done.count("worked") > 2)
    assert scheduler.alive()
    release.set()
    scheduler.stop()
    assert not scheduler.alive()
