"""Who works on which job: claims, leases, what a job becomes, and what the sweeper finds."""

from __future__ import annotations

import threading
from collections.abc import Callable
from datetime import datetime, timedelta
from itertools import pairwise

import pytest
from sqlalchemy import Engine, select

from service import inbox, leases
from service.database import reading
from service.inbox import Arrival
from service.jobs import Kind, NewJob, ReviewPayload
from service.leases import Claim
from service.models import Job, JobState
from tests.worker.rows import NOW, add, after, change, claim, claimed, row


def test_claim_takes_a_due_job(engine: Engine) -> None:
    job_id = add(engine, payload=ReviewPayload(full=True), actor="dev")
    job = claimed(engine, job_id)
    assert (job.id, job.owner, job.kind, job.repository, job.pull) == (
        job_id,
        "me",
        Kind.REVIEW,
        "octo/models",
        3,
    )
    assert (job.head_sha, job.payload, job.actor, job.attempts, job.created_at) == (
        "a",
        {"requested": False, "full": True},
        "dev",
        1,
        NOW,
    )
    found = row(engine, job_id)
    assert (found.state, found.owner, found.attempts, found.lease_until) == ("running", "me", 1, after(60))


def test_a_message_that_comes_twice_does_nothing(engine: Engine) -> None:
    job_id = add(engine)
    job = claimed(engine, job_id)
    assert claim(engine, job_id, "other") is None
    leases.finish(engine, job, NOW)
    assert claim(engine, job_id, "other") is None
    assert claim(engine, 12345) is None
    assert row(engine, job_id).attempts == 1


def test_a_message_that_comes_early_is_published_again(engine: Engine) -> None:
    job_id = add(engine, delay=10)
    change(engine, job_id, published_at=NOW)
    assert claim(engine, job_id, now=after(9)) is None
    found = row(engine, job_id)
    assert (found.state, found.due_at, found.published_at) == ("queued", after(10), None)
    assert claim(engine, job_id, now=after(10)) is not None


def test_a_newer_push_supersedes(engine: Engine) -> None:
    old, older, new = add(engine, "b"), add(engine, "a"), add(engine, "c")
    other = add(engine, "a", pull=4)
    assert claim(engine, old) is None
    assert row(engine, old).state == "superseded"
    assert claimed(engine, new).head_sha == "c"
    assert row(engine, older).state == "superseded"
    assert row(engine, other).state == "queued"


@pytest.mark.parametrize("state", [JobState.DONE, JobState.SUPERSEDED, JobState.DEAD], ids=str)
def test_a_newer_review_that_is_over_supersedes_nothing(engine: Engine, state: JobState) -> None:
    """A push back to an earlier head, after the other review ended."""
    old, new = add(engine, "a"), add(engine, "b")
    change(engine, new, state=state.value)
    assert claim(engine, old) is not None


def test_a_push_back_supersedes(engine: Engine) -> None:
    """It keeps its number, the lower one, but it is what was asked for last."""
    first, second = add(engine, "a"), add(engine, "b", now=after(1))
    assert claim(engine, first, now=after(1)) is None
    running = claimed(engine, second, now=after(1))
    assert not leases.is_stale(engine, running)
    assert add(engine, "a", now=after(2)) == first
    assert leases.is_stale(engine, running)
    assert claim(engine, first, now=after(2)) is None  # the other one still runs
    assert row(engine, first).state == "queued"
    leases.supersede(engine, running, after(3), note="a newer push")
    assert claimed(engine, first, now=after(3)).head_sha == "a"


def test_pushes_of_one_batch(engine: Engine) -> None:
    """They are numbered in the order of their keys; the one that came last is wanted."""
    pushes = [NewJob(Kind.REVIEW, 1, 2, "octo/models", 3, head) for head in "ba"]
    with engine.begin() as connection:
        inbox.store(
            connection,
            [
                Arrival(f"guid {at}", "pull_request", "synchronize", 1, [push], after(at / 100))
                for at, push in enumerate(pushes)
            ],
        )
    with reading(engine) as session:
        (last, first) = session.scalars(select(Job.id).order_by(Job.head_sha))
    assert last < first
    assert claim(engine, first, now=after(1)) is None
    assert claimed(engine, last, now=after(1)).head_sha == "a"


def test_other_kinds_supersede_nothing(engine: Engine) -> None:
    old, new = (
        add(engine, kind=Kind.COMMAND, subject="issue-1-0"),
        add(engine, kind=Kind.COMMAND, subject="issue-2-0"),
    )
    review = add(engine)
    assert claim(engine, new) is not None
    assert row(engine, old).state == row(engine, review).state == "queued"


def test_one_job_at_a_time_works_on_a_pull_request(engine: Engine) -> None:
    review, command = add(engine), add(engine, kind=Kind.COMMAND)
    elsewhere, nowhere = add(engine, pull=4), add(engine, kind=Kind.INSTALLATION, pull=0, repository_id=0)
    job = claimed(engine, review)
    change(engine, command, published_at=NOW)
    assert claim(engine, command) is None
    found = row(engine, command)
    assert (found.state, found.due_at, found.published_at, found.attempts) == ("queued", after(1), None, 0)
    assert claim(engine, elsewhere) is not None
    assert claim(engine, nowhere) is not None
    second = add(engine, "b", kind=Kind.INSTALLATION, pull=0, repository_id=0)
    assert claim(engine, second) is not None
    leases.finish(engine, job, NOW)
    assert claim(engine, command, now=after(1)) is not None


def at_once(number: int, do: Callable[[int], None]) -> None:
    barrier = threading.Barrier(number)
    failures: list[BaseException] = []

    def run(index: int) -> None:
        barrier.wait()
        try:
            do(index)
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=run, args=(index,)) for index in range(number)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures


def test_many_claim_one_job_at_once(engine: Engine) -> None:
    job_id = add(engine)
    won: list[Claim | None] = []
    at_once(8, lambda index: won.append(claim(engine, job_id, f"w{index}")))
    assert sum(job is not None for job in won) == 1
    assert row(engine, job_id).attempts == 1


def test_many_claim_jobs_of_one_pull_request_at_once(engine: Engine) -> None:
    ids = [add(engine, kind=Kind.COMMAND, subject=f"issue-{i}-0", head=str(i)) for i in range(8)]
    won: list[Claim | None] = []
    at_once(8, lambda index: won.append(claim(engine, ids[index], f"w{index}")))
    assert sum(job is not None for job in won) == 1
    states = [row(engine, job_id) for job_id in ids]
    assert sorted(job.state for job in states) == ["queued"] * 7 + ["running"]
    assert all(job.due_at == after(1) for job in states if job.state == "queued")


def test_a_job_is_dead_after_its_last_attempt(engine: Engine) -> None:
    job_id = add(engine)
    change(engine, job_id, attempts=3)
    assert claim(engine, job_id) is None
    found = row(engine, job_id)
    assert (found.state, found.finished_at) == ("dead", NOW)
    assert found.error


# -- what a job becomes ------------------------------------------------------------------------------------


def test_finish_forgets_what_people_wrote(engine: Engine) -> None:
    job = claimed(engine, add(engine, payload=ReviewPayload(full=True)))
    assert leases.finish(engine, job, after(5), note="n" * 10_000)
    found = row(engine, job.id)
    assert (found.state, found.finished_at, found.payload) == ("done", after(5), {})
    assert 0 < len(found.error) < 10_000


def test_defer_counts_no_attempt_and_forgets_crashes(engine: Engine) -> None:
    job_id = add(engine)
    change(engine, job_id, attempts=2)  # the worker was killed twice
    job = claimed(engine, job_id)
    change(engine, job.id, published_at=NOW)
    assert leases.defer(engine, job, NOW, seconds=30, error="limit")
    found = row(engine, job.id)
    assert (found.state, found.attempts, found.deferrals) == ("queued", 0, 1)
    assert (found.published_at, found.lease_until, found.owner, found.error) == (None, None, "", "limit")
    assert after(30) <= found.due_at <= after(35)


def test_deferrals_come_ever_later_and_end(engine: Engine) -> None:
    job_id, now, waits = add(engine), NOW, []
    for _ in range(200):
        job = claim(engine, job_id, now=now)
        if job is None:
            break
        leases.defer(engine, job, now, seconds=None, error="502")
        found = row(engine, job_id)
        if found.state == "dead":
            break
        waits.append((found.due_at - now).total_seconds())
        now = found.due_at
    assert row(engine, job_id).state == "dead"
    assert timedelta(hours=24) < now - NOW < timedelta(hours=25)
    assert 3 < waits[0] <= 5 < waits[2] < 21
    assert 600 < max(waits) <= 900


def test_fail_tries_again_until_dead(engine: Engine) -> None:
    job_id, now = add(engine), NOW
    for attempt in (1, 2, 3):
        job = claimed(engine, job_id, now=now)
        assert job.attempts == attempt
        assert leases.fail(engine, job, now, max_attempts=3, error=f"error {attempt}")
        found = row(engine, job_id)
        assert found.error == f"error {attempt}"
        assert found.state == ("queued" if attempt < 3 else "dead")
        assert found.due_at > now or attempt == 3
        now = found.due_at
    assert claim(engine, job_id, now=after(10**6)) is None


def test_release_gives_the_job_back_at_once(engine: Engine) -> None:
    job = claimed(engine, add(engine))
    assert leases.release(engine, job, NOW)
    assert claimed(engine, job.id, "other").attempts == 1


def test_supersede_and_queue_again(engine: Engine) -> None:
    job = claimed(engine, add(engine))
    assert leases.supersede(engine, job, NOW, note="a draft")
    assert row(engine, job.id).state == "superseded"
    leases.ensure_review(engine, job, "a", after(1))
    assert row(engine, job.id).state == "queued"


def test_ensure_review(engine: Engine) -> None:
    job = claimed(engine, add(engine, "a"))
    leases.ensure_review(engine, job, "b", NOW)
    leases.ensure_review(engine, job, "b", NOW)
    with reading(engine) as session:
        found = session.scalars(select(Job).where(Job.head_sha == "b")).one()
    assert (found.kind, found.pull, found.repository, found.installation_id) == (
        "review",
        3,
        "octo/models",
        1,
    )
    assert (found.state, found.due_at) == ("queued", NOW)


CHANGES: list[Callable[[Engine, Claim, datetime], bool]] = [
    lambda engine, job, now: leases.renew(engine, job, now, lease=60),
    lambda engine, job, now: leases.finish(engine, job, now),
    lambda engine, job, now: leases.supersede(engine, job, now, note="n"),
    lambda engine, job, now: leases.defer(engine, job, now, seconds=1, error="e"),
    lambda engine, job, now: leases.fail(engine, job, now, max_attempts=3, error="e"),
    lambda engine, job, now: leases.release(engine, job, now),
]


@pytest.mark.parametrize("what", CHANGES)
def test_who_lost_the_lease_changes_nothing(
    engine: Engine, what: Callable[[Engine, Claim, datetime], bool]
) -> None:
    lost = claimed(engine, add(engine), "first")
    leases.sweep(engine, after(61), lease=60, max_attempts=3)
    assert not what(engine, lost, after(62))  # queued again
    assert row(engine, lost.id).state == "queued"
    claimed(engine, lost.id, "second", now=after(70))
    assert not what(engine, lost, after(71))
    found = row(engine, lost.id)
    assert (found.state, found.owner, found.lease_until) == ("running", "second", after(130))


def test_stale(engine: Engine) -> None:
    job = claimed(engine, add(engine, "a"))
    add(engine, "b", pull=4)
    add(engine, "b", kind=Kind.COMMAND)
    assert not leases.is_stale(engine, job)
    newer = add(engine, "b")
    assert leases.is_stale(engine, job)
    change(engine, newer, state=JobState.SUPERSEDED.value)
    assert not leases.is_stale(engine, job)
    command = claimed(engine, add(engine, "c", kind=Kind.COMMAND, pull=5))
    add(engine, "d", kind=Kind.COMMAND, pull=5)
    assert not leases.is_stale(engine, command)


# -- the sweeper -------------------------------------------------------------------------------------------


def test_sweep_finds_silent_workers(engine: Engine) -> None:
    job_id = add(engine)
    claimed(engine, job_id)
    assert leases.sweep(engine, after(60), lease=60, max_attempts=3) == (0, 0)
    assert leases.sweep(engine, after(61), lease=60, max_attempts=3) == (1, 0)
    found = row(engine, job_id)
    assert (found.state, found.owner, found.published_at, found.lease_until) == ("queued", "", None, None)
    assert after(61) < found.due_at <= after(63)  # not at once: it may be what kills the workers
    assert claimed(engine, job_id, now=found.due_at).attempts == 2


def test_a_renewed_lease_is_left_alone(engine: Engine) -> None:
    job = claimed(engine, add(engine))
    assert leases.renew(engine, job, after(50), lease=60)
    assert leases.sweep(engine, after(100), lease=60, max_attempts=3) == (0, 0)


def test_a_job_that_kills_its_worker_three_times_is_dead(engine: Engine) -> None:
    job_id, now, waits = add(engine), NOW, []
    for _ in range(3):
        claimed(engine, job_id, now=now)
        swept = now + timedelta(seconds=61)
        leases.sweep(engine, swept, lease=60, max_attempts=3)
        now = row(engine, job_id).due_at
        waits.append(now - swept)
    assert timedelta() < waits[0] < waits[1]
    found = row(engine, job_id)
    assert (found.state, found.attempts, found.finished_at) == ("dead", 3, swept)
    assert "died" in found.error


def test_sweep_finds_lost_messages(engine: Engine) -> None:
    lost, fresh, running = add(engine, pull=1), add(engine, pull=2), add(engine, pull=3)
    for job_id, at in ((lost, NOW), (fresh, after(30)), (running, NOW)):
        change(engine, job_id, published_at=at)
    claimed(engine, running, now=after(50))
    assert leases.sweep(engine, after(61), lease=60, max_attempts=3) == (0, 1)
    assert [row(engine, job_id).published_at for job_id in (lost, fresh)] == [None, after(30)]
    assert row(engine, running).state == "running"


def test_a_message_that_waits_is_not_sent_again_for_ever(engine: Engine) -> None:
    """Nobody works for an hour: what is on its way already comes again ever later, but at least each eight leases."""
    job_id, published = add(engine), []
    for second in range(0, 3600, 15):
        leases.sweep(engine, after(second), lease=60, max_attempts=3)
        if row(engine, job_id).published_at is None:
            published.append(second)
            change(engine, job_id, published_at=after(second))
    assert published[:4] == [0, 75, 210, 465]
    assert all(later - earlier <= 8 * 60 + 15 for earlier, later in pairwise(published))
    assert len(published) < 12


def test_recover_begins_everything_again(engine: Engine) -> None:
    running, waiting, done = add(engine, pull=1), add(engine, pull=2), add(engine, pull=3)
    claimed(engine, running)
    leases.finish(engine, claimed(engine, done), NOW)
    change(engine, waiting, published_at=NOW)
    assert leases.recover(engine, after(1)) == 1
    assert [row(engine, i).state for i in (running, waiting, done)] == ["queued", "queued", "done"]
    assert row(engine, waiting).published_at is None


def test_retry_is_for_the_dead(engine: Engine) -> None:
    job_id = add(engine)
    assert not leases.retry(engine, job_id, NOW)
    change(engine, job_id, state=JobState.DEAD.value, attempts=3, deferrals=9, error="e", finished_at=NOW)
    assert leases.retry(engine, job_id, after(5))
    found = row(engine, job_id)
    assert (found.state, found.attempts, found.deferrals, found.error, found.finished_at) == (
        "queued",
        0,
        0,
        "",
        None,
    )
    assert claim(engine, job_id, now=after(5)) is not None


def test_backoff_is_bounded() -> None:
    for times in (0, 1, 5, 10**6):
        assert 0 < leases.backoff(times, 5, 900) <= 900
