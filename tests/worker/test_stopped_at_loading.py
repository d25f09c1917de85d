"""SIGTERM while a model is being loaded: the process ends within the grace period, and the review is posted once."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from fake_github import FakeGitHub
from fake_github.repos import Repo
from ptopt.report.text import MODEL_AWAY
from service.settings import Settings
from tests.model.adapters import make_adapter
from tests.worker.processes import free_port, process, wait_for, worker
from tests.worker.pulls import SLOW, job_for, settings_for
from tests.worker.rows import row
from worker.job_context import Resources

pytestmark = pytest.mark.slow
GRACE = 45  # seconds that the chart gives the embedded service; workers have more


@pytest.fixture
def settings(github: FakeGitHub, sqlite_url: str) -> Settings:
    return settings_for(github, sqlite_url, log_format="console")


@pytest.fixture
def resources(settings: Settings) -> Iterator[Resources]:
    resources = Resources(settings)
    yield resources
    resources.engine.dispose()


@pytest.fixture
def adapter(tmp_path: Path) -> Path:
    """An adapter on a disk that does not answer: its card is a pipe into which nobody writes."""
    folder = make_adapter(tmp_path / "adapter")
    (folder / "card.json").unlink()
    os.mkfifo(folder / "card.json")
    return folder


@pytest.fixture
def is_loading(adapter: Path) -> Iterator[Callable[[], bool]]:
    """Whether a process is reading the card, which from then on waits until the end of the test."""
    writers: list[int] = []

    def is_loading() -> bool:
        try:
            writers.append(os.open(adapter / "card.json", os.O_WRONLY | os.O_NONBLOCK))
        except OSError:  # nobody reads
            return False
        return True

    yield is_loading
    for writer in writers:
        os.close(writer)


def test_a_worker_finishes_its_review_without_the_model(
    resources: Resources,
    settings: Settings,
    redis_url: str,
    adapter: Path,
    is_loading: Callable[[], bool],
    repo: Repo,
) -> None:
    pull = repo.pull(files={"train.py": SLOW}, author="dev")
    job_id = job_for(resources, pull)
    modelled = settings.model_copy(
        update={"broker_url": redis_url, "model": str(adapter), "model_seconds": 3.0}
    )
    with process(modelled, "-m", "worker.scheduler"), process(modelled, *worker()) as working:
        wait_for(is_loading)
        working.send_signal(signal.SIGTERM)
        assert working.wait(GRACE) == 0
    found = row(resources.engine, job_id)
    assert (found.state, found.attempts) == ("done", 1)
    assert [MODEL_AWAY in review.body for review in pull.reviews] == [True]


def test_the_embedded_service_leaves_the_review_to_the_next(
    resources: Resources, settings: Settings, adapter: Path, is_loading: Callable[[], bool], repo: Repo
) -> None:
    pull = repo.pull(files={"train.py": SLOW}, author="dev")
    job_id = job_for(resources, pull)
    modelled = settings.model_copy(update={"model": str(adapter), "model_seconds": 600.0})
    command = ("-m", "embedded", "--port", str(free_port()))
    with process(modelled, *command) as first:
        wait_for(is_loading)
        first.terminate()
        assert first.wait(GRACE) == 0
    found = row(resources.engine, job_id)
    assert (found.state, found.attempts, pull.reviews) == ("queued", 0, [])
    with process(settings, *command):
        wait_for(lambda: row(resources.engine, job_id).state == "done")
    assert len(pull.reviews) == len(pull.review_comments) == 1
