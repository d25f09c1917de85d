from __future__ import annotations

import logging
import threading
from typing import Any, NoReturn

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ed25519

from fake_github import FakeGitHub, Pull
from fake_github.accounts import private_key
from ptopt.github.auth import AppAuth, for_installation, for_token
from ptopt.github.errors import ForbiddenError, NotFoundError, RateLimitedError, UnavailableError
from tests.github.scripted import Got, Say, Scripted

MINT = r"/access_tokens$"


@pytest.fixture
def pull(github: FakeGitHub) -> Pull:
    return github.repository("octo/models").pull(files={"a.py": b"1\n"})


def app(github: FakeGitHub) -> AppAuth:
    return AppAuth(github.url, github.app.id, github.app.private_key, seconds_between_writes=0)


def installed(github: FakeGitHub, pull: Pull, auth: AppAuth | None = None) -> Any:
    assert pull.repo.installation
    return for_installation(auth or app(github), pull.repo.installation.id)


def mints(github: FakeGitHub) -> int:
    return sum(request.path.endswith("/access_tokens") for request in github.requests)


def test_all_clients_of_an_installation_share_one_token(github: FakeGitHub, pull: Pull) -> None:
    auth = app(github)
    clients = [installed(github, pull, auth) for _ in range(4)]
    threads = [threading.Thread(target=client.pull, args=("octo/models", pull.number)) for client in clients]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert mints(github) == 1
    assert len({client.token() for client in clients}) == 1


def test_a_token_is_not_used_up_to_its_last_second(pull: Pull) -> None:
    github = pull.github
    github.token_seconds = 100.0
    client = installed(github, pull)
    first = client.token()
    assert client.token() != first


def test_an_expired_token_is_minted_anew_and_the_request_repeated(github: FakeGitHub, pull: Pull) -> None:
    client = installed(github, pull)
    old = client.token()
    github.tokens[old].expires = 0.0
    assert client.pull("octo/models", pull.number).number == pull.number
    assert client.token() != old
    github.tokens[client.token()].expires = 0.0
    client.create_issue_comment(
        "octo/models", pull.number, "hello"
    )  # a 401 did nothing, so a write goes again
    assert [comment.body for comment in pull.issue_comments] == ["hello"]
    assert mints(github) == 3


def test_only_once(github: FakeGitHub, pull: Pull) -> None:
    client = installed(github, pull)
    github.faults.add("GET", r"/pulls/1$", "expired-token", times=-1)
    with pytest.raises(ForbiddenError) as caught:
        client.pull("octo/models", pull.number)
    assert caught.value.status == 401
    assert [request.status for request in github.requests if request.path.endswith("/pulls/1")] == [401, 401]


def test_a_newer_token_of_another_thread_stays(github: FakeGitHub, pull: Pull) -> None:
    client = installed(github, pull)
    token = client.token()
    client._auth.renew("an-older-one")
    assert client.token() == token
    client._auth.renew(token)
    assert client.token() != token


def test_a_token_of_a_workflow_is_not_minted_anew(github: FakeGitHub, pull: Pull) -> None:
    client = for_token(github.token(pull.repo, seconds=-1), github.url)
    with pytest.raises(ForbiddenError):
        client.pull("octo/models", pull.number)
    assert len(github.requests) == 1


@pytest.mark.parametrize(
    ("fault", "error"),
    [("502", UnavailableError), ("drop", UnavailableError), ("secondary-limit", RateLimitedError)],
)
def test_a_write_whose_token_cannot_be_minted_was_not_sent(
    github: FakeGitHub, pull: Pull, fault: str, error: type[Exception]
) -> None:
    github.faults.add("POST", MINT, fault, times=-1)
    with pytest.raises(error):
        installed(github, pull).create_issue_comment("octo/models", pull.number, "hello")
    assert pull.issue_comments == []
    assert not [request for request in github.requests if request.path.endswith("/comments")]


def test_a_mint_is_repeated(github: FakeGitHub, pull: Pull) -> None:
    github.faults.add("POST", MINT, "502", times=2)
    assert installed(github, pull).token()


def test_an_installation_that_is_gone_or_suspended(github: FakeGitHub, pull: Pull) -> None:
    client = installed(github, pull)
    client.token()
    installation = pull.repo.installation
    assert installation
    github.suspend(installation)
    with pytest.raises(ForbiddenError, match="suspended"):
        client.pull("octo/models", pull.number)
    github.uninstall(installation)
    with pytest.raises(NotFoundError):
        client.pull("octo/models", pull.number)


def test_identities(github: FakeGitHub, pull: Pull) -> None:
    auth = app(github)
    assert installed(github, pull, auth).identity() == "ptopt[bot]"
    assert installed(github, pull, auth).identity() == "ptopt[bot]"
    assert sum(request.path == "/app" for request in github.requests) == 1
    assert for_token(github.user_token("dev"), github.url).identity() == "dev"
    assert for_token(github.token(pull.repo), github.url).identity() == "github-actions[bot]"
    minted = github.installation_token(pull.repo.installation)  # type: ignore[arg-type]
    assert for_token(minted, github.url).identity() == "ptopt[bot]"


def test_the_identity_of_a_workflow_that_may_ask_nothing() -> None:
    with Scripted(lambda _got: Say(403, {"message": "Resource not accessible by integration"})) as server:
        assert for_token("t", server.url).identity() == "github-actions[bot]"


def test_a_bad_token_has_no_identity() -> None:
    with Scripted(lambda _got: Say(401, {"message": "Bad credentials"})) as server:
        with pytest.raises(ForbiddenError):
            for_token("t", server.url).identity()
        assert len(server.got) == 1


def test_the_slug_is_asked_once(github: FakeGitHub) -> None:
    auth = app(github)
    assert auth.slug() == "ptopt"
    assert auth.slug() == "ptopt"
    assert sum(request.path == "/app" for request in github.requests) == 1


@pytest.mark.parametrize("token", ["", "  \n", "two words", "ghs_a\nb", "ghs_\x00", "ghs_ü"])
def test_no_token(token: str) -> None:
    with pytest.raises(ValueError, match="token") as caught:
        for_token(token)
    assert "ghs" not in str(caught.value)


def test_a_token_from_a_file_ends_its_line() -> None:
    with Scripted(lambda _got: Say(200, {"login": "dev"})) as server:
        assert for_token("secret\n", server.url).identity() == "dev"
        assert server.got[0].headers["authorization"] == "token secret"


@pytest.mark.parametrize(
    "key", ["", "no key", "-----BEGIN RSA PRIVATE KEY-----\nc2VjcmV0\n-----END RSA PRIVATE KEY-----"]
)
def test_no_key(key: str) -> None:
    with pytest.raises(ValueError, match="private key") as caught:
        AppAuth("https://api.github.com", 1, key)
    assert caught.value.__context__ is None
    assert "c2VjcmV0" not in str(caught.value)


def test_a_key_that_github_does_not_take() -> None:
    key = ed25519.Ed25519PrivateKey.generate().private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    with pytest.raises(ValueError, match="not an RSA key"):
        AppAuth("https://api.github.com", 1, key.decode())


def test_the_key_is_read_once(github: FakeGitHub, monkeypatch: pytest.MonkeyPatch) -> None:
    """Reading checks it, which takes a hundred times as long as signing."""
    auth = app(github)

    def load(data: bytes, **_: object) -> NoReturn:
        assert b"PRIVATE" not in data
        raise ValueError  # as for a public key, which the fake checks with

    monkeypatch.setattr("jwt.algorithms.load_pem_private_key", load)
    assert auth.slug() == github.app.slug


def test_a_key_as_environment_files_write_it(github: FakeGitHub, pull: Pull) -> None:
    auth = AppAuth(github.url, github.app.id, private_key().replace("\n", "\\n"))
    assert installed(github, pull, auth).token()


@pytest.mark.parametrize(
    "url", ["http://github.example/api/v3", "https://github.com", "https://x:y@h/api/v3"]
)
def test_no_endpoint(url: str) -> None:
    with pytest.raises(ValueError, match="GitHub"):
        AppAuth(url, 1, private_key())
    with pytest.raises(ValueError, match="GitHub"):
        for_token("t", url)


def test_secrets_are_nowhere_to_be_read(
    github: FakeGitHub, pull: Pull, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    caplog.set_level(logging.DEBUG, "httpx")
    auth = app(github)
    client = installed(github, pull, auth)
    token = client.token()
    client.create_issue_comment("octo/models", pull.number, "hello")
    sent = [request.headers["authorization"] for request in github.requests]
    texts = caplog.text + repr(auth) + repr(client) + repr(client._auth) + repr(client._auth._minted)
    assert len(sent) == 2 and token in sent[1]
    for secret in (token, *sent, *(value.partition(" ")[2] for value in sent)):
        assert secret not in texts
    assert "POST http" in caplog.text


def test_a_token_goes_to_its_host_only() -> None:
    """An installation's token, asked for at the one and refused at the other end of a redirect."""

    def answer(got: Got) -> Say:
        if got.target.endswith("/access_tokens"):
            return Say(201, {"token": "tok-en", "expires_at": "2999-01-01T00:00:00Z"})
        return Say(302, {}, {"Location": other.url + "/repos/octo/models/pulls/1"})

    with Scripted(lambda _got: Say()) as other, Scripted(answer) as server:
        client = for_installation(AppAuth(server.url, 1, private_key()), 1)
        with pytest.raises(Exception, match="moved"):
            client.pull("octo/models", 1)
        assert len(server.got) == 2
        assert other.got == []
