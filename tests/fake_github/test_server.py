"""The HTTP side: errors, checks, many at once."""

from __future__ import annotations

import socket
import threading
import time

import httpx
import pytest

from fake_github import FakeGitHub, Repo, Request, Response
from tests.fake_github.conftest import LINES, Ask


def test_what_a_check_finds_fails_the_block() -> None:
    def check(request: Request, response: Response) -> list[str]:
        return [f"{request.method} {request.route} {response.status} {response.json['private']}"]

    def ask() -> None:
        with FakeGitHub(checks=[check]) as it:
            it.repository("octo/models")
            httpx.get(f"{it.url}/repos/octo/models", trust_env=False)

    with pytest.raises(AssertionError, match=r"GET /repos/\{owner\}/\{repo\} 200 False"):
        ask()


def test_a_check_that_fails_itself_is_seen() -> None:
    def check(request: Request, response: Response) -> None:
        raise KeyError("oh")

    with FakeGitHub(checks=[check]) as it:
        httpx.get(f"{it.url}/meta", trust_env=False)
        assert it.violations == ["GET /meta: KeyError: 'oh'"]
        it.violations.clear()


def test_an_error_of_the_test_itself_is_not_hidden() -> None:
    def fail() -> None:
        with FakeGitHub() as it:
            it.violations.append("something else")
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()


def test_errors(github: FakeGitHub, repo: Repo, ask: Ask) -> None:
    assert ask("GET", "/repos/octo/nothing").json()["message"] == "Not Found"
    assert ask("GET", "/repos/octo/models/pulls/77").status_code == 404
    assert ask("POST", "/repos/octo/models/issues/1/comments", {"body": "x"}, token=None).status_code == 401
    assert ask("GET", "/repos/octo/models", token="ghs_wrong").json()["message"] == "Bad credentials"


def test_what_only_a_broken_client_sends(github: FakeGitHub, repo: Repo) -> None:
    github.checks.clear()
    repo.pull(files={"a.py": b"1\n"})
    with httpx.Client(trust_env=False) as client:
        del client.headers["user-agent"]
        assert client.get(f"{github.url}/repos/octo/models").status_code == 403
        broken = client.post(
            f"{github.url}/repos/octo/models/issues/1/comments",
            content=b"{",
            headers={"User-Agent": "x", "Authorization": f"Bearer {github.token(repo)}"},
        )
    assert (broken.status_code, broken.json()["message"]) == (400, "Problems parsing JSON")


def test_addresses_are_ours(github: FakeGitHub, repo: Repo, ask: Ask) -> None:
    pull = repo.pull("mallory:fix", files={"train.py": b"x\n"})
    pull.comment("dev", "x")
    for path in ("pulls/1", "pulls/1/files", "issues/1/comments", "contents/train.py"):
        text = ask("GET", f"/repos/octo/models/{path}").text
        assert "github.com" not in text.replace("docs.github.com", "")
        assert github.url in text


def test_many_at_once(github: FakeGitHub, repo: Repo) -> None:
    assert repo.installation
    token = github.installation_token(repo.installation)
    failed: list[str] = []

    def work(worker: int) -> None:
        with httpx.Client(
            trust_env=False, headers={"Authorization": f"Bearer {token}"}, timeout=60
        ) as client:
            for number in range(4):
                pull = repo.pull(
                    files={"train.py": LINES.replace(b"line 3\n", b"%d %d\n" % (worker, number))}
                )
                url = f"{github.url}/repos/octo/models/pulls/{pull.number}/reviews"
                comment = {"path": "train.py", "line": 3, "body": "x"}
                data = {"commit_id": pull.head_sha, "event": "COMMENT", "body": "x", "comments": [comment]}
                if client.post(url, json=data).status_code != 200 or len(client.get(url).json()) != 1:
                    failed.append(repr(pull))

    threads = [threading.Thread(target=work, args=(worker,)) for worker in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failed
    assert sorted(repo.pulls) == list(range(1, 25))
    assert all(len(pull.reviews) == 1 for pull in repo.pulls.values())


def test_an_answer_is_one_segment(github: FakeGitHub, repo: Repo) -> None:
    port = int(github.html.rpartition(":")[2])
    request = b"GET /api/v3/repos/octo/models HTTP/1.1\r\nHost: localhost\r\nUser-Agent: test\r\n\r\n"
    with socket.create_connection(("127.0.0.1", port), timeout=10) as connection:
        for _ in range(20):
            connection.sendall(request)
            head, _, body = connection.recv(2**20).partition(b"\r\n\r\n")
            length = head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0]
            assert int(length) == len(body) > 0


def test_each_request_may_be_delayed(github: FakeGitHub, repo: Repo, ask: Ask) -> None:
    waits = iter([0.2, 0.0])
    github.delay = lambda: next(waits)
    start = time.monotonic()
    assert ask("GET", "/repos/octo/models").status_code == 200
    assert time.monotonic() - start >= 0.2
    assert ask("GET", "/repos/octo/models").status_code == 200
