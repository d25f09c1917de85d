"""Sign-in against the fake GitHub: codes, PKCE, and what a person sees."""

from __future__ import annotations

from urllib.parse import parse_qs, urlsplit

import httpx
import pytest

from fake_github import FakeGitHub
from ptopt.github.errors import AmbiguousError, ForbiddenError, RejectedError
from ptopt.github.oauth import UserClient, authorize_url, challenge, exchange, new_verifier
from tests.github.scripted import Got, Say, Scripted

BACK = "https://ptopt.example.org/dashboard/callback"


@pytest.fixture
def github(fake_github: FakeGitHub) -> FakeGitHub:
    fake_github.app.callback_urls.append(BACK)
    fake_github.person = "dev"
    return fake_github


def code(github: FakeGitHub, verifier: str) -> str:
    url = authorize_url(github.url, github.app.client_id, BACK, "a state", verifier)
    query = {name: values[0] for name, values in parse_qs(urlsplit(url).query).items()}
    answer = httpx.post(url.partition("?")[0], data=query)
    back = parse_qs(urlsplit(answer.headers["location"]).query)
    assert back["state"] == ["a state"]
    return back["code"][0]


def test_a_code_becomes_a_token(github: FakeGitHub) -> None:
    verifier = new_verifier()
    app = github.app
    given = code(github, verifier)
    token = exchange(github.url, app.client_id, app.client_secret, given, verifier, BACK)
    assert token.seconds == 8 * 3600
    assert token.value not in repr(token)
    assert UserClient(github.url, token.value).person().login == "dev"
    with pytest.raises(RejectedError, match="bad_verification_code"):  # once
        exchange(github.url, app.client_id, app.client_secret, given, verifier, BACK)


def test_whoever_has_the_code_alone_gets_nothing(github: FakeGitHub) -> None:
    verifier, app = new_verifier(), github.app
    with pytest.raises(RejectedError, match="bad_verification_code"):
        exchange(github.url, app.client_id, app.client_secret, code(github, verifier), new_verifier(), BACK)
    with pytest.raises(RejectedError, match="incorrect_client_credentials"):
        exchange(github.url, app.client_id, "wrong", code(github, verifier), verifier, BACK)
    with pytest.raises(ValueError, match="not a code"):
        exchange(github.url, app.client_id, app.client_secret, "a/b", verifier, BACK)


def test_the_challenge_of_the_standard() -> None:
    # RFC 7636, appendix B
    assert (
        challenge("dBjftJeZ4CVP-mB92K27uhbUJU1p1r_wW1gFWFOEjXk")
        == "E9Melhoa2OwvFrEMTJguCHaoeK1t8URWbuGJSstw-cM"
    )


def test_what_a_person_sees(github: FakeGitHub) -> None:
    own = github.repository("dev/own")
    reads = github.repository("octo/reads", private=True)
    reads.permission("dev", "read")
    github.repository("octo/public")  # nobody gave dev a role there
    github.repository("other/hidden", private=True)
    github.repository("octo/elsewhere", installation=False).permission("dev", "admin")
    suspended = github.repository("late/suspended")
    suspended.permission("dev", "write")
    assert suspended.installation is not None
    github.suspend(suspended.installation)
    found = {
        each.full_name: each for each in UserClient(github.url, github.signed_in_token("dev")).repositories()
    }
    assert set(found) == {"dev/own", "octo/reads"}
    assert found["dev/own"].writes and found["dev/own"].id == own.id
    assert not found["octo/reads"].writes
    assert reads.installation is not None
    assert found["octo/reads"].installation_id == reads.installation.id


def test_pages_and_an_organisation_that_is_closed_to_the_sign_in() -> None:
    def answer(got: Got) -> Say:
        path = got.target.removeprefix("/api/v3").partition("?")[0]
        if path == "/user/installations":
            return Say(200, {"total_count": 3, "installations": [{"id": 1}, {"id": 2}, {"id": 3}]})
        if path == "/user/installations/2/repositories":
            return Say(403, {"message": "Resource protected by organization SAML enforcement."})
        number = int(path.split("/")[3]) * 10 + ("page=2" in got.target)
        follows = {"Link": f'<{github.url}{path}?page=2>; rel="next"'} if "page=2" not in got.target else {}
        return Say(200, {"repositories": [{"id": number, "full_name": f"o/{number}"}]}, follows)

    with Scripted(answer) as github:
        found = list(UserClient(github.url, "a-token").repositories())
    assert [each.id for each in found] == [10, 11, 30, 31]
    assert not any(each.writes for each in found)  # nothing said so


@pytest.mark.parametrize("token", ["ghu_unknown", "ghp_unknown"])
def test_a_token_that_is_over(github: FakeGitHub, token: str) -> None:
    with pytest.raises(ForbiddenError) as caught:
        list(UserClient(github.url, token).repositories())
    assert caught.value.status == 401
    assert token not in str(caught.value)


def test_a_token_of_no_app(github: FakeGitHub) -> None:
    with pytest.raises(ForbiddenError) as caught:
        list(UserClient(github.url, github.user_token("dev")).repositories())
    assert caught.value.status == 403


@pytest.mark.parametrize(
    "said", [{}, {"access_token": ""}, {"access_token": 3}, [], {"access_token": "t", "expires_in": "x"}]
)
def test_answers_without_sense(said: object) -> None:
    def answer(got: Got) -> Say:
        return Say(200, said)

    with Scripted(answer) as github, pytest.raises(AmbiguousError):
        exchange(github.url, "c", "s", "code", new_verifier(), BACK)
