from __future__ import annotations

import io
import json
import logging
from collections.abc import Iterator
from typing import Any

import pytest
import structlog
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from service import logs

JWT = "eyJhbGciOiJSUzI1NiJ9.eyJpc3MiOiIxIn0.c2lnbmF0dXJl-_x"
KEY = "-----BEGIN RSA PRIVATE KEY-----\nMIIEpAIBAAKCAQEA\nabcdef\n-----END RSA PRIVATE KEY-----"
SECRETS = [
    "ghs_" + "a" * 36,
    "ghs_1",
    "ghp_" + "Z9" * 200,
    "ghs_12345_" + JWT,  # the stateless form: neither its length nor its alphabet is that of the old one
    "github_pat_11ABC_def",
    JWT,
    KEY,
]


@pytest.fixture(params=["json", "console"])
def stream(request: pytest.FixtureRequest) -> Iterator[io.StringIO]:
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    out = io.StringIO()
    logs.configure("INFO", request.param, out)
    yield out
    root.handlers[:] = handlers
    root.setLevel(level)
    structlog.reset_defaults()


def test_context_is_on_every_line(stream: io.StringIO) -> None:
    with structlog.contextvars.bound_contextvars(delivery="d-1", job=7, repository="octo/models"):
        structlog.get_logger("x").info("ours", more=1)
        logging.getLogger("celery.worker").warning("theirs %s", "argument")
        logging.getLogger("uvicorn.error").error("server")
    lines = stream.getvalue().splitlines()
    assert len(lines) == 3
    for line, text in zip(lines, ("ours", "theirs argument", "server"), strict=True):
        assert text in line
        for value in ("d-1", "7", "octo/models"):
            assert value in line


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(text=st.text() | st.binary(), key=st.text(min_size=1, max_size=20))
def test_one_event_one_line(stream: io.StringIO, text: Any, key: str) -> None:
    stream.seek(0)
    stream.truncate()
    structlog.get_logger().info("begin", value=text, listed=[text, {key: text}])
    logging.getLogger("other").info("%s", text, extra={"also": text})
    written = stream.getvalue()
    assert written.endswith("\n")
    assert len(written.splitlines()) == 2
    assert all(char.isprintable() for char in written.replace("\n", ""))


@pytest.mark.parametrize("secret", SECRETS)
def test_secrets_do_not_get_through(stream: io.StringIO, secret: str) -> None:
    log = structlog.get_logger()
    log.info(f"text with {secret} inside", value=secret, nested={"a": [secret]}, thing=ValueError(secret))
    log.info("cut", value="x" * 1990 + " " + secret)
    logging.getLogger("other").warning("got %s", secret)
    try:
        raise RuntimeError(f"failed with {secret}")
    except RuntimeError:
        log.exception("it failed")
        logging.getLogger("other").exception("it failed")
    for part in secret.replace("-----", "\n").split("\n"):
        if len(part) > 4 and "PRIVATE" not in part:
            assert part not in stream.getvalue()
    assert stream.getvalue().count("[redacted]") >= 7


def test_secrets_by_their_place(stream: io.StringIO) -> None:
    structlog.get_logger().info(
        "x",
        webhook_secret="hunter2a",
        headers={"Authorization": "hunter2b", "accept": "json"},
        url="https://x-access-token:hunter2c@github.com/a/b.git",
        database="postgresql+psycopg://ptopt:hunter2d@db/ptopt",
        header="Bearer hunter2e-and-more",
        path="GET /setup?token=hunter2f&x=1",
    )
    written = stream.getvalue()
    assert "hunter2" not in written
    assert all(word in written for word in ("github.com/a/b.git", "@db/ptopt", "json", "x=1"))


def test_ordinary_values_are_left_as_they_are(stream: io.StringIO) -> None:
    structlog.get_logger().info(
        "ghost story", sha="a" * 40, n=1.5, ok=True, none=None, path="a/b_c-d.py", q="ghs"
    )
    assert "[redacted]" not in stream.getvalue()
    assert "a" * 40 in stream.getvalue()
    assert "a/b_c-d.py" in stream.getvalue()


def test_values_are_cut(stream: io.StringIO) -> None:
    structlog.get_logger().info("x" * 10**6, value=["y" * 10**6] * 1000)
    assert len(stream.getvalue()) < 150_000


def test_a_traceback_cannot_forge_a_line() -> None:
    stream = io.StringIO()
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    try:
        logs.configure("INFO", "console", stream)
        try:
            raise ValueError("x\n2026-01-01T00:00:00Z error    forged")
        except ValueError:
            structlog.get_logger().exception("it failed")
    finally:
        root.handlers[:] = handlers
        root.setLevel(level)
        structlog.reset_defaults()
    first, *rest = stream.getvalue().splitlines()
    assert "it failed" in first
    assert rest and all(line.startswith("    ") for line in rest)


def test_json_lines_are_json() -> None:
    stream = io.StringIO()
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    try:
        logs.configure("INFO", "json", stream)
        structlog.get_logger().info("x", value={1: {2, 3}}, odd=object)
        structlog.get_logger().debug("not at this level")
    finally:
        root.handlers[:] = handlers
        root.setLevel(level)
        structlog.reset_defaults()
    (line,) = stream.getvalue().splitlines()
    read = json.loads(line)
    assert read["event"] == "x"
    assert read["level"] == "info"
    assert sorted(read["value"]["1"]) == [2, 3]


def test_libraries_say_nothing_twice(stream: io.StringIO) -> None:
    logging.getLogger("uvicorn.error").info("Started", extra={"color_message": "Started \x1b[36m%d"})
    migrations = logging.getLogger("alembic.runtime.migration")
    migrations.info("Context impl SQLiteImpl.")
    migrations.info("Running upgrade 0001 -> 0002")
    lines = stream.getvalue().splitlines()
    assert len(lines) == 2 and "color_message" not in lines[0] and "Running upgrade" in lines[1]
