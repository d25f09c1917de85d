"""Whatever fails, and however much is logged: no secret is in a log, an answer, a page or a row."""

from __future__ import annotations

import gc
import io
import logging
import re
from collections.abc import Iterator

import pytest
import structlog
from celery import Celery
from click.testing import CliRunner
from fastapi.testclient import TestClient

from bot.__main__ import main as bot_main
from bot.app import create_app
from fake_github import FakeGitHub
from ptopt.github.auth import AppAuth, for_token
from ptopt.github.errors import GitHubError
from service import logs
from tests.bot.conftest import Serve
from tests.bot.dashboard.world import world as dashboard_world
from tests.security.conftest import Service
from tests.worker.pulls import SLOW, settings_for
from worker.run_job import execute


@pytest.fixture
def log() -> Iterator[io.StringIO]:
    """All that this process logs, at DEBUG, with the libraries at DEBUG too."""
    root, level, handlers = logging.getLogger(), logging.getLogger().level, logging.getLogger().handlers[:]
    out = io.StringIO()
    gc.collect()  # clients of earlier tests close their connections now: httpcore would log it
    logs.configure("DEBUG", "json", out)
    levels = {}
    for name in ("urllib3", "github", "httpx", "httpcore", "sqlalchemy.engine", "requests", "kombu"):
        levels[name] = logging.getLogger(name).level
        logging.getLogger(name).setLevel(logging.DEBUG)
    yield out
    for name, before in levels.items():
        logging.getLogger(name).setLevel(before)
    root.handlers[:] = handlers
    root.setLevel(level)
    structlog.reset_defaults()


def secrets_of(github: FakeGitHub) -> dict[str, str]:
    key = github.app.private_key
    found = {
        "webhook secret": github.app.webhook_secret,
        "key": "".join(key.split("\n")[1:3])[:60],
        "line of the key": key.split("\n")[5],
    }
    for number, request in enumerate(github.requests):
        sent = request.headers.get("authorization", "").partition(" ")[2]
        if sent:
            found[f"authorization of request {number}"] = sent
    return found


def dump(service: Service) -> str:
    """All of the database, as text."""
    with service.resources.engine.connect() as connection:
        tables = (
            connection.exec_driver_sql("SELECT name FROM sqlite_master WHERE type='table'").scalars().all()
        )
        return "\n".join(
            repr(row) for table in tables for row in connection.exec_driver_sql(f'SELECT * FROM "{table}"')
        )


def test_a_sign_in_is_not_logged(serve: Serve, log: io.StringIO) -> None:
    with dashboard_world(serve) as world:
        world.github.faults.add("GET", r"/user/installations", "502", times=3)
        world.github.faults.add("POST", r"/login/oauth/access_token", "502-after")
        client = world.stranger()
        assert world.callback(client, "dev").status_code == 502
        assert world.callback(client, "dev").status_code == 303
        assert client.get("/dashboard/reviews").status_code == 503
        assert client.get("/dashboard/reviews").status_code == 200
        exchanges = [each.json for each in world.github.requests if each.path.endswith("/access_token")]
        secrets = {client.cookies["ptopt_session"], world.github.app.client_secret}
        secrets |= {each[name] for each in exchanges for name in ("code", "code_verifier")}
        secrets |= {token.value for token in world.github.tokens.values() if token.app is not None}
    assert len(secrets) >= 7 and "signed in" in log.getvalue()
    assert not [secret for secret in secrets if secret in log.getvalue()]


FAULTS = [
    ("GET", r"/pulls/\d+$", "500"),
    ("GET", r"/files", "secondary-limit"),
    ("POST", r"/reviews$", "502-after"),
    ("GET", r"/comments", "drop"),
    ("POST", r"/access_tokens$", "500"),
    ("GET", r"/collaborators", "expired-token"),
    ("GET", r"/contents/", "primary-limit"),
    ("POST", r"/graphql", "abuse"),
]


def test_nowhere(service: Service, log: io.StringIO) -> None:
    github = service.github
    pull = service.repo.pull("b", files={"train.py": SLOW})
    github.drain()
    for verb, path, fault in FAULTS:
        github.faults.add(verb, path, fault, times=2)
        pull.comment("dev", f"/ptopt explain PTO101 {fault}\n\n/ptopt fix")
        github.drain()
        for job in service.jobs():
            execute(service.resources, job.id)
    client = service.served.client
    answers = [
        client.get(path).text
        for path in ("/readyz", "/healthz", "/metrics", "/setup", "/nowhere", "/setup/callback")
    ]
    answers.append(
        service.served.deliver("pull_request", b"{", X_Hub_Signature_256="sha256=" + "0" * 64).text
    )
    told = secrets_of(github)
    assert len(told) > 8 and len(log.getvalue()) > 5000
    written = {"log": log.getvalue(), "database": dump(service), "answers": "\n".join(answers)}
    written["github"] = repr(service.written())
    for where, text in written.items():
        for what, secret in told.items():
            assert secret not in text, (where, what)
        assert "PRIVATE KEY" not in text, where
        assert not re.search(r"\bgh[sp]_\w{8}", text), where
    assert github.app.webhook_secret not in repr(service.resources.settings)


def test_a_broken_database(github: FakeGitHub, sqlite_url: str, log: io.StringIO) -> None:
    """Nobody is told its password: not who asks, and not who reads the log."""
    password = "hunter2hunter2"
    url = f"postgresql+psycopg://ptopt:{password}@127.0.0.1:1/ptopt?connect_timeout=1"
    settings = settings_for(github, url)
    app = create_app(settings, celery=Celery(broker="memory://"))
    with TestClient(app, raise_server_exceptions=False) as client:
        paths = ("/readyz", "/metrics", "/setup?token=x", "/setup/callback?code=y&state=z")
        told = [client.get(path).text for path in paths]
    assert "database" in told[0]
    assert log.getvalue()
    for text in (*told, log.getvalue(), repr(settings.webhook_secret), str(settings.private_key)):
        assert password not in text


@pytest.mark.parametrize(
    "values",
    [
        {"PTOPT_PRIVATE_KEY": "hunter2hunter2", "PTOPT_APP_ID": "1"},
        {"PTOPT_GITHUB_URL": "https://user:hunter2hunter2@ghe.example/api/v3"},
        {"PTOPT_GITHUB_URL": "https://ghe.example:hunter2hunter2/api/v3"},
        {"PTOPT_GITHUB_URL": "https://ghe.example/hunter2hunter2?token=hunter2hunter2"},
        {"PTOPT_PUBLIC_URL": "https://user:hunter2hunter2@ptopt.example"},
        {"PTOPT_APP_ID": "hunter2hunter2"},
    ],
)
def test_settings_that_are_wrong(values: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in values.items():
        monkeypatch.setenv(name, value)
    told = CliRunner().invoke(bot_main, ["settings"])
    assert told.exit_code != 0
    assert "hunter2" not in told.output


def test_a_key_that_cannot_sign() -> None:
    key = "-----BEGIN RSA PRIVATE KEY-----\nhunter2hunter2\n-----END RSA PRIVATE KEY-----"
    with pytest.raises(ValueError, match="private key") as caught:
        AppAuth("https://api.github.com", 1, key)
    assert "hunter2" not in str(caught.value) and caught.value.__cause__ is None


def test_errors_of_a_token(github: FakeGitHub) -> None:
    token = "github_pat_hunter2hunter2"
    with pytest.raises(GitHubError) as caught:
        for_token(token, github.url).pull("octo/models", 1)
    error: BaseException | None = caught.value
    while error is not None:
        assert token not in repr(error) + repr(vars(error))
        error = error.__cause__ or error.__context__
    with pytest.raises(ValueError, match="token") as wrong:
        for_token("hunter2 hunter2", github.url)
    assert "hunter2" not in str(wrong.value)


LINES = [
    "ghs_" + "A1b2" * 9,
    "ghs_123_eyJhbGciOi.eyJpc3MiOi.c2ln-YXR1cmU",
    "github_pat_11AAAA_bbbb",
    "Authorization: Bearer eyJhbGciOi.eyJpc3MiOi.c2lnbmF0dXJl",
    "https://x-access-token:ghp_secret@github.com/octo/models.git",
    "postgresql://user:hunter2@db/ptopt",
    "GET /setup?token=hunter2&x=1",
    "-----BEGIN RSA PRIVATE KEY-----\nhunter2\n-----END RSA PRIVATE KEY-----",
]


@pytest.mark.parametrize("text", LINES)
def test_the_last_line_of_defence(text: str, log: io.StringIO) -> None:
    logger = structlog.get_logger("x")
    logger.info("event", value=text, nested={"a": [text]}, token="hunter2")
    logging.getLogger("library").warning("said %s", text)
    try:
        raise RuntimeError(text)
    except RuntimeError:
        logger.exception("failed")
    out = log.getvalue()
    assert not re.search(r"hunter2|ghs_|ghp_secret|pat_11|c2ln|A1b2", out)
    assert len(out.splitlines()) == 3


FORGED = [
    'x\n{"event": "forged"}',
    "x\r\nforged",
    "\x1b[2J\x1b[31m",
    "\u202eforged",
    "\u2028forged",
    "\x00\x07",
    "\ud800",
]


@pytest.mark.parametrize("style", ["json", "console"])
@pytest.mark.parametrize("text", FORGED, ids=ascii)
def test_no_line_of_a_log_is_forged(text: str, style: str) -> None:
    out = io.StringIO()
    handlers = logging.getLogger().handlers[:]
    try:
        logs.configure("INFO", style, out)
        structlog.get_logger("x").info("event", path=text, nested={text: [text]})
        logging.getLogger("library").warning("%s", text)
    finally:
        logging.getLogger().handlers[:] = handlers
        structlog.reset_defaults()
    written = out.getvalue()
    assert len(written.splitlines()) == 2
    assert written.replace("\n", "").isprintable()
