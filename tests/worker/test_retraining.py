"""When a retraining is started, and the process that does it."""

from __future__ import annotations

import signal
import threading
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from celery import Celery
from sqlalchemy import Engine, select

from service.database import reading, writing
from service.models import (
    CommentRow,
    Installation,
    LearningEvent,
    Repository,
    Retraining,
    ReviewRow,
    Signal,
    Version,
    VersionState,
)
from service.settings import Settings
from tests.worker.processes import wait_for
from tests.worker.rows import NOW
from worker.app import make_app
from worker.job_context import Resources
from worker.periodic_tasks import look_at_canary, retrain
from worker.retraining import QUEUE, TASK, RetrainingProcess, due

DAY = timedelta(days=1)


@pytest.fixture
def settings(database_url: str, tmp_path: Path) -> Settings:
    return Settings(
        database_url=database_url, retrain_labels=5, retrain_days=30, retrain_folder=tmp_path / "retraining",
        retrain_private="acme/named, acme/other",
    )  # fmt: skip


def answers(
    engine: Engine, number: int, *, repository: int = 1, name: str = "acme/open", private: bool = False,
    learn: bool = True, at: datetime = NOW,
) -> None:  # fmt: skip
    with writing(engine) as session:
        if session.get(Installation, 1) is None:
            session.add(Installation(id=1, account="acme", created_at=NOW))
            session.flush()
        if session.get(Repository, repository) is None:
            row = {"installation_id": 1, "full_name": name, "private": private, "learn": learn}
            session.add(Repository(id=repository, **row))
            session.flush()
        known = len(session.scalars(select(CommentRow.id)).all())
        for n in range(known + 1, known + number + 1):
            of_pull: dict[str, Any] = {"repository_id": repository, "pull": n}
            review = ReviewRow(
                **of_pull, head_sha=str(n), ptopt_version="1", files_reviewed=1, findings=1, received_at=at,
                posted_at=at,
            )  # fmt: skip
            session.add(review)
            session.flush()
            comment = CommentRow(
                **of_pull, review_id=review.id, github_id=n, rule="PTO101", fingerprint="f", origin="rule",
                confidence=0.5, path_hash="h", posted_at=at,
            )  # fmt: skip
            session.add(comment)
            session.flush()
            said = {"kind": "reaction", "value": "+1", "actor_writes": True, "source": "r", "created_at": at}
            session.add_all(Signal(comment_id=comment.id, actor=actor, **said) for actor in ("a", "b"))


def run(
    engine: Engine,
    state: str = "done",
    *,
    at: datetime = NOW,
    lease: datetime | None = None,
    subject: str = "ranker",
) -> None:
    with writing(engine) as session:
        row = {"subject": subject, "reason": "of before", "owner": "x", "lease_until": lease}
        session.add(Retraining(**row, state=state, created_at=at))


def why(engine: Engine, settings: Settings, now: datetime = NOW) -> str:
    with reading(engine) as session:
        return due(session, settings, now)


def test_enough_answers(engine: Engine, settings: Settings) -> None:
    assert why(engine, settings) == ""
    answers(engine, 4)
    assert why(engine, settings) == "", "four comments with two answers each"
    answers(engine, 1)
    assert why(engine, settings) == "5 comments were answered"


def test_only_of_repositories_that_are_learned_from(engine: Engine, settings: Settings) -> None:
    answers(engine, 9, repository=1, learn=False)
    answers(engine, 9, repository=2, name="acme/closed", private=True)
    assert why(engine, settings) == ""
    answers(engine, 9, repository=3, name="acme/other", private=True)
    assert why(engine, settings) == "9 comments were answered"


def test_those_since_the_last_retraining_count(engine: Engine, settings: Settings) -> None:
    answers(engine, 9, at=NOW - DAY)
    run(engine, at=NOW)
    assert why(engine, settings, NOW + 40 * DAY) == "", "nobody said anything since"
    answers(engine, 1, at=NOW + DAY)
    assert why(engine, settings, NOW + 29 * DAY) == ""
    assert why(engine, settings, NOW + 30 * DAY) == "30 days have passed"


def test_a_date_counts_from_the_first_answer(engine: Engine, settings: Settings) -> None:
    answers(engine, 1)
    assert why(engine, settings, NOW + 29 * DAY) == "" != why(engine, settings, NOW + 30 * DAY)


def test_one_that_broke_off_goes_on_and_one_at_work_is_left_alone(engine: Engine, settings: Settings) -> None:
    run(engine, "running", lease=NOW)
    assert why(engine, settings, NOW - DAY) == ""
    assert why(engine, settings, NOW + DAY) == "of before"


def test_one_whose_adapter_broke_off_goes_on_too(engine: Engine, settings: Settings, tmp_path: Path) -> None:
    given = {"retrain_adapter": "r.yaml", "model_registry": tmp_path, "retrain_clones": tmp_path}
    with_adapter = settings.model_copy(update=given)
    answers(engine, 9, at=NOW + DAY)
    run(engine, at=NOW)
    run(engine, "running", lease=NOW, subject="adapter")
    assert why(engine, with_adapter, NOW - DAY) == ""
    assert why(engine, with_adapter, NOW + DAY) == "of before"
    assert why(engine, settings, NOW + DAY) == "9 comments were answered", "it was switched off since"


def test_the_adapter_needs_its_registry_and_clones(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="PTOPT_RETRAIN_ADAPTER needs PTOPT_MODEL_REGISTRY"):
        Settings(retrain_adapter="r.yaml", retrain_clones=tmp_path)


@pytest.mark.parametrize("subject", ["ranker", "adapter"])
def test_none_begins_while_a_canary_is_on_trial(engine: Engine, settings: Settings, subject: str) -> None:
    answers(engine, 9)
    with writing(engine) as session:
        row = {"state": VersionState.CANARY.value, "weights": "", "card": {}}
        session.add(Version(subject=subject, hash="h", **row, created_at=NOW, changed_at=NOW))
    assert why(engine, settings) == ""


class Sent(Celery):  # type: ignore[misc]
    """An application without a broker, which remembers what it was to send."""

    def __init__(self) -> None:
        super().__init__("sent", set_as_current=False)
        self.sent: list[tuple[str, Any, Any]] = []

    def send_task(self, name: str, args: Any = None, queue: Any = None, **_: Any) -> None:
        self.sent.append((name, args, queue))


def test_the_scheduler_sends_it_to_the_queue_of_the_training(engine: Engine, settings: Settings) -> None:
    resources, celery = Resources(settings), Sent()
    assert retrain(resources, celery, NOW) == "" and celery.sent == []
    answers(engine, 5)
    assert retrain(resources, celery, NOW) == "5 comments were answered"
    assert celery.sent == [(TASK, ["5 comments were answered"], QUEUE)]
    look_at_canary(resources, NOW)
    resources.close()


@pytest.mark.slow
def test_the_task_runs_the_command(engine: Engine, settings: Settings) -> None:
    """With too little to learn from, which the database then says."""
    answers(engine, 5)
    resources = Resources(settings)
    app = make_app(settings, resources=resources, broker="memory://")
    app.tasks[TASK]("of the test")
    resources.close()
    with reading(engine) as session:
        made = session.scalars(select(Retraining)).one()
        events = session.scalars(select(LearningEvent.kind).order_by(LearningEvent.id)).all()
    assert (made.state, made.reason) == ("failed", "of the test")
    assert "0 answers to learn from" in made.note and "5 left out" in made.note
    assert events == ["started", "failed"]


@pytest.mark.slow
def test_a_process_that_is_stopped_leaves_the_run_to_the_next(engine: Engine, settings: Settings) -> None:
    process = RetrainingProcess(settings, wait=600.0)
    run(engine, "running", lease=NOW + 10_000 * DAY)  # so that it waits for the other one
    thread = threading.Thread(target=process.run, args=("of the test",))
    thread.start()
    wait_for(lambda: process._process is not None)
    process.stop()
    thread.join(20)
    assert not thread.is_alive() and process._process is not None
    assert process._process.returncode in (143, -signal.SIGTERM)
    assert process.run("once more") == 0, "nothing is started any more"
