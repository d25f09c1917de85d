"""The page on which a person signs in, and what the code is exchanged for."""

from __future__ import annotations

from urllib.parse import parse_qs, urlencode, urlsplit

import httpx
import pytest

from fake_github import FakeGitHub
from ptopt.github.oauth import challenge

BACK = "https://ptopt.example.org/dashboard/callback"
VERIFIER = "v" * 64


@pytest.fixture
def fields(github: FakeGitHub) -> dict[str, str]:
    github.app.callback_urls.append(BACK)
    return {
        "client_id": github.app.client_id,
        "redirect_uri": BACK,
        "state": "s&<",
        "code_challenge": challenge(VERIFIER),
        "code_challenge_method": "S256",
    }


def exchanged(github: FakeGitHub, fields: dict[str, str], **more: str) -> httpx.Response:
    back = httpx.post(f"{github.html}/login/oauth/authorize", data=fields).headers["location"]
    given = {
        "client_id": github.app.client_id,
        "client_secret": github.app.client_secret,
        "code": parse_qs(urlsplit(back).query)["code"][0],
        "code_verifier": VERIFIER,
    }
    headers = {"Accept": "application/json"}
    return httpx.post(f"{github.html}/login/oauth/access_token", json=given | more, headers=headers)


def test_the_page(github: FakeGitHub, fields: dict[str, str]) -> None:
    github.person = "dev"
    page = httpx.get(f"{github.html}/login/oauth/authorize?{urlencode(fields)}")
    assert "Authorize ptopt as dev" in page.text
    assert 'name="state" value="s&amp;&lt;"' in page.text
    token = exchanged(github, fields).json()["access_token"]
    headers = {"Authorization": f"Bearer {token}", "User-Agent": "tests"}
    assert httpx.get(f"{github.url}/user", headers=headers).json()["login"] == "dev"


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({"client_id": "x"}, "no such application"),
        ({"redirect_uri": "https://evil.example/"}, "not associated"),
        ({"code_challenge_method": "plain"}, "S256"),
    ],
)
def test_what_github_refuses(
    github: FakeGitHub, fields: dict[str, str], wrong: dict[str, str], says: str
) -> None:
    url = f"{github.html}/login/oauth/authorize"
    page = httpx.get(f"{url}?{urlencode(fields | wrong)}")
    assert page.status_code == 404 and says in page.text
    assert "location" not in httpx.post(url, data=fields | wrong).headers


@pytest.mark.parametrize(
    ("wrong", "error"),
    [
        ({"client_secret": "x"}, "incorrect_client_credentials"),
        ({"code": "x"}, "bad_verification_code"),
        ({"code_verifier": "x"}, "bad_verification_code"),
        ({"redirect_uri": "https://evil.example/"}, "redirect_uri_mismatch"),
    ],
)
def test_refused_exchanges(
    github: FakeGitHub, fields: dict[str, str], wrong: dict[str, str], error: str
) -> None:
    answer = exchanged(github, fields, **wrong)
    assert (answer.status_code, answer.json()["error"]) == (200, error)


def test_a_form_is_answered_where_json_was_not_asked_for(github: FakeGitHub) -> None:
    answer = httpx.post(f"{github.html}/login/oauth/access_token", data={"client_id": "x"})
    assert answer.headers["content-type"] == "application/x-www-form-urlencoded"
    assert parse_qs(answer.text)["error"] == ["incorrect_client_credentials"]
