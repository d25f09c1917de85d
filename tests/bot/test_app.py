"""Health, metrics, errors, and the thread that publishes."""

from __future__ import annotations

import threading
from datetime import datetime, timedelta, timezone

import httpx
import pytest
from celery import Celery
from fastapi import FastAPI
from sqlalchemy import delete, insert, text, update

from bot import problems
from bot.app import create_app
from service.dispatch import Dispatcher
from service.models import EndedAnalyses, Installation, Job, Repository, ReviewRow
from service.settings import Settings
from tests.bot.conftest import SECRET, Serve, Served, pull_request
from tests.worker.processes import wait_for


def test_health(served: Served) -> None:
    assert served.client.get("/healthz").json() == {"status": "ok"}
    ready = served.client.get("/readyz")
    assert (ready.status_code, ready.json()["status"]) == (200, "ready")
    assert ready.json()["checks"] == ["database", "inbox", "dispatcher"]


def test_not_ready_without_the_newest_schema(serve: Serve) -> None:
    with serve() as served:
        with served.engine.begin() as connection:
            connection.execute(text("UPDATE alembic_version SET version_num = 'old'"))
        answer = served.client.get("/readyz")
        assert (answer.status_code, answer.json()["failing"]) == (503, ["database"])
        assert answer.headers["content-type"] == "application/problem+json"
        assert served.client.get("/healthz").status_code == 200


@pytest.mark.slow
def test_deliveries_are_accepted_without_a_broker(sqlite_url: str) -> None:
    """A proxy takes away who is not ready: it must not, for deliveries would be lost that are stored now."""
    import uvicorn

    # Nothing listens there.
    settings = Settings(database_url=sqlite_url, broker_url="redis://127.0.0.1:1/0", webhook_secret=SECRET)
    app = create_app(settings, checks={"mine": lambda: None})
    running = uvicorn.Server(uvicorn.Config(app, "127.0.0.1", 0, log_config=None))
    thread = threading.Thread(target=running.run)
    thread.start()
    try:
        wait_for(lambda: running.started)
        port = running.servers[0].sockets[0].getsockname()[1]
        with httpx.Client(base_url=f"http://127.0.0.1:{port}") as client:
            ready = client.get("/readyz")
            assert ready.json()["checks"] == [
                "database",
                "inbox",
                "dispatcher",
                "mine",
            ]  # nothing to publish yet
            row = {"kind": "review", "installation_id": 1, "repository_id": 1, "repository": "a/b", "pull": 1,
                   "head_sha": "", "subject": "", "payload": {}, "due_at": datetime.now(timezone.utc),
                   "created_at": datetime.now(timezone.utc)}  # fmt: skip
            from service import database

            engine = database.engine(sqlite_url)
            with engine.begin() as connection:
                connection.execute(insert(Job), row)
            engine.dispose()
            wait_for(lambda: client.get("/readyz").json()["degraded"] == ["broker"])
            assert client.get("/readyz").status_code == 200
            again = database.engine(sqlite_url)
            served = Served(client, port, again)
            assert served.deliver("pull_request", pull_request()).status_code == 202
            with again.connect() as connection:
                assert connection.scalar(text("SELECT count(*) FROM jobs")) == 2
            again.dispose()
    finally:
        running.should_exit = True
        thread.join()


def test_jobs_are_published_as_soon_as_they_are_accepted(serve: Serve) -> None:
    with serve(debounce=0.0) as served:
        served.deliver("pull_request", pull_request())

        def published() -> bool:
            with served.engine.connect() as connection:
                return bool(
                    connection.scalar(text("SELECT count(*) FROM jobs WHERE published_at IS NOT NULL"))
                )

        wait_for(published)


def test_metrics(served: Served) -> None:
    now = datetime.now(timezone.utc)
    served.deliver("pull_request", pull_request())
    served.deliver("issue_comment", b"{}", X_Hub_Signature_256=None)
    served.deliver("star", {"action": "created"})
    with served.engine.begin() as connection:
        connection.execute(update(Job).values(due_at=now - timedelta(seconds=100), published_at=now))
        connection.execute(insert(Installation), {"id": 1, "account": "octo", "created_at": now})
        connection.execute(insert(Repository), {"id": 1, "installation_id": 1, "full_name": "octo/models"})
        for number, seconds in enumerate((1, 2, 3, 7200)):
            posted = now - timedelta(hours=2) if seconds == 7200 else now
            row = {"repository_id": 1, "pull": 1, "head_sha": str(number), "ptopt_version": "0", "files_reviewed": 1,
                   "findings": 0, "received_at": posted - timedelta(seconds=seconds), "posted_at": posted}  # fmt: skip
            connection.execute(insert(ReviewRow), row)
        connection.execute(insert(EndedAnalyses), {"reason": "time", "number": 3})
    assert served.metric('ptopt_deliveries_total{event="pull_request",outcome="accepted"}') == 1
    assert served.metric('ptopt_deliveries_total{event="other",outcome="ignored"}') == 1
    assert served.metric('ptopt_deliveries_rejected_total{reason="signature_missing"}') == 1
    assert served.metric('ptopt_jobs{kind="review",state="queued"}') == 1
    assert served.metric('ptopt_oldest_due_job_seconds{kind="review"}') == pytest.approx(100, abs=20)
    assert served.metric('ptopt_review_latency_seconds{quantile="0.5"}') == pytest.approx(2.0)
    assert served.metric('ptopt_review_latency_seconds{quantile="0.99"}') == pytest.approx(3.0)
    assert served.metric("ptopt_accept_seconds_count") == 3
    assert served.metric('ptopt_recent_reviews{adapter="",model="none"}') == 3
    assert served.metric('ptopt_ended_analyses_total{reason="time"}') == 3


def test_metrics_name_the_models_and_not_too_many(served: Served) -> None:
    now = datetime.now(timezone.utc)
    with served.engine.begin() as connection:
        connection.execute(delete(ReviewRow))
        connection.execute(insert(Installation), {"id": 2, "account": "acme", "created_at": now})
        connection.execute(insert(Repository), {"id": 2, "installation_id": 2, "full_name": "acme/models"})
        for number in range(40):
            row = {"repository_id": 2, "pull": 1, "head_sha": str(number), "ptopt_version": "0", "files_reviewed": 1,
                   "findings": 0, "received_at": now, "posted_at": now, "model": "base",
                   "adapter": f"{max(0, number - 20):02x}" * 32,
                   "model_note": "" if number else "the model is away"}  # fmt: skip
            connection.execute(insert(ReviewRow), row)
    assert served.metric('ptopt_recent_reviews{adapter="000000000000",model="used"}') == 20
    assert served.metric('ptopt_recent_reviews{adapter="000000000000",model="unavailable"}') == 1
    assert served.metric('ptopt_recent_reviews{adapter="other",model="used"}') == 15
    assert served.client.get("/metrics").text.count("\nptopt_recent_reviews{") == 7


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [("GET", "/", 404), ("GET", "/webhooks/github", 405), ("DELETE", "/healthz", 405), ("GET", "/docs", 404),
     ("GET", "/openapi.json", 404), ("GET", "/%2e%2e/etc/passwd", 404)],
)  # fmt: skip
def test_every_error_is_a_problem(served: Served, method: str, path: str, status: int) -> None:
    answer = served.client.request(method, path)
    assert answer.status_code == answer.json()["status"] == status
    assert answer.headers["content-type"] == "application/problem+json"
    assert answer.headers["x-content-type-options"] == "nosniff"
    if status == 405:
        assert answer.headers["allow"] in ("POST", "GET")


def test_what_nobody_expected_is_not_shown(caplog: pytest.LogCaptureFixture) -> None:
    import asyncio

    app = FastAPI()
    problems.install(app)

    @app.get("/fails")
    def fails() -> None:
        raise RuntimeError("hunter2")

    @app.get("/number")
    def number(n: int) -> int:
        return n

    async def main() -> tuple[httpx.Response, httpx.Response]:
        transport = httpx.ASGITransport(app, raise_app_exceptions=True)
        async with httpx.AsyncClient(transport=transport, base_url="http://x") as client:
            return await client.get("/fails"), await client.get("/number", params={"n": "hunter2"})

    failed, invalid = asyncio.run(main())
    assert (failed.status_code, invalid.status_code) == (500, 422)
    assert "hunter2" not in failed.text + invalid.text
    assert invalid.json()["errors"][0]["where"] == "query.n"


def test_the_dispatcher_goes_on_after_a_failure() -> None:
    calls: list[int] = []

    def publish() -> None:
        calls.append(1)
        if len(calls) == 1:
            raise ConnectionError("the broker is away")

    dispatcher = Dispatcher(publish)
    dispatcher.start()
    dispatcher.wake()
    wait_for(lambda: len(calls) == 1)
    with pytest.raises(RuntimeError, match="cannot be published"):
        dispatcher.check_broker()
    dispatcher.check()  # the thread lives, and tries again
    wait_for(lambda: len(calls) >= 2)
    wait_for(lambda: _passes(dispatcher))
    dispatcher.stop()
    with pytest.raises(RuntimeError, match="ended"):
        dispatcher.check()


def _passes(dispatcher: Dispatcher) -> bool:
    try:
        dispatcher.check_broker()
    except RuntimeError:
        return False
    return True


def test_celery_is_given_or_made() -> None:
    from service import broker

    made = broker.publisher(Settings(broker_url="redis://example.org/1"))
    assert isinstance(made, Celery)
    assert made.conf.broker_transport_options["global_keyprefix"] == broker.KEY_PREFIX
