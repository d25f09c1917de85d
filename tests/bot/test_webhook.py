from __future__ import annotations

import gzip
import hashlib
import hmac
import io
import json
import logging
from collections.abc import Iterator
from typing import Any
from uuid import uuid4

import httpx
import pytest
from sqlalchemy import text

from service import logs
from tests.bot.conftest import SECRET, Serve, Served, pull_request, sign

GUID = "72d3162e-cc78-11e3-81ab-4c9367dc0958"


@pytest.fixture
def log() -> Iterator[io.StringIO]:
    """What the process logs, as JSON lines."""
    import structlog

    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    stream = io.StringIO()
    logs.configure("INFO", "json", stream)
    yield stream
    root.handlers[:] = handlers
    root.setLevel(level)
    structlog.reset_defaults()


def problem(answer: httpx.Response, status: int) -> dict[str, Any]:
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"] == "application/problem+json"
    content: dict[str, Any] = answer.json()
    assert content["status"] == status
    assert content["title"]
    return content


def test_accepted_once(served: Served) -> None:
    first = served.deliver("pull_request", pull_request(), guid=GUID)
    again = served.deliver("pull_request", pull_request(), guid=GUID.upper())
    assert (first.status_code, first.json()) == (202, {"outcome": "accepted"})
    assert (again.status_code, again.json()) == (202, {"outcome": "duplicate"})
    assert served.jobs() == [("review", "")]
    assert served.deliveries() == 1


@pytest.mark.parametrize(
    ("event", "payload", "kind"),
    [
        ("pull_request", pull_request(), "review"),
        (
            "pull_request_review_thread",
            pull_request("resolved") | {"thread": {"comments": [{"id": 9}]}},
            "thread",
        ),
        (
            "installation",
            {"action": "deleted", "installation": {"id": 5, "account": {"login": "octo"}}},
            "installation",
        ),
    ],
)
def test_replayed_under_another_delivery_id(
    served: Served, event: str, payload: dict[str, Any], kind: str
) -> None:
    # The id is not signed: whoever has a signed body may send it with any.
    for _ in range(2):
        assert served.deliver(event, payload).json() == {"outcome": "accepted"}
    assert [job for job, _ in served.jobs()] == [kind]


@pytest.mark.parametrize(
    "headers",
    [
        {"X_Hub_Signature_256": None},
        {"X_Hub_Signature_256": ""},
        {"X_Hub_Signature_256": "sha256=" + "0" * 64},
        {"X_Hub_Signature_256": "sha256=" + "0" * 63},
        {"X_Hub_Signature_256": sign(json.dumps(pull_request()).encode(), "another secret")},
        {"X_Hub_Signature_256": sign(b"another body")},
        {
            "X_Hub_Signature_256": None,
            "X_Hub_Signature": "sha1="
            + hmac.new(SECRET.encode(), json.dumps(pull_request()).encode(), hashlib.sha1).hexdigest(),
        },
        # Who is not believed is told nothing about the rest.
        {"X_Hub_Signature_256": None, "Content_Type": "text/plain", "X_GitHub_Event": "?"},
    ],
)
def test_unbelieved(served: Served, headers: dict[str, str | None]) -> None:
    answer = served.deliver("pull_request", pull_request(), **headers)
    assert problem(answer, 401)["detail"] == "The signature is missing or wrong."
    assert served.jobs() == []
    assert served.deliveries() == 0


def test_the_previous_secret_is_good_while_rotating(serve: Serve) -> None:
    body = json.dumps(pull_request()).encode()
    with serve(webhook_secret="new", webhook_secret_previous=SECRET) as served:
        assert served.deliver("pull_request", body).status_code == 202
        assert served.deliver("pull_request", body, X_Hub_Signature_256=sign(body, "new")).status_code == 202
        assert (
            served.deliver("pull_request", body, X_Hub_Signature_256=sign(body, "older")).status_code == 401
        )


def test_without_a_secret_nothing_is_believed(serve: Serve) -> None:
    with serve(webhook_secret=None) as served:
        problem(served.deliver("ping", {}, X_Hub_Signature_256=sign(b"{}", "")), 503)


@pytest.mark.parametrize(
    "guid", ["", "x", GUID[:-1], GUID + "0", GUID.replace("-", "_"), "../" + GUID, "1" * 5000]
)
def test_delivery_ids(served: Served, guid: str) -> None:
    answer = served.deliver("ping", {}, X_GitHub_Delivery=guid)
    assert "X-GitHub-Delivery" in problem(answer, 400)["detail"]


@pytest.mark.parametrize("event", ["", "Ping", "ping\tping", "a" * 65, "pull-request"])
def test_event_names(served: Served, event: str) -> None:
    assert "X-GitHub-Event" in problem(served.deliver(event, {}), 400)["detail"]


def test_a_form_is_told_what_to_set(served: Served) -> None:
    body = b"payload=%7B%7D"
    answer = served.deliver("ping", body, Content_Type="application/x-www-form-urlencoded")
    assert "application/json" in problem(answer, 415)["detail"]
    assert served.deliver("ping", {}, Content_Type="Application/JSON; charset=utf-8").status_code == 202


@pytest.mark.parametrize(
    "body",
    [b"", b"{", b"[]", b"null", b'"x"', b"\xff", b"[" * 5000, gzip.compress(b"{}", mtime=0), b'{"a": 1} {}'],
)
@pytest.mark.parametrize("event", ["ping", "pull_request", "star"])
def test_what_is_no_object(served: Served, event: str, body: bytes) -> None:
    assert problem(served.deliver(event, body), 400)["detail"] == "The body is not a JSON object."


@pytest.mark.parametrize(
    "payload",
    [
        {"action": "opened"},
        pull_request(head={"sha": "a" * 39}),
        pull_request(head={"sha": "A" * 40}),
        pull_request(head={"sha": "a" * 40 + "\n"}),
        pull_request(number=0),
        pull_request(number=2**63),
        pull_request() | {"repository": {"id": 11, "full_name": "octo/.."}},
        pull_request() | {"repository": {"id": 11, "full_name": "../../x"}},
        pull_request() | {"repository": {"id": 11, "full_name": "octo/models/../../x"}},
        pull_request() | {"repository": {"id": -1, "full_name": "octo/models"}},
        pull_request() | {"sender": {"id": 3, "login": "dev\nevil"}},
        pull_request() | {"installation": {"id": "five"}},
    ],
)
def test_malformed_is_counted_not_redelivered(served: Served, payload: dict[str, Any]) -> None:
    counter = 'ptopt_deliveries_total{event="pull_request",outcome="malformed"}'
    before = served.metric(counter)
    answer = served.deliver("pull_request", payload)
    assert (answer.status_code, answer.json()) == (202, {"outcome": "malformed"})
    assert served.jobs() == []
    assert served.metric(counter) == before + 1


def test_ignored(served: Served) -> None:
    assert served.deliver("star", {"action": "created"}).json() == {"outcome": "ignored"}
    assert served.deliver("pull_request", pull_request("labeled")).json() == {"outcome": "ignored"}
    # An action that we do not handle may have any shape.
    assert served.deliver("pull_request", {"action": "labeled"}).json() == {"outcome": "ignored"}
    without = {key: value for key, value in pull_request().items() if key != "installation"}
    assert served.deliver("pull_request", without).json() == {"outcome": "no_installation"}
    assert served.jobs() == []


def test_a_database_that_is_away(serve: Serve) -> None:
    with serve() as served:
        with served.engine.begin() as connection:
            connection.execute(text("DROP TABLE deliveries"))
        answer = served.deliver("pull_request", pull_request())
    problem(answer, 503)
    assert answer.headers["retry-after"]
    assert "deliveries" not in answer.text


def test_log_lines_tell_delivery_and_repository(served: Served, log: io.StringIO) -> None:
    served.deliver("pull_request", pull_request(), guid=GUID)
    served.deliver("pull_request", pull_request(), guid=GUID, X_Hub_Signature_256="sha256=" + "0" * 64)
    lines = [json.loads(line) for line in log.getvalue().splitlines()]
    accepted = next(line for line in lines if line["event"] == "delivery accepted")
    assert accepted["delivery"] == GUID
    assert accepted["repository"] == "octo/models"
    assert accepted["github_event"] == "pull_request"
    refused = next(line for line in lines if line["event"] == "delivery rejected")
    assert (refused["delivery"], refused["reason"]) == (GUID, "signature_wrong")
    assert "repository" not in refused  # one delivery's words do not stick to the next


def test_nothing_of_a_stranger_begins_a_log_line(served: Served, log: io.StringIO) -> None:
    hostile = 'x"}\n{"event":"forged"}'
    for guid in (b"x\x85forged", str(uuid4()).encode() + b" forged", b'"}{"event":"forged"}'):
        served.deliver("ping", {}, X_GitHub_Delivery=guid)
    served.deliver("pull_request", pull_request("opened" + hostile))
    served.deliver("pull_request", pull_request() | {"repository": {"id": 1, "full_name": "a/b" + hostile}})
    lines = [json.loads(line) for line in log.getvalue().splitlines()]
    assert len(lines) >= 5
    assert "forged" not in log.getvalue()
