"""Deliveries: signed, remembered, sent again with the same GUID."""

from __future__ import annotations

import hashlib
import hmac
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from fake_github import FakeGitHub, Pull, Repo
from tests.fake_github.conftest import Ask
from tests.fake_github.test_apps import app_jwt


class Receiver(ThreadingHTTPServer):
    """Keeps what arrives; answers `status`."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.status = 202
        self.got: list[tuple[dict[str, str], bytes]] = []

    @property
    def events(self) -> list[tuple[str, str]]:
        return [(headers["x-github-event"], json.loads(body).get("action")) for headers, body in self.got]


class _Handler(BaseHTTPRequestHandler):
    server: Receiver

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.server.got.append(({name.lower(): value for name, value in self.headers.items()}, body))
        self.send_response(self.server.status)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def receiver(github: FakeGitHub, repo: Repo) -> Iterator[Receiver]:
    with Receiver() as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        github.webhook_url = f"http://127.0.0.1:{server.server_port}/webhooks/github"
        yield server
        server.shutdown()


def test_what_people_do_is_delivered(receiver: Receiver, github: FakeGitHub, repo: Repo) -> None:
    pull = repo.pull(files={"train.py": b"x\ny\n"})
    pull.push({"train.py": b"y\ny\n"})
    comment = pull.comment("dev", "hello")
    pull.edit_comment("dev", comment, "/ptopt help")
    review = pull.review_comment("dev", "train.py", 1, "hm")
    pull.reply("octo", review, "well")
    pull.react("dev", review, "+1")
    pull.resolve("dev", review)
    pull.close(merged=True)
    assert repo.installation
    github.uninstall(repo.installation)
    assert receiver.events == [
        ("pull_request", "opened"),
        ("pull_request", "synchronize"),
        ("issue_comment", "created"),
        ("issue_comment", "edited"),
        ("pull_request_review_comment", "created"),
        ("pull_request_review_comment", "created"),
        ("pull_request_review_thread", "resolved"),
        ("pull_request", "closed"),
        ("installation", "deleted"),
    ]
    opened, synchronize = (json.loads(body) for _, body in receiver.got[:2])
    assert synchronize["before"] == opened["pull_request"]["head"]["sha"]
    assert (
        synchronize["after"]
        == synchronize["pull_request"]["head"]["sha"]
        == pull.review_comments[0].commit_id
    )
    assert json.loads(receiver.got[3][1])["changes"] == {"body": {"from": "hello"}}


def test_the_signature(receiver: Receiver, github: FakeGitHub, repo: Repo) -> None:
    repo.pull(files={"a.py": b"1\n"})
    headers, body = receiver.got[0]
    expected = hmac.new(github.app.webhook_secret.encode(), body, hashlib.sha256).hexdigest()
    assert headers["x-hub-signature-256"] == f"sha256={expected}"
    assert headers["x-github-delivery"] == github.deliveries[0].guid
    assert github.deliveries[0].status_code == 202


def test_what_requests_do_is_delivered(receiver: Receiver, github: FakeGitHub, pull: Pull, ask: Ask) -> None:
    ask("POST", "/repos/octo/models/issues/1/comments", {"body": "mine"})
    github.drain()
    assert receiver.events[-1] == ("issue_comment", "created")
    assert json.loads(receiver.got[-1][1])["sender"]["login"] == "ptopt[bot]"


def test_a_failed_delivery_is_found_and_sent_again(
    receiver: Receiver, github: FakeGitHub, repo: Repo, ask: Ask
) -> None:
    receiver.status = 503
    for number in range(3):
        repo.pull(files={f"{number}.py": b"1\n"})
    receiver.status = 202
    token = app_jwt(github)
    page = ask("GET", "/app/hook/deliveries?per_page=2", token=token)
    assert [each["status_code"] for each in page.json()] == [503, 503]
    rest = ask("GET", page.links["next"]["url"], token=token).json()
    assert len(rest) == 1
    first = rest[0]
    whole = ask("GET", f"/app/hook/deliveries/{first['id']}", token=token).json()
    assert whole["request"]["payload"]["number"] == 1
    assert ask("POST", f"/app/hook/deliveries/{first['id']}/attempts", token=token).status_code == 202
    github.drain()
    newest = ask("GET", "/app/hook/deliveries?per_page=1", token=token).json()[0]
    assert (newest["guid"], newest["redelivery"], newest["status_code"]) == (first["guid"], True, 202)
    assert receiver.got[-1][1] == receiver.got[0][1]


def test_nobody_there(github: FakeGitHub, repo: Repo) -> None:
    github.webhook_url = "http://127.0.0.1:9/"
    repo.pull(files={"a.py": b"1\n"})
    assert (github.deliveries[0].status_code, github.deliveries[0].status) == (0, "failed to connect to host")


def test_any_payload(receiver: Receiver, github: FakeGitHub) -> None:
    body = b'{"zen":  "Half measures are as bad as nothing at all."}'
    delivery = github.deliver("ping", payload=body)
    assert delivery
    assert receiver.got[0][1] == body
    github.deliver("star", "created", {"action": "created"})
    assert receiver.events[-1] == ("star", "created")
    assert github.deliver("push", payload=b"x" * (25 * 1024 * 1024 + 1)) is None


def test_nothing_without_an_installation(receiver: Receiver, github: FakeGitHub) -> None:
    github.repository("other/place", installation=False).pull(files={"a.py": b"1\n"})
    assert not receiver.got
