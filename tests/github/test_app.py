from __future__ import annotations

import logging
from datetime import datetime, timedelta, timezone

import pytest

from fake_github import FakeGitHub
from ptopt.github.app import AppClient, convert_manifest
from ptopt.github.auth import AppAuth
from ptopt.github.errors import AmbiguousError, GitHubError, NotFoundError
from tests.github.scripted import Say, Scripted


def client(github: FakeGitHub) -> AppClient:
    return AppClient(AppAuth(github.url, github.app.id, github.app.private_key, seconds_between_writes=0))


def test_installations(github: FakeGitHub) -> None:
    repo = github.repository("octo/models")
    github.repository("dev/other", installation=False)
    assert repo.installation
    assert client(github).installation_of("octo/models") == repo.installation.id
    with pytest.raises(NotFoundError):
        client(github).installation_of("dev/other")
    assert client(github).slug() == "ptopt"


def test_deliveries_of_all_pages_and_a_redelivery(github: FakeGitHub) -> None:
    with Scripted(lambda _got: Say(503)) as receiver:
        github.webhook_url = receiver.origin
        pull = github.repository("octo/models").pull(files={"a.py": b"1\n"})
        for number in range(120):
            github.deliver("ping", payload={"zen": str(number)})
        api, before = client(github), datetime.now(timezone.utc) - timedelta(minutes=5)
        found = list(api.deliveries(before))
        made = github.deliveries
        assert [delivery.id for delivery in found] == [delivery.id for delivery in made[::-1]]
        first = found[-1]
        assert (first.event, first.status_code, first.redelivery) == ("pull_request", 503, False)
        assert list(api.deliveries(datetime.now(timezone.utc) + timedelta(minutes=5))) == []
        api.redeliver(first.id)
        github.drain()
        again = next(iter(api.deliveries(before)))
        assert (again.guid, again.redelivery) == (first.guid, True)
        with pytest.raises(NotFoundError):
            api.redeliver(1)
        assert pull.number == 1


def test_an_app_of_a_manifest(github: FakeGitHub, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    caplog.set_level(logging.DEBUG, "httpx")
    caplog.set_level(logging.DEBUG, "httpcore")
    code = github.manifest("ptopt-octo", "its own secret")
    app = convert_manifest(github.url, code)
    made = github.account("ptopt-octo[bot]")
    assert made and (app.slug, app.webhook_secret) == ("ptopt-octo", "its own secret")
    assert app.private_key.startswith("-----BEGIN") and app.html_url.startswith("http")
    assert "secret" not in repr(app) and "BEGIN" not in repr(app)
    assert "authorization" not in github.requests[0].headers
    with pytest.raises(NotFoundError) as caught:
        convert_manifest(github.url, code)
    assert code not in str(caught.value)
    ours = [record.getMessage() for record in caplog.records if record.name.startswith(("httpx", "httpcore"))]
    logged = "\n".join(ours)
    assert code not in logged and "/app-manifests/…/conversions" in logged
    assert "its own secret" not in logged and "BEGIN" not in logged


@pytest.mark.parametrize(
    "answer",
    [Say(502), Say(201, {"id": 1, "pem": "KEY"}), Say(201, b'{"pem": "KEY'), Say(201, {"id": "KEY"}, cut=9)],
)
def test_a_conversion_that_fails_is_not_repeated_and_tells_nothing(answer: Say) -> None:
    with Scripted(lambda _got: answer) as server:
        with pytest.raises(AmbiguousError) as caught:
            convert_manifest(server.url, "one-code")
        assert len(server.got) == 1
    assert "KEY" not in str(caught.value) and "one-code" not in str(caught.value)


def test_a_conversion_leaves_the_host_for_nobody() -> None:
    with Scripted(lambda _got: Say()) as other:
        moved = Say(301, {}, {"Location": other.url + "/app-manifests/x/conversions"})
        with Scripted(lambda _got: moved) as server, pytest.raises(GitHubError):
            convert_manifest(server.url, "x")
        assert other.got == []


@pytest.mark.parametrize("code", ["", "a/b", "../x", "a?b", "a b", "ü", "x" * 201])
def test_no_code(code: str) -> None:
    with pytest.raises(ValueError, match="manifest"):
        convert_manifest("https://api.github.com", code)
