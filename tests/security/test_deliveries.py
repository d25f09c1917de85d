"""Forged and replayed deliveries, and those that lie about themselves, to the real server."""

from __future__ import annotations

import hashlib
import hmac
import json
import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from uuid import uuid4

import pytest

from bot import server
from service.jobs import Kind
from tests.bot.conftest import SECRET, Serve, Served, pull_request, sign
from tests.security.conftest import Service
from tests.worker.pulls import FAST, SLOW

BODY = json.dumps(pull_request()).encode()


def sha1(body: bytes) -> str:
    return "sha1=" + hmac.new(SECRET.encode(), body, hashlib.sha1).hexdigest()


FORGED: dict[str, dict[str, str | bytes | None]] = {
    "none": {"X_Hub_Signature_256": None},
    "empty": {"X_Hub_Signature_256": ""},
    "sha1 only": {"X_Hub_Signature_256": None, "X_Hub_Signature": sha1(BODY)},
    "sha1 in its place": {"X_Hub_Signature_256": sha1(BODY)},
    "sha1 named sha256": {"X_Hub_Signature_256": sha1(BODY).replace("sha1", "sha256")},
    "cut": {"X_Hub_Signature_256": sign(BODY)[:-1]},
    "first half": {"X_Hub_Signature_256": sign(BODY)[:39]},
    "one digit": {"X_Hub_Signature_256": sign(BODY)[:-1] + ("0" if sign(BODY)[-1] != "0" else "1")},
    "bare": {"X_Hub_Signature_256": sign(BODY).removeprefix("sha256=")},
    "longer": {"X_Hub_Signature_256": sign(BODY) + "0"},
    "upper case": {"X_Hub_Signature_256": "sha256=" + sign(BODY)[7:].upper()},
    "another secret": {"X_Hub_Signature_256": sign(BODY, "a guess")},
    "no secret": {"X_Hub_Signature_256": sign(BODY, "")},
    "another body": {"X_Hub_Signature_256": sign(BODY + b" ")},
    "another header": {"X_Hub_Signature_256": None, "X_Hub_Signature_512": sign(BODY)},
    "two in one": {"X_Hub_Signature_256": f"{sign(BODY, 'x')}, {sign(BODY)}"},
    "not ascii": {"X_Hub_Signature_256": b"sha256=" + "é".encode() * 32},
}


@pytest.fixture
def served(serve: Serve) -> Iterator[Served]:
    with serve() as served:
        yield served


def test_forged_signatures(served: Served) -> None:
    answers = {name: served.deliver("pull_request", BODY, **headers) for name, headers in FORGED.items()}
    assert {name: answer.status_code for name, answer in answers.items()} == dict.fromkeys(FORGED, 401)
    assert len({answer.content for answer in answers.values()}) == 1  # nobody learns how near it was
    assert (served.jobs(), served.deliveries()) == ([], 0)
    assert served.deliver("pull_request", BODY).status_code == 202


def test_the_same_body_under_new_ids(service: Service) -> None:
    """The GUID is not signed: whoever has seen a delivery can send it again under another one."""
    pull = service.repo.pull("b", files={"train.py": SLOW})
    service.work()
    pull.comment("dev", "/ptopt pause")
    service.work()
    pull.comment("dev", "/ptopt resume")
    service.work()
    said, jobs = service.bodies(pull), [(job.kind, job.subject) for job in service.jobs()]
    for delivery in list(service.github.deliveries):
        for _ in range(2):
            answer = service.served.client.post(
                "/webhooks/github",
                content=delivery.body,
                headers={**delivery.headers, "X-GitHub-Delivery": str(uuid4())},
            )
            assert answer.status_code == 202
    service.work()
    assert service.bodies(pull) == said
    assert [(job.kind, job.subject) for job in service.jobs()] == jobs
    assert [word for job in service.jobs(Kind.COMMAND.value) for word in [job.state]] == ["done", "done"]


def test_an_old_body_after_its_jobs_are_forgotten(service: Service) -> None:
    """Jobs are pruned after weeks. A delivery from before then brings nothing back."""
    pull = service.repo.pull("b", files={"train.py": SLOW})
    pull.comment("dev", "/ptopt ignore PTO101")
    service.work()
    pull.push({"train.py": FAST})
    service.work()
    said = service.bodies(pull)
    old = list(service.github.deliveries)
    with service.resources.engine.begin() as connection:
        connection.exec_driver_sql("DELETE FROM jobs")
        connection.exec_driver_sql("DELETE FROM deliveries")
    for delivery in old:
        service.served.client.post("/webhooks/github", content=delivery.body, headers=delivery.headers)
    service.work()
    assert service.bodies(pull) == said


# -- the length, over a raw socket -----------------------------------------------------------------------------------


def head(*more: str, body: bytes = BODY) -> bytes:
    lines = (
        "POST /webhooks/github HTTP/1.1",
        "Host: x",
        "Content-Type: application/json",
        "X-GitHub-Event: pull_request",
        f"X-GitHub-Delivery: {uuid4()}",
        f"X-Hub-Signature-256: {sign(body)}",
        *more,
    )
    return ("\r\n".join(lines) + "\r\n\r\n").encode()


def talk(served: Served, *parts: bytes, close: bool = False, timeout: float = 10) -> bytes:
    """All that the server says until it closes the connection or nothing comes for a second."""
    with socket.create_connection(("127.0.0.1", served.port), timeout=timeout) as connection:
        try:
            for part in parts:
                connection.sendall(part)
            if close:
                connection.shutdown(socket.SHUT_WR)
        except OSError:
            pass
        answer = b""
        while True:
            try:
                more = connection.recv(65536)
            except (TimeoutError, ConnectionResetError):
                return answer
            if not more:
                return answer
            answer += more
            connection.settimeout(0.3)


def statuses(answer: bytes) -> list[bytes]:
    return [line.split()[1] for line in answer.split(b"\r\n") if line.startswith(b"HTTP/1.1 ")]


def test_lengths_that_lie(served: Served) -> None:
    short = talk(served, head(f"Content-Length: {len(BODY) - 1}") + BODY)
    assert statuses(short)[0] in (b"400", b"401")  # what was signed is not what came
    assert talk(served, head(f"Content-Length: {len(BODY) + 9}") + BODY, close=True)[:12] in (
        b"",
        b"HTTP/1.1 400",
    )
    both = head(f"Content-Length: {len(BODY)}", "Transfer-Encoding: chunked") + b"0\r\n\r\n" + BODY
    assert b"202" not in statuses(talk(served, both))
    twice = head(f"Content-Length: {len(BODY)}", "Content-Length: 0") + BODY
    assert b"202" not in statuses(talk(served, twice))
    odd = head("Transfer-Encoding: identity, chunked, x") + BODY
    assert b"202" not in statuses(talk(served, odd))
    assert (served.jobs(), served.deliveries()) == ([], 0)


def test_chunks_without_an_end(served: Served) -> None:
    mebibyte = b"100000\r\n" + b"x" * 2**20 + b"\r\n"
    answer = talk(served, head("Transfer-Encoding: chunked"), *[mebibyte] * 30)
    assert statuses(answer) in ([b"413"], [])  # the connection may be reset before the answer is read
    assert served.deliver("pull_request", BODY).status_code == 202


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch, serve: Serve) -> Iterator[Served]:
    monkeypatch.setattr(server.Impatient, "seconds", 0.6)
    with serve() as served:
        yield served


@pytest.mark.parametrize(
    "drops",
    [
        [],
        [b"POST /webhooks/github HTTP/1.1\r\n"],
        [b"G"] + [b"E"] * 40,
        [b"GET /healthz HTTP/1.1\r\nHost: x\r\n", *[b"A: b\r\n"] * 40],
        [b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n", *[b"\r\n"] * 40],
        [b"GET /healthz HTTP/1.1\r\nHost: x\r\nContent-Length: 900\r\n\r\n", *[b"x"] * 40],
    ],
    ids=["silent", "a line", "letters", "headers", "after an answer", "a body nobody reads"],
)
def test_slow_strangers_are_hung_up_on(impatient: Served, drops: list[bytes]) -> None:
    """Else a few hundred connections that say next to nothing keep GitHub's deliveries out."""
    with socket.create_connection(("127.0.0.1", impatient.port), timeout=20) as connection:
        try:
            for drop in drops:
                connection.sendall(drop)
                time.sleep(0.05)
            while connection.recv(65536):
                pass
        except OSError as error:
            assert not isinstance(error, TimeoutError)
    assert impatient.deliver("pull_request", BODY).status_code == 202


@pytest.mark.parametrize("sent", ["nothing", "headers", "a part of a body"])
@pytest.mark.parametrize("proxies", ["", "127.0.0.1"], ids=["direct", "behind a proxy"])
def test_connections_that_say_no_more_keep_nobody_out(
    serve: Serve, monkeypatch: pytest.MonkeyPatch, sent: str, proxies: str
) -> None:
    monkeypatch.setattr(server, "_MAX_CONNECTIONS" if proxies else "_MAX_OF_PEER", 20)
    monkeypatch.setattr(server.Impatient, "seconds", 120)  # longer than a delivery waits for its answer
    part = {"nothing": b"", "headers": head()[:-2], "a part of a body": head("Content-Length: 900") + b"{"}[
        sent
    ]
    with serve(proxies=proxies) as served, ExitStack() as stack:
        for _ in range(60):
            stranger = socket.create_connection(("127.0.0.1", served.port), timeout=5)
            stack.enter_context(stranger).sendall(part)
        assert [served.deliver("pull_request", BODY).status_code for _ in range(3)] == [202] * 3


@pytest.mark.slow
@pytest.mark.parametrize("proxies", ["", "127.0.0.1"], ids=["direct", "behind a proxy"])
def test_unfinished_large_bodies_keep_nobody_out(serve: Serve, proxies: str) -> None:
    """Nine of them are more than all large bodies may have of the memory together."""
    most = 25 * 2**20
    large = json.dumps(pull_request() | {"filler": "x" * 2**20}).encode()
    with serve(proxies=proxies) as served, ExitStack() as stack:
        for _ in range(9):
            stranger = socket.create_connection(("127.0.0.1", served.port), timeout=5)
            with suppress(OSError):  # it is sent away while it sends
                stack.enter_context(stranger).sendall(head(f"Content-Length: {most}") + b"x" * (most - 1))
        started = time.monotonic()
        assert served.deliver("pull_request", BODY).status_code == 202
        assert served.deliver("pull_request", large).status_code == 202
        assert time.monotonic() - started < 10  # before bodies that do not end are given up


def test_headers_without_an_end(served: Served) -> None:
    with socket.create_connection(("127.0.0.1", served.port), timeout=5) as connection:
        connection.sendall(b"GET /healthz HTTP/1.1\r\nHost: x\r\nX-A: ")
        sent = 0
        with suppress(OSError):  # it hangs up
            while sent < 2**26:
                connection.sendall(b"a" * 2**16)
                sent += 2**16
        assert sent < 2**24
    assert served.deliver("pull_request", BODY).status_code == 202


def test_no_redirect_to_where_a_request_says(served: Served) -> None:
    """A slash too many would be answered with an address made of the Host header, setup token and all."""
    for path in (
        "/setup/?token=x",
        "//evil.example/setup/",
        "/healthz/",
        "/webhooks/github/",
        "/\\evil.example/",
    ):
        answer = talk(
            served, f"GET {path} HTTP/1.1\r\nHost: evil.example\r\nConnection: close\r\n\r\n".encode()
        )
        assert b"location:" not in answer.lower()
        assert b"evil.example" not in answer


# -- what is in the body ---------------------------------------------------------------------------------------------

DEEP = 100_000


@pytest.mark.parametrize(
    ("body", "status"),
    [
        (b"[" * DEEP, 400),
        (b'{"a":' * DEEP + b"1" + b"}" * DEEP, 400),
        (BODY[:-1] + b',"x":' + b"[" * DEEP + b"]" * DEEP + b"}", 400),
        (BODY[:-1] + b',"number":' + b"9" * 100_000 + b"}", 400),
        (BODY.replace(b'"id": 5', b'"id": 9223372036854775808'), 202),
        (BODY.replace(b'"id": 5', b'"id": -1'), 202),
        (BODY.replace(b'"id": 5', b'"id": 1e400'), 202),
        (BODY.replace(b'"id": 5', b'"id": NaN'), 202),
        (BODY.replace(b'"dev"', b'"\\ud800"'), 400),
        (BODY.replace(b'"dev"', b'"a\\u0000b"'), 202),
        (BODY.replace(b'"octo/models"', b'"../../etc"'), 202),
        (BODY.replace(b'"octo/models"', b'"octo/models\\n"'), 202),
        (BODY.replace(b'"octo/models"', b'"--upload-pack=evil/x"'), 202),
        (BODY.replace(b'"octo/models"', b'"octo/models/../../user"'), 202),
        (BODY.replace(b"a" * 40, b"a" * 39 + b"\\n"), 202),
        (BODY.replace(b"a" * 40, b"--upload-pack=evil"), 202),
        (b"\xff\xfe\x00", 400),
        (b"null", 400),
    ],
    ids=lambda value: repr(value[:20]) if isinstance(value, bytes) else str(value),
)
def test_signed_nonsense(served: Served, body: bytes, status: int) -> None:
    """Signed, so of GitHub or of somebody who took over its place: answered, never a crash, and no job."""
    started = time.process_time()
    answer = served.deliver("pull_request", body)
    assert answer.status_code == status
    assert b"Traceback" not in answer.content
    assert served.jobs() == []
    assert time.process_time() - started < 5


def test_keys_that_come_twice(served: Served) -> None:
    """The last one counts, everywhere: there is one reader."""
    body = BODY[:-1] + b',"repository":{"id":12,"full_name":"octo/other"}}'
    assert served.deliver("pull_request", body).status_code == 202
    with served.engine.connect() as connection:
        assert connection.exec_driver_sql("SELECT repository, repository_id FROM jobs").all() == [
            ("octo/other", 12)
        ]
