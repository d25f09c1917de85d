"""One review from end to end through Prism, a proxy that refuses what GitHub's OpenAPI description does not allow.

It judges independently of our own checks, and sees each request and answer as they are on the wire.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from fake_github import FakeGitHub
from fake_github.http import ROUTES
from fake_github.tightened import excerpt
from ptopt.github.app import AppClient, convert_manifest
from ptopt.github.auth import AppAuth, for_installation
from ptopt.github.errors import RejectedError
from ptopt.github.values import Annotation, CheckRun, CommentDraft, ReviewDraft

PRISM = Path(__file__).resolve().parents[2] / ".venv/prism/node_modules/.bin/prism"


class Prism:
    """A running proxy in front of `upstream`, and what it says."""

    def __init__(self, description: Path, upstream: str) -> None:
        assert PRISM.exists(), "Prism is missing: run `make .venv/prism/.ready`, which needs node and npm"
        node = shutil.which("node")
        assert node, "Prism needs node"
        command = [node, str(PRISM), "proxy", "--errors", "--port", "0", str(description), upstream]
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        self.lines: list[str] = []
        threading.Thread(target=self._read, daemon=True).start()
        self.url = self._wait()

    def _read(self) -> None:
        assert self._process.stdout
        with self._process.stdout as output:
            for line in output:
                self.lines.append(line)

    def _wait(self) -> str:
        while self._process.poll() is None:
            for line in list(self.lines):
                if "listening on " in line:
                    return line.split("listening on ")[1].split()[0]
            time.sleep(0.05)
        raise AssertionError("".join(self.lines))

    def stop(self) -> None:
        self._process.kill()
        self._process.wait()


@pytest.fixture(scope="module", params=["api.github.com", "ghes-3.17"])
def proxied(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[FakeGitHub, Prism]]:
    """A fake GitHub whose URLs all lead through Prism; its own checks are off."""
    description = tmp_path_factory.mktemp("prism") / "openapi.json"
    description.write_text(json.dumps(excerpt(request.param, {route.template for route in ROUTES})))
    with FakeGitHub(checks=[]) as github:
        prism = Prism(description, github.html)
        try:
            github.html, github.url = prism.url, f"{prism.url}/api/v3"
            yield github, prism
        finally:
            prism.stop()


@pytest.mark.slow
def test_a_review_through_prism(proxied: tuple[FakeGitHub, Prism]) -> None:
    github, prism = proxied
    told = len(prism.lines)
    before = b"import torch\n"
    after = b"import torch\n\nfor batch in loader:\n    loss.item()\n    print(batch)\n"
    repo = github.repository("octo/models", {"pkg/deep/train.py": before})
    pull = repo.pull("feature/fast", files={"pkg/deep/train.py": after})
    assert repo.installation
    auth = AppAuth(github.url, github.app.id, github.app.private_key, seconds_between_writes=0)
    client = for_installation(auth, repo.installation.id)
    name, number = repo.full_name, pull.number

    found = client.pull(name, number)
    (file,) = client.pull_files(name, number)
    assert file.blob_sha
    assert client.blob(name, file.blob_sha, 1000) == after
    assert client.merge_base(name, found.base_sha, found.head_sha) == found.base_sha
    assert client.file(name, "pkg/deep/train.py", found.head_sha) == after
    assert client.file(name, ".ptopt.toml", found.base_sha) is None

    comments = (CommentDraft(file.path, 4, 3, "a range"), CommentDraft(file.path, 5, None, "a line"))
    review = client.create_review(name, number, ReviewDraft(found.head_sha, "The summary", comments))
    client.edit_review(name, number, review.id, "The summary, edited")
    assert [each.body for each in client.reviews(name, number)] == ["The summary, edited"]
    first, second = client.review_comments(name, number)
    client.reply(name, number, first.id, "An answer")
    said = client.create_issue_comment(name, number, "Hello")
    client.edit_issue_comment(name, said.id, "Hello again")
    for where, comment_id in (("issue", said.id), ("review", second.id)):
        client.react(name, where, comment_id, "eyes")
        assert len(client.reactions(name, where, comment_id)) == 1
    assert len(client.issue_comments(name, number)) == 1
    client.delete_issue_comment(name, said.id)
    threads = client.threads(name, number)
    client.resolve_thread(threads[0].id)
    assert [each.resolved for each in client.threads(name, number)] == [True, False]
    notes = tuple(Annotation(file.path, 1, 1, "warning", "Slow", "message") for _ in range(60))
    run = client.create_check_run(name, CheckRun(found.head_sha, "neutral", "Title", "Text", notes, "id"))
    assert client.check_runs(name, found.head_sha, "ptopt") == [(run, "id")]
    client.upload_sarif(name, found.head_sha, f"refs/pull/{number}/head", b'{"version": "2.1.0", "runs": []}')
    assert client.permission(name, "octo") == "admin"
    commit = client.commit_files(
        name, "feature/fast", found.head_sha, {file.path: before + b"# fixed\n"}, "Fix"
    )
    assert client.pull(name, number).head_sha == commit

    app = AppClient(auth)
    assert app.slug() == "ptopt" and app.installation_of(name) == repo.installation.id
    assert convert_manifest(github.url, github.manifest()).slug == "ptopt-made"
    draft = ReviewDraft(commit, "b", (CommentDraft(file.path, 500, None, "off the diff"),))
    with pytest.raises(RejectedError, match="must be part of the diff"):  # GitHub's own refusals pass through
        client.create_review(name, number, draft)

    output = "".join(prism.lines[told:])
    assert "violation" not in output.lower(), output
    answers = [request.status for request in github.requests]
    assert len(answers) > 35 and max(answers) < 500


@pytest.mark.slow
@pytest.mark.parametrize(
    ("path", "change"),
    [
        ("pulls/1/reviews", {"event": "APPLAUD"}),
        ("pulls/1/reviews", {"commit_id": None}),
        ("pulls/1/reviews", {"comments": [{"path": "a.py", "body": "b", "line": 0}]}),
        ("pulls/1/reviews", {"comments": [{"path": "a.py", "body": "b", "line": 1, "side": "UP"}]}),
        ("pulls/1/reviews", {"comments": [{"path": "a.py", "body": "b", "line": 1, "subject_type": "file"}]}),
        ("pulls/one/reviews", {}),
        ("pull/1/reviews", {}),
    ],
)
def test_prism_refuses_a_request(
    proxied: tuple[FakeGitHub, Prism], path: str, change: dict[str, Any]
) -> None:
    github, prism = proxied
    sent = len(github.requests)
    payload = {"commit_id": "a" * 40, "event": "COMMENT", "body": "text", **change}
    answer = httpx.post(f"{prism.url}/api/v3/repos/octo/models/{path}", json=payload)
    assert answer.status_code in (404, 422), answer.text
    assert "stoplight.io/prism" in answer.json()["type"]
    assert len(github.requests) == sent


@pytest.mark.slow
def test_prism_refuses_an_answer(proxied: tuple[FakeGitHub, Prism]) -> None:
    github, prism = proxied
    pull = github.repository("octo/wrong").pull(files={"a.py": b""})
    pull.title = 5  # type: ignore[assignment]
    headers = {"Authorization": f"Bearer {github.user_token('octo')}"}
    answer = httpx.get(f"{prism.url}/api/v3/repos/octo/wrong/pulls/1", headers=headers)
    assert answer.status_code == 500 and "stoplight.io/prism" in answer.json()["type"]
