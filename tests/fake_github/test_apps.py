"""The App: its JWT, tokens and what they may do, installations, manifest, check runs, SARIF."""

from __future__ import annotations

import base64
import gzip
import json
import time

import jwt
import pytest

from fake_github import FakeGitHub, Pull, Repo
from fake_github.http import Json
from tests.fake_github.conftest import Ask


def app_jwt(github: FakeGitHub, **change: object) -> str:
    now = int(time.time())
    claims = {"iat": now - 60, "exp": now + 540, "iss": str(github.app.id), **change}
    return jwt.encode(claims, github.app.private_key, algorithm="RS256")


def test_a_token_of_an_installation(github: FakeGitHub, repo: Repo, pull: Pull, ask: Ask) -> None:
    token = app_jwt(github)
    installation = ask("GET", "/repos/octo/models/installation", token=token).json()
    answer = ask("POST", f"/app/installations/{installation['id']}/access_tokens", token=token)
    assert answer.status_code == 201
    value = answer.json()["token"]
    assert value.startswith("ghs_")
    assert len(value) > 100
    assert ask("GET", "/repos/octo/models/pulls/1", token=value).status_code == 200
    assert ask("GET", "/app", token=token).json()["slug"] == "ptopt"
    assert ask("GET", "/user", token=value).status_code == 403
    assert ask("GET", "/user", token=github.user_token("dev")).json()["login"] == "dev"


def test_a_jwt_that_is_not_good(github: FakeGitHub, repo: Repo, ask: Ask) -> None:
    now = int(time.time())
    for change in ({"exp": now - 1}, {"exp": now + 3600}, {"iat": now + 600}):
        assert ask("GET", "/app", token=app_jwt(github, **change)).status_code == 401
    assert ask("GET", "/app", token=app_jwt(github, iss="1")).status_code == 404
    head, body, signature = app_jwt(github).split(".")
    assert ask("GET", "/app", token=f"{head}.{body}.{signature[::-1]}").status_code == 401
    assert ask("GET", "/app").status_code == 401


def test_tokens_expire(github: FakeGitHub, repo: Repo, ask: Ask) -> None:
    token = github.token(repo, seconds=-1)
    answer = ask("GET", "/repos/octo/models", token=token)
    assert (answer.status_code, answer.json()["message"]) == (401, "Bad credentials")


def test_a_read_only_token(github: FakeGitHub, repo: Repo, pull: Pull, ask: Ask) -> None:
    token = github.token(repo, {"pull_requests": "read"})
    assert ask("GET", "/repos/octo/models/pulls/1/files", token=token).status_code == 200
    review = {"event": "COMMENT", "body": "x", "commit_id": pull.head_sha}
    for path, data in (
        ("/repos/octo/models/pulls/1/reviews", review),
        ("/repos/octo/models/issues/1/comments", {"body": "x"}),
        ("/repos/octo/models/check-runs", {"name": "x", "head_sha": pull.head_sha}),
    ):
        answer = ask("POST", path, data, token=token)
        assert (answer.status_code, answer.json()["message"]) == (
            403,
            "Resource not accessible by integration",
        )
    assert not pull.reviews


def test_what_is_private_is_hidden(github: FakeGitHub, repo: Repo, ask: Ask) -> None:
    secret = github.repository("octo/secret", private=True, installation=False)
    assert ask("GET", "/repos/octo/secret").status_code == 404
    assert ask("GET", "/repos/octo/secret", token=None).status_code == 404
    secret.permission("friend", "read")
    assert ask("GET", "/repos/octo/secret", token=github.user_token("friend")).status_code == 200


def test_an_installation_that_ends(github: FakeGitHub, repo: Repo, ask: Ask) -> None:
    assert repo.installation
    names = [each["full_name"] for each in ask("GET", "/installation/repositories").json()["repositories"]]
    assert names == ["octo/models"]
    github.uninstall(repo.installation)
    assert ask("GET", "/repos/octo/models").status_code == 401
    assert ask("GET", "/repos/octo/models/installation", token=app_jwt(github)).status_code == 404


def test_a_manifest_is_converted_once(github: FakeGitHub, repo: Repo, ask: Ask) -> None:
    path = f"/app-manifests/{github.manifest('made')}/conversions"
    made = ask("POST", path, token=None)
    assert made.status_code == 201
    assert made.json()["pem"].startswith("-----BEGIN RSA PRIVATE KEY-----")
    assert ask("POST", path, token=None).status_code == 404


def annotation(line: int) -> Json:
    place = {"path": "train.py", "start_line": line, "end_line": line}
    return {**place, "annotation_level": "warning", "message": "slow"}


def test_check_runs_take_fifty_annotations_a_request(
    github: FakeGitHub, repo: Repo, pull: Pull, ask: Ask
) -> None:
    output: Json = {"title": "t", "summary": "s", "annotations": [annotation(line) for line in range(1, 51)]}
    data = {"name": "ptopt", "head_sha": pull.head_sha, "conclusion": "neutral", "output": output}
    run = ask("POST", "/repos/octo/models/check-runs", data).json()
    assert run["status"] == "completed"
    more = {"output": {**output, "annotations": [annotation(51)]}}
    path = f"/repos/octo/models/check-runs/{run['id']}"
    assert ask("PATCH", path, more).json()["output"]["annotations_count"] == 51
    found = ask("GET", f"/repos/octo/models/commits/{pull.head_sha}/check-runs?check_name=ptopt").json()
    assert found["total_count"] == 1
    assert pull.check_runs[0].annotations[50]["start_line"] == 51
    output["annotations"].append(annotation(51))
    assert ask("PATCH", path, {"output": output}).status_code == 422
    assert github.violations  # GitHub's description says so, too
    github.violations.clear()


def test_a_user_makes_no_check_run(github: FakeGitHub, repo: Repo, pull: Pull, ask: Ask) -> None:
    data = {"name": "ptopt", "head_sha": pull.head_sha}
    answer = ask("POST", "/repos/octo/models/check-runs", data, token=github.user_token("octo"))
    assert answer.status_code == 403


@pytest.mark.parametrize("good", [True, False])
def test_sarif(github: FakeGitHub, repo: Repo, pull: Pull, ask: Ask, good: bool) -> None:
    log = json.dumps({"version": "2.1.0", "runs": []}).encode()
    text = base64.b64encode(gzip.compress(log) if good else log).decode()
    data = {"commit_sha": pull.head_sha, "ref": "refs/pull/1/head", "sarif": text}
    answer = ask("POST", "/repos/octo/models/code-scanning/sarifs", data)
    assert answer.status_code == (202 if good else 400)
    assert len(repo.sarifs) == good
    if not good:
        assert github.violations.pop().endswith(
            "answered 400 with a body"
        )  # GitHub describes none, and sends one
