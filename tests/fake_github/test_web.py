"""The pages on which an App is made, without a browser."""

from __future__ import annotations

import json

import httpx
import pytest

from bot.manifest import manifest
from fake_github import FakeGitHub

GOOD = json.loads(manifest("https://ptopt.example.org"))


def post(github: FakeGitHub, manifest: object) -> httpx.Response:
    text = manifest if isinstance(manifest, str) else json.dumps(manifest)
    return httpx.post(f"{github.html}/settings/apps/new?state=s", data={"manifest": text})


def test_the_manifest_of_ptopt(github: FakeGitHub) -> None:
    assert "Create GitHub App for octocat" in post(github, GOOD).text
    form = {"manifest": json.dumps(GOOD), "state": "s", "name": "Mine!"}
    answer = httpx.post(f"{github.html}/settings/apps", data=form)
    assert answer.status_code == 302
    assert answer.headers["location"].startswith("https://ptopt.example.org/setup/callback?code=")
    assert answer.headers["location"].endswith("&state=s")
    assert (github.app.slug, github.app.name) == ("mine", "Mine!")
    assert github.webhook_url == "https://ptopt.example.org/webhooks/github"
    assert httpx.get(f"{github.html}/apps/mine/installations/new").status_code == 200
    assert httpx.get(f"{github.html}/apps/other/installations/new").status_code == 404


@pytest.mark.parametrize(
    ("bad", "problem"),
    [
        ("{", "not JSON"),
        ([], "not an object"),
        (GOOD | {"name": "x" * 35}, "maximum is 34 characters"),
        (GOOD | {"hook_attributes": {"url": "localhost"}}, "hook_attributes.url must be a URL"),
        (GOOD | {"default_permissions": {"contents": "write"}}, "not supported by permissions: pull_request"),
        (GOOD | {"default_permissions": {"issues": "all"}}, "issues has no level all"),
        (GOOD | {"default_events": ["pusch"]}, "Default events unsupported: pusch"),
    ],
)
def test_what_github_refuses(github: FakeGitHub, bad: object, problem: str) -> None:
    answer = post(github, bad)
    assert answer.status_code == 422
    assert problem in answer.text
