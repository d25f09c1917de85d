"""Slash commands in the service: what `bot.commands` asks of its host."""

from __future__ import annotations

from sqlalchemy import select, update

from fake_github import Pull
from fake_github.repos import Repo
from ptopt.github.values import Actor
from service.database import reading
from service.jobs import CommandPayload, Kind
from service.models import Job, ReviewRow, Signal
from tests.worker.pulls import SLOW, job_for, run
from tests.worker.rows import change
from worker.job_context import Resources


def say(resources: Resources, pull: Pull, body: str, *, login: str = "dev", thread: int | None = None) -> Job:
    """Write a comment, and run the job that its delivery would have made."""
    where = "issue" if thread is None else "review"
    comment = pull.comment(login, body) if thread is None else pull.reply(login, thread, body)
    payload = CommandPayload(where, comment, thread, body, None, Actor(7, login, False))
    subject = f"{where}-{comment}-0"
    job_id = job_for(resources, pull, Kind.COMMAND, head="", subject=subject, payload=payload, actor=login)
    job = run(resources, job_id)
    assert job.state == "done", job.error
    return job


def reviews(resources: Resources) -> list[Job]:
    with reading(resources.engine) as session:
        return list(session.scalars(select(Job).where(Job.kind == "review").order_by(Job.id)))


def signals(resources: Resources) -> list[tuple[str, str]]:
    with reading(resources.engine) as session:
        found = session.scalars(select(Signal).order_by(Signal.id)).all()
    assert all(len(signal.actor) == 32 and "dev" not in signal.actor for signal in found)
    return [(signal.kind, signal.value) for signal in found]


def test_review_queues_a_review(resources: Resources, repo: Repo) -> None:
    pull = repo.pull(files={"train.py": SLOW}, author="dev", draft=True)
    say(resources, pull, "/ptopt review")
    (job,) = reviews(resources)
    assert (job.head_sha, job.payload, job.actor) == (pull.head_sha, {"requested": True, "full": False}, "")
    assert "is queued" in pull.issue_comments[-1].body
    assert run(resources, job.id).state == "done"
    assert len(pull.reviews) == 1
    say(resources, pull, "/ptopt review")
    assert len(reviews(resources)) == 1
    assert "was already reviewed" in pull.issue_comments[-1].body
    say(resources, pull, "/ptopt review --full")
    assert reviews(resources)[-1].payload == {"requested": True, "full": True}


def test_a_command_that_runs_twice_is_answered_once(resources: Resources, repo: Repo) -> None:
    pull = repo.pull(files={"train.py": SLOW}, author="dev")
    job = say(resources, pull, "/ptopt status")
    answers = len(pull.issue_comments)
    payload = {
        "where": "issue",
        "comment_id": pull.issue_comments[0].id,
        "in_reply_to": None,
        "body": "/ptopt status",
        "previous_body": None,
        "actor": {"id": 7, "login": "dev", "is_bot": False},
    }
    change(resources.engine, job.id, state="queued", payload=payload)
    assert run(resources, job.id).state == "done"
    assert len(pull.issue_comments) == answers == 2


def test_status_tells_the_queue(resources: Resources, repo: Repo) -> None:
    pull = repo.pull(files={"train.py": SLOW}, author="dev")
    say(resources, pull, "/ptopt status")
    assert "Queue: empty." in pull.issue_comments[-1].body
    job_id = job_for(resources, pull)
    say(resources, pull, "/ptopt status")
    assert f"`{pull.head_sha[:7]}`" in pull.issue_comments[-1].body
    assert "is queued" in pull.issue_comments[-1].body
    change(resources.engine, job_id, state="dead", error="Traceback: secret")
    say(resources, pull, "/ptopt status")
    assert "failed; the operator" in pull.issue_comments[-1].body
    assert "secret" not in pull.issue_comments[-1].body


def test_status_names_the_model_that_was_used(resources: Resources, repo: Repo) -> None:
    pull = repo.pull(files={"train.py": SLOW}, author="dev")
    run(resources, job_for(resources, pull))
    say(resources, pull, "/ptopt status")
    assert "Model" not in pull.issue_comments[-1].body
    with resources.engine.begin() as connection:
        connection.execute(update(ReviewRow).values(model="base + judge", adapter="ab" * 32))
    say(resources, pull, "/ptopt status")
    assert "Model: `base + judge`, adapter `abababababab` was used" in pull.issue_comments[-1].body
    with resources.engine.begin() as connection:
        connection.execute(update(ReviewRow).values(model_note="it took *longer* than 30 s"))
    say(resources, pull, "/ptopt status")
    assert r"was not used in the last review: it took \*longer\* than 30 s." in pull.issue_comments[-1].body


def test_feedback_and_ignore_become_signals(resources: Resources, repo: Repo) -> None:
    pull = repo.pull(files={"train.py": SLOW}, author="dev")
    run(resources, job_for(resources, pull))
    (comment,) = pull.review_comments
    say(resources, pull, "/ptopt feedback bad it runs once", thread=comment.id)
    assert signals(resources) == [("verdict", "bad")]
    say(resources, pull, "/ptopt ignore here", thread=comment.id)
    assert signals(resources) == [("verdict", "bad"), ("ignored", "here")]


def test_the_budget_counts_all_pull_requests(resources: Resources, repo: Repo) -> None:
    resources.settings = resources.settings.model_copy(update={"commands_per_hour": 2})
    pulls = [repo.pull(files={f"{n}.py": SLOW}, author="dev") for n in range(2)]
    for pull in pulls:
        say(resources, pull, "/ptopt status")
    say(resources, pulls[0], "/ptopt status")
    assert len(pulls[0].issue_comments) == 3  # question, answer, question
    repo.permission("other", "write")
    say(resources, pulls[0], "/ptopt status", login="other")
    assert len(pulls[0].issue_comments) == 5
