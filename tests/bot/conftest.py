"""The whole web application behind its real server, with a real database."""

from __future__ import annotations

import hashlib
import hmac
import json
import shutil
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any
from uuid import uuid4

import httpx
import pytest
from celery import Celery
from sqlalchemy import Engine, delete, select

from bot.app import create_app
from bot.server import server
from service import database
from service.models import DeliveryRow, Job
from service.settings import Settings

SECRET = "a secret of these tests"


def sign(body: bytes, secret: str = SECRET) -> str:
    return "sha256=" + hmac.new(secret.encode(), body, hashlib.sha256).hexdigest()


@dataclass
class Served:
    client: httpx.Client
    port: int
    engine: Engine

    def deliver(
        self, event: str, payload: Any, *, guid: str | None = None, **headers: str | bytes | None
    ) -> httpx.Response:
        """A signed delivery; `headers` replace those that GitHub would send, None leaves one out."""
        body = payload if isinstance(payload, bytes) else json.dumps(payload).encode()
        sent: dict[str, str | bytes | None] = {
            "Content-Type": "application/json",
            "X-GitHub-Event": event,
            "X-GitHub-Delivery": guid or str(uuid4()),
            "X-Hub-Signature-256": sign(body),
        }
        sent |= {name.replace("_", "-"): value for name, value in headers.items()}
        kept = {name: value for name, value in sent.items() if value is not None}
        return self.client.post("/webhooks/github", content=body, headers=kept)

    def jobs(self) -> list[tuple[str, str]]:
        """Kind and subject of each job, oldest first."""
        with self.engine.connect() as connection:
            return [tuple(row) for row in connection.execute(select(Job.kind, Job.subject).order_by(Job.id))]

    def metric(self, name: str) -> float:
        """The value of a metric, with its labels as Prometheus writes them; 0 when it is not there."""
        lines = (line.rpartition(" ") for line in self.client.get("/metrics").text.splitlines())
        return next((float(value) for found, _, value in lines if found == name), 0.0)

    def deliveries(self) -> int:
        with self.engine.connect() as connection:
            return len(connection.execute(select(DeliveryRow.guid)).all())


Serve = Callable[..., AbstractContextManager[Served]]


@contextmanager
def running_at(url: str, port: int = 0, **values: Any) -> Iterator[Served]:
    configured = {"database_url": url, "webhook_secret": SECRET, "debounce": 60.0} | values
    engine = database.engine(url)
    app = create_app(Settings(**configured), engine=engine, celery=Celery(broker="memory://"))
    running = server(app, "127.0.0.1", port)
    thread = threading.Thread(target=running.run)
    thread.start()
    while not running.started and thread.is_alive():
        time.sleep(0.01)
    port = running.servers[0].sockets[0].getsockname()[1]
    try:
        with httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=30.0) as client:
            yield Served(client, port, engine)
    finally:
        running.should_exit = True
        thread.join()
        engine.dispose()


@pytest.fixture
def serve(sqlite_url: str) -> Serve:
    """`with serve(setting=value, …) as served:`; on SQLite, with a broker in memory."""
    return partial(running_at, sqlite_url)


@pytest.fixture(scope="module")
def _shared(sqlite_template: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    path = tmp_path_factory.mktemp("served") / "ptopt.db"
    shutil.copy(sqlite_template, path)
    with running_at(f"sqlite:///{path}") as served:
        yield served


@pytest.fixture
def served(_shared: Served) -> Served:
    """One server for all tests of a file, with an empty database for each."""
    with _shared.engine.begin() as connection:
        for table in (DeliveryRow, Job):
            connection.execute(delete(table))
    return _shared


def pull_request(action: str = "opened", **more: Any) -> dict[str, Any]:
    """A payload with what we read of it, and with a URL that we must not."""
    pull = {"number": 7, "head": {"sha": "a" * 40}, "merged": False, "url": "http://169.254.169.254/"} | more
    return {
        "action": action,
        "number": pull["number"],
        "pull_request": pull,
        "repository": {"id": 11, "full_name": "octo/models", "url": "http://169.254.169.254/"},
        "installation": {"id": 5},
        "sender": {"id": 3, "login": "dev", "type": "User"},
    }
