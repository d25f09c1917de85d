"""GitHub's recorded payloads, and hostile variants of them, delivered to the whole application."""

from __future__ import annotations

import copy
import hashlib
import hmac
import json
import threading
import time
from collections.abc import Iterator
from typing import Any
from uuid import uuid4

import httpx
import pytest
from celery import Celery
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pydantic import SecretStr
from sqlalchemy import Engine, select

from bot.app import create_app
from bot.server import server
from fake_github import descriptions
from service.models import DeliveryRow, Job
from service.settings import Settings

SECRET = b"a secret of this test"
CORPUS = [(event, payload) for event, examples in descriptions.webhooks().items() for payload in examples]

# Which of them ask for work, when the App's webhook delivers them. Comments of the corpus hold no slash command.
KINDS = {
    ("pull_request", "opened"): "review",
    ("pull_request", "reopened"): "review",
    ("pull_request", "synchronize"): "review",
    ("pull_request", "ready_for_review"): "review",
    ("pull_request", "closed"): "closed",
    ("pull_request_review_thread", "resolved"): "thread",
    ("pull_request_review_thread", "unresolved"): "thread",
    ("installation", "created"): "installation",
    ("installation", "deleted"): "installation",
    ("installation", "suspend"): "installation",
    ("installation", "unsuspend"): "installation",
    ("installation", "new_permissions_accepted"): "installation",
    ("installation_repositories", "added"): "installation",
    ("installation_repositories", "removed"): "installation",
}
HANDLED = {event for event, _ in KINDS} | {"issue_comment", "pull_request_review_comment", "ping"}


class Deliverer:
    """Posts signed deliveries to the application."""

    def __init__(self, client: httpx.Client) -> None:
        self._client = client

    def __call__(self, event: str, payload: Any) -> tuple[str, int, dict[str, Any]]:
        """Its GUID, the status and what was answered."""
        guid = str(uuid4())
        body = payload if isinstance(payload, bytes) else json.dumps(payload).encode()
        headers = {
            "Content-Type": "application/json",
            "X-GitHub-Event": event,
            "X-GitHub-Delivery": guid,
            "X-Hub-Signature-256": "sha256=" + hmac.new(SECRET, body, hashlib.sha256).hexdigest(),
        }
        answer = self._client.post("/webhooks/github", content=body, headers=headers)
        if answer.status_code >= 400:
            assert answer.headers["content-type"] == "application/problem+json"
            assert answer.json()["status"] == answer.status_code and answer.json()["title"]
        return guid, answer.status_code, answer.json()


@pytest.fixture
def deliver(database_url: str) -> Iterator[Deliverer]:
    """To the application behind its real server, with a broker in memory."""
    configured = Settings(database_url=database_url, webhook_secret=SecretStr(SECRET.decode()))
    app = create_app(configured, celery=Celery(broker="memory://"))
    running = server(app, "127.0.0.1", 0)
    thread = threading.Thread(target=running.run)
    thread.start()
    while not running.started and thread.is_alive():
        time.sleep(0.01)
    port = running.servers[0].sockets[0].getsockname()[1]
    with httpx.Client(base_url=f"http://127.0.0.1:{port}") as client:
        yield Deliverer(client)
    running.should_exit = True
    thread.join()


def test_the_corpus_is_whole() -> None:
    assert len(CORPUS) == 329
    assert {(event, payload.get("action", "")) for event, payload in CORPUS} >= set(KINDS)


def test_recorded_payloads(deliver: Deliverer, engine: Engine) -> None:
    wanted = set()
    for event, payload in CORPUS:
        guid, status, answer = deliver(event, payload)
        assert status == 202, (event, payload.get("action"), answer)
        kind = KINDS.get((event, payload.get("action", "")))
        if kind is None:
            assert answer == {"outcome": "ignored"}, (event, payload.get("action"))
        elif "installation" not in payload:
            assert answer == {"outcome": "no_installation"}, (event, payload.get("action"))
        else:
            assert answer == {"outcome": "accepted"}, (event, payload.get("action"))
            pull = payload.get("pull_request", {})
            head = pull["head"]["sha"] if kind in ("review", "closed") else ""
            repository = payload.get("repository", {})
            wanted.add(
                (
                    kind,
                    payload["installation"]["id"],
                    repository.get("full_name", ""),
                    pull.get("number", 0),
                    head,
                )
            )
            with engine.connect() as connection:
                assert connection.scalar(select(DeliveryRow.event).where(DeliveryRow.guid == guid)) == event
    with engine.connect() as connection:
        columns = (Job.kind, Job.installation_id, Job.repository, Job.pull, Job.head_sha)
        assert {tuple(row) for row in connection.execute(select(*columns))} == wanted


@pytest.mark.parametrize(
    ("event", "where"), [("issue_comment", "issue"), ("pull_request_review_comment", "review")]
)
def test_recorded_comments_with_a_command(deliver: Deliverer, engine: Engine, event: str, where: str) -> None:
    payload = copy.deepcopy(
        next(each for each in descriptions.webhooks()[event] if each["action"] == "created")
    )
    payload["comment"]["body"] = "Thanks!\n\n/ptopt explain here\n"
    payload["installation"] = {"id": 7}
    if where == "issue":
        payload["issue"]["pull_request"] = {"url": "http://169.254.169.254/"}
    assert deliver(event, payload)[2] == {"outcome": "accepted"}
    with engine.connect() as connection:
        kind, job = connection.execute(select(Job.kind, Job.payload)).one()
    assert kind == "command"
    assert (job["where"], job["comment_id"]) == (where, payload["comment"]["id"])
    assert job["body"] == payload["comment"]["body"]
    assert "169.254" not in json.dumps(job)


def _paths(node: Any, path: tuple[str | int, ...] = ()) -> Iterator[tuple[str | int, ...]]:
    children: Any = (
        node.items() if isinstance(node, dict) else enumerate(node) if isinstance(node, list) else ()
    )
    for key, child in children:
        yield (*path, key)
        yield from _paths(child, (*path, key))


DROP = object()
NESTED: list[Any] = []
for _ in range(300):
    NESTED = [NESTED]
VALUES = [
    DROP, None, True, False, 0, -1, 1, 2**31, 2**63, 10**30, 1.5, 1e300, float("nan"), float("inf"), "", "0", "../..",
    "a/b", "\0", "\ud800", "x" * 300_000, "é" * 70_000, "/ptopt help", "/ptopt " + "[" * 5_000, "created", "opened",
    "2024-13-01T00:00:00Z", "0001-01-01T00:00:00Z", "f" * 40, [], {}, [None], {"id": None}, [{}], NESTED,
]  # fmt: skip
READ = {
    "action", "after", "author_association", "before", "body", "changes", "comment", "comments", "created_at", "from", "full_name",
    "head", "html_url", "id", "in_reply_to_id", "installation", "issue", "login", "merged", "number", "private",
    "pull_request", "repositories", "repositories_added", "repositories_removed", "repository", "sender", "sha",
    "thread", "type", "updated_at", "user", "account", "slug",
}  # fmt: skip
TARGETS = [
    (event, payload, all_, [path for path in all_ if path[-1] in READ and len(path) < 4])
    for event, payload in CORPUS
    if event in HANDLED
    for all_ in [list(_paths(payload))]
]


@st.composite
def mutated(draw: st.DrawFn) -> tuple[str, Any]:
    """A payload of an event that we handle, with one to four of its values dropped or replaced."""
    event, payload, paths, read = draw(st.sampled_from(TARGETS))
    payload = copy.deepcopy(payload)
    for path in draw(
        st.lists(
            st.one_of(*(st.sampled_from(each) for each in (read, paths) if each)), min_size=1, max_size=4
        )
    ):
        parent = payload
        try:
            for key in path[:-1]:
                parent = parent[key]
            value = draw(st.sampled_from(VALUES))
            if value is DROP:
                del parent[path[-1]]
            else:
                parent[path[-1]] = copy.deepcopy(value)
        except (LookupError, TypeError):  # an earlier change took it away
            continue
    return event, payload


@pytest.mark.slow
@settings(max_examples=300, deadline=None, suppress_health_check=list(HealthCheck))
@given(delivery=mutated())
def test_mutated_payloads(deliver: Deliverer, delivery: tuple[str, Any]) -> None:
    _, status, answer = deliver(*delivery)
    assert status == 202 or 400 <= status < 500, answer


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    event=st.one_of(
        st.sampled_from(sorted(HANDLED)),
        st.text(st.characters(codec="ascii", categories=["L", "N", "P"]), max_size=80),
    ),
    body=st.one_of(
        st.binary(max_size=200),
        st.sampled_from(
            [
                b"",
                b"{",
                b"[]",
                b"null",
                b"{}",
                b"[" * 100_000,
                b'{"a":' * 10_000,
                b'{"action":"opened"}',
                b"\xff{}",
            ]
        ),
    ),
)
def test_bodies_that_are_no_payloads(deliver: Deliverer, event: str, body: bytes) -> None:
    _, status, answer = deliver(event, body)
    assert status == 202 or 400 <= status < 500, answer
