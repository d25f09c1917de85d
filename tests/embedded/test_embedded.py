"""The embedded service: a webhook in, a review out, in one process on SQLite; killed, and started again."""

from __future__ import annotations

import socket
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from datetime import datetime, timezone
from pathlib import Path

import pytest
from fastapi.testclient import TestClient
from sqlalchemy import func, select, update

from embedded.service import Embedded
from fake_github import FakeGitHub
from fake_github.repos import Repo
from ptopt.github.values import Actor
from service import database, leases
from service.database import reading
from service.jobs import CommandPayload, Kind
from service.models import DeliveryRow, Job
from service.settings import Settings
from tests.worker.processes import ROOT, environment, free_port, kill, process, wait_for
from tests.worker.pulls import SLOW, job_for, settings_for
from tests.worker.rows import row
from worker.job_context import Resources


@pytest.fixture
def settings(github: FakeGitHub, sqlite_url: str) -> Settings:
    return settings_for(github, sqlite_url, log_format="console", reviews_at_once=8)


@pytest.fixture
def embedded(settings: Settings) -> Iterator[Embedded]:
    embedded = Embedded(settings)
    embedded.start()
    yield embedded
    embedded.stop()


def test_a_job_is_done_without_a_broker(embedded: Embedded, repo: Repo) -> None:
    pull = repo.pull(files={"train.py": SLOW}, author="dev")
    job_id = job_for(embedded.resources, pull)
    wait_for(lambda: row(embedded.resources.engine, job_id).state == "done")
    assert len(pull.reviews) == 1
    embedded.check()


def test_the_dashboard_is_on(embedded: Embedded) -> None:
    with TestClient(embedded.app(), follow_redirects=False) as client:
        assert client.get("/dashboard/reviews").headers["location"].startswith("/dashboard/sign-in")
        answer = client.get("/dashboard/sign-in")
    assert answer.status_code == 503 and "PTOPT_CLIENT_ID" in answer.text


def test_the_end_of_the_worker_is_noticed(embedded: Embedded) -> None:
    assert embedded.alive()
    embedded._lanes[0].stop()
    wait_for(lambda: not embedded.alive())
    with pytest.raises(RuntimeError, match="worker"):
        embedded.check()


def test_it_makes_its_database(github: FakeGitHub, settings: Settings, tmp_path: object) -> None:
    fresh = settings.model_copy(update={"database_url": f"sqlite:///{tmp_path}/fresh.db"})
    embedded = Embedded(fresh)
    embedded.start()
    database.check(embedded.resources.engine)
    embedded.stop()


def states(resources: Resources) -> set[str]:
    with reading(resources.engine) as session:
        return set(session.scalars(select(Job.state)))


def answers(port: int) -> bool:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/readyz", timeout=5) as answer:
            return bool(answer.status == 200)
    except (urllib.error.URLError, ConnectionError):
        return False


def test_a_signal_stops_it_in_order(settings: Settings) -> None:
    port = free_port()
    with process(settings, "-m", "embedded", "--port", str(port)) as service:
        wait_for(lambda: answers(port))
        service.terminate()
        assert service.wait(60) == 0


def test_a_second_one_on_the_same_file(settings: Settings, repo: Repo, tmp_path: Path) -> None:
    """It ends with the name of the file and of the first process, and takes nothing back that this one runs."""
    resources = Resources(settings)
    file = Path(str(resources.engine.url.database))
    link = tmp_path / "link.db"
    link.symlink_to(file)
    port = free_port()
    with process(settings, "-m", "embedded", "--port", str(port)) as first:
        wait_for(lambda: answers(port))
        job_id = job_for(resources, repo.pull(files={"train.py": SLOW}, author="dev"))
        with resources.engine.begin() as connection:
            running = {
                "state": "running",
                "owner": "first",
                "lease_until": datetime(2100, 1, 1, tzinfo=timezone.utc),
            }
            connection.execute(update(Job).where(Job.id == job_id).values(running))
        for url in (settings.database_url, f"sqlite:///{link}"):
            other = settings.model_copy(update={"database_url": url})
            second = subprocess.run(
                [sys.executable, "-m", "embedded", "--port", str(free_port())],
                cwd=ROOT,
                env=environment(other),
                capture_output=True,
                text=True,
                timeout=60,
            )
            assert second.returncode == 1
            assert f"{file.resolve()} is in use" in second.stderr and f"process {first.pid}:" in second.stderr
            assert row(resources.engine, job_id).owner == "first"
        assert answers(port)
        kill(first)
    with process(settings, "-m", "embedded", "--port", str(port)):
        wait_for(lambda: answers(port))  # a killed one holds nothing


def test_several_at_once_and_commands_beside_them(embedded: Embedded, github: FakeGitHub, repo: Repo) -> None:
    repo.permission("dev", "write")
    engine = embedded.resources.engine
    *pulls, asked = [repo.pull(files={f"{n}.py": SLOW}, author="dev") for n in range(9)]
    github.delay = lambda: 0.3
    reviews = [job_for(embedded.resources, pull) for pull in pulls]
    wait_for(lambda: leases.running(engine) == 4)
    payload = CommandPayload("issue", 1, None, "/ptopt help", None, Actor(asked.author.id, "dev", False))
    command = job_for(
        embedded.resources, asked, Kind.COMMAND, subject="issue-1-0", payload=payload, actor="dev"
    )
    wait_for(lambda: row(engine, command).state == "done")
    assert [row(engine, job).state for job in reviews].count("done") < 8
    github.delay = None
    wait_for(lambda: all(row(engine, job).state == "done" for job in reviews))
    assert [len(pull.reviews) for pull in pulls] == [1] * 8


def test_a_signal_under_load_ends_it_and_loses_nothing(
    settings: Settings, github: FakeGitHub, repo: Repo
) -> None:
    port = free_port()
    command = ("-m", "embedded", "--port", str(port))
    resources = Resources(settings)
    with process(settings, *command) as first:
        wait_for(lambda: answers(port))
        pulls = [repo.pull(files={f"{n}.py": SLOW}, author="dev") for n in range(8)]
        github.delay = lambda: 4.0
        jobs = [job_for(resources, pull) for pull in pulls]
        wait_for(lambda: leases.running(resources.engine) == 4)
        with socket.create_connection(("127.0.0.1", port)) as unfinished:
            unfinished.sendall(b"POST /webhooks/github HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\n1")
            first.terminate()
            assert first.wait(60) == 0
    assert {(row(resources.engine, job).state, row(resources.engine, job).attempts) for job in jobs} == {
        ("queued", 0)
    }
    github.delay = None
    with process(settings, *command):
        wait_for(lambda: states(resources) == {"done"})
    assert [len(pull.reviews) for pull in pulls] == [1] * 8
    resources.engine.dispose()


@pytest.mark.slow
def test_killed_and_started_again(settings: Settings, github: FakeGitHub, repo: Repo) -> None:
    port = free_port()
    command = ("-m", "embedded", "--port", str(port))
    url = f"http://127.0.0.1:{port}"
    resources = Resources(settings)
    with process(settings, *command) as first:
        wait_for(lambda: answers(port))
        github.webhook_url = f"{url}/webhooks/github"
        pulls = [repo.pull(files={f"{n}.py": SLOW}, author="dev") for n in range(8)]
        wait_for(lambda: any(pull.reviews for pull in pulls))
        kill(first)
    assert states(resources) != {"done"}
    with reading(resources.engine) as session:
        assert session.scalar(select(func.count()).select_from(DeliveryRow)) == 8
    with process(settings, *command):
        wait_for(lambda: answers(port))
        wait_for(lambda: all(pull.reviews for pull in pulls))
        for delivery in list(github.deliveries):
            github.redeliver(delivery)
        wait_for(lambda: states(resources) == {"done"})
    assert [len(pull.reviews) for pull in pulls] == [1] * 8
    assert [len(pull.review_comments) for pull in pulls] == [1] * 8
    resources.engine.dispose()
