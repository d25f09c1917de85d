"""`/setup` against the fake GitHub: from the page to a service that believes the App's deliveries."""

from __future__ import annotations

import html
import json
import re
import time
from html.parser import HTMLParser
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from sqlalchemy import select
from structlog.testing import capture_logs

from bot import setup
from bot.manifest import manifest, new_app_url
from fake_github import FakeGitHub
from service import database
from service.credentials import CredentialsError, load
from service.models import AppCredentials
from service.settings import Settings
from tests.bot.conftest import Serve, Served, sign

TOKEN = "a setup token"
KEY = "a long random text that is the secret key"
OPEN: dict[str, Any] = {
    "setup_token": TOKEN,
    "webhook_secret": None,
    "public_url": "https://ptopt.example.org",
}


class Page(HTMLParser):
    """Attributes of all tags, and the ids that labels point at."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str]]] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, {name: value or "" for name, value in attrs}))

    def all(self, tag: str) -> list[dict[str, str]]:
        return [attributes for found, attributes in self.tags if found == tag]


def state_of(served: Served) -> str:
    page = Page(served.client.get("/setup", params={"token": TOKEN}).text)
    return parse_qs(urlsplit(page.all("form")[0]["action"]).query)["state"][0]


def test_the_page(serve: Serve) -> None:
    with serve(**OPEN, secret_key=KEY) as served:
        answer = served.client.get("/setup", params={"token": TOKEN})
    assert answer.status_code == 200
    page = Page(answer.text)
    form = page.all("form")[0]
    assert form["method"] == "post"
    assert form["action"].startswith("https://github.com/settings/apps/new?state=")
    sent = json.loads(next(each["value"] for each in page.all("input") if each["name"] == "manifest"))
    assert sent["hook_attributes"]["url"] == "https://ptopt.example.org/webhooks/github"
    assert sent["redirect_url"] == "https://ptopt.example.org/setup/callback"
    assert page.all("html")[0]["lang"] == "en"
    assert len(page.all("h1")) == 1
    assert page.all("main")
    labels = {each["for"] for each in page.all("label")}
    assert {each["id"] for each in page.all("input") if each.get("type") != "hidden"} == labels
    assert page.all("script") == []
    policy = answer.headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "form-action 'self' https://github.com;" in policy
    assert "frame-ancestors 'none'" in policy
    assert answer.headers["referrer-policy"] == "strict-origin"
    assert answer.headers["cache-control"] == "no-store"
    assert answer.headers["x-content-type-options"] == "nosniff"


def test_an_organisation(serve: Serve) -> None:
    with serve(**OPEN) as served:
        good = served.client.get("/setup", params={"token": TOKEN, "organization": " acme-corp "})
        bad = served.client.get("/setup", params={"token": TOKEN, "organization": '"><script>x</script>/../'})
    action = Page(good.text).all("form")[0]["action"]
    assert action.startswith("https://github.com/organizations/acme-corp/settings/apps/new?state=")
    assert bad.status_code == 422
    page = Page(bad.text)
    assert page.all("script") == []
    assert any(each.get("role") == "alert" for each in page.all("p"))
    assert page.all("form")[0]["action"].startswith("https://github.com/settings/apps/new?")


@pytest.mark.parametrize(
    "settings", [{"setup_token": None}, {"app_id": 3, "private_key": "-----BEGIN KEY", "webhook_secret": "s"}]
)
def test_closed(serve: Serve, settings: dict[str, Any]) -> None:
    with serve(**OPEN | settings) as served:
        for path in ("/setup", "/setup/callback"):
            assert (
                served.client.get(path, params={"token": TOKEN, "code": "c", "state": "s"}).status_code == 404
            )


@pytest.mark.parametrize("token", ["", "x", TOKEN + " ", "é"])
def test_a_wrong_token_sees_what_is_there_when_closed(serve: Serve, token: str) -> None:
    with serve(**OPEN) as served:
        wrong = served.client.get("/setup", params={"token": token})
    with serve(**OPEN | {"setup_token": None}) as served:
        closed = served.client.get("/setup", params={"token": token})
    assert (wrong.status_code, wrong.text) == (404, closed.text)
    varies = {"date", "content-length"}
    headers = [{k: v for k, v in each.headers.items() if k not in varies} for each in (wrong, closed)]
    assert headers[0] == headers[1]


def test_without_the_token_a_page_says_what_to_do(serve: Serve) -> None:
    with serve(**OPEN) as served:
        answer = served.client.get("/setup")
    assert answer.status_code == 404
    assert answer.headers["content-type"] == "text/html; charset=utf-8"
    assert answer.headers["cache-control"] == "no-store"
    assert "default-src 'none'" in answer.headers["content-security-policy"]
    text = html.unescape(answer.text)
    assert "/setup?token=" in text and "PTOPT_SETUP_TOKEN" in text
    assert TOKEN not in text and OPEN["public_url"] not in text
    assert Page(text).all("form") == []


@pytest.mark.parametrize(
    ("url", "warns"),
    [
        ("http://ptopt.example.org", True),
        ("https://ptopt.example.org", False),
        ("http://127.0.0.1:8000", False),
        ("http://localhost:8000", False),
    ],
)
def test_an_address_that_is_not_https(serve: Serve, url: str, warns: bool) -> None:
    with serve(**OPEN | {"public_url": url}) as served:
        text = served.client.get("/setup", params={"token": TOKEN}).text
    assert ("is not https" in text) is warns


def test_from_the_page_to_a_delivery_that_is_believed(serve: Serve) -> None:
    with FakeGitHub() as github, serve(**OPEN, secret_key=KEY, github_url=github.url) as served:
        assert served.deliver("ping", {}).status_code == 503
        state = state_of(served)
        code = github.manifest(slug="our-ptopt", webhook_secret="what GitHub chose")
        answer = served.client.get("/setup/callback", params={"code": code, "state": state})
        assert answer.status_code == 200
        assert any("our-ptopt/installations/new" in each["href"] for each in Page(answer.text).all("a"))
        assert "PRIVATE KEY" not in answer.text
        with served.engine.connect() as connection:
            row = connection.execute(select(AppCredentials)).one()
        assert "PRIVATE" not in row.sealed
        assert "what GitHub chose" not in row.sealed
        opened = load(served.engine, Settings(secret_key=KEY))
        assert opened is not None
        assert (opened.app_id, opened.slug, opened.webhook_secret) == (
            row.id,
            "our-ptopt",
            "what GitHub chose",
        )
        assert opened.private_key.startswith("-----BEGIN")
        assert (opened.client_id, opened.client_secret) == (f"Iv23li{row.id:014d}", "a secret of the client")
        assert opened.client_secret not in f"{opened!r}{row.sealed}"
        assert opened.private_key not in repr(opened)
        for other in (Settings(secret_key="another"), Settings()):
            with pytest.raises(CredentialsError, match="PTOPT_SECRET_KEY"):
                load(served.engine, other)
        assert served.client.get("/setup", params={"token": TOKEN}).status_code == 404  # closed from now on
        again = github.manifest()
        assert served.client.get("/setup/callback", params={"code": again, "state": state}).status_code == 404
        signature = sign(b"{}", "what GitHub chose")
        for _ in range(50):  # it looks for new credentials every two seconds
            if (status := served.deliver("ping", {}, X_Hub_Signature_256=signature).status_code) != 503:
                break
            time.sleep(0.1)
        assert status == 202
        assert served.deliver("ping", {}, X_Hub_Signature_256=sign(b"{}", "other")).status_code == 401


def test_without_a_secret_key_they_are_shown_once(serve: Serve) -> None:
    with FakeGitHub() as github, serve(**OPEN, github_url=github.url) as served:
        code = github.manifest(webhook_secret="<b>chosen</b>")
        answer = served.client.get("/setup/callback", params={"code": code, "state": state_of(served)})
        shown = html.unescape(answer.text)
        assert "PTOPT_WEBHOOK_SECRET=<b>chosen</b>" in shown
        assert "PTOPT_CLIENT_SECRET=a secret of the client" in shown
        assert "<b>chosen" not in answer.text
        assert "-----BEGIN" in shown
        assert answer.headers["cache-control"] == "no-store"
        with served.engine.connect() as connection:
            assert connection.execute(select(AppCredentials)).all() == []


def test_a_callback_that_did_not_begin_here(serve: Serve) -> None:
    with FakeGitHub() as github, serve(**OPEN, secret_key=KEY, github_url=github.url) as served:
        code = github.manifest()
        state = state_of(served)
        for wrong in ("", "x", state[:-1], state[:-1] + ("0" if state[-1] != "0" else "1"), "9" + state):
            answer = served.client.get("/setup/callback", params={"code": code, "state": wrong})
            assert answer.status_code == 400
            assert "Open the setup page again." in answer.text
            assert answer.headers["content-type"] == "text/html; charset=utf-8"
        for odd in ("", "../../user", "a b", "é", "x" * 500):
            assert (
                served.client.get("/setup/callback", params={"code": odd, "state": state}).status_code == 400
            )
        assert not [each for each in github.requests if "conversions" in each.path]
        gone = served.client.get("/setup/callback", params={"code": "unknown", "state": state})
        assert gone.status_code == 502
        state = state_of(served)
        assert served.client.get("/setup/callback", params={"code": code, "state": state}).status_code == 200


def test_states_expire_and_belong_to_one_token() -> None:
    state = setup.new_state(TOKEN, 1000.0)
    assert setup.state_is_ours(state, TOKEN, 1000.0 + 3599)
    assert not setup.state_is_ours(state, TOKEN, 1000.0 + 3600)
    assert not setup.state_is_ours(state, "another token", 1000.0)
    assert not setup.state_is_ours(re.sub("^[0-9]+", "99999999", state), TOKEN, 1000.0)
    assert setup.new_state(TOKEN, 1000.0) != state


@pytest.mark.parametrize(
    ("api", "page"),
    [
        ("https://api.github.com", "https://github.com/settings/apps/new?state=s"),
        ("https://git.example.org/api/v3", "https://git.example.org/settings/apps/new?state=s"),
        ("https://api.acme.ghe.com", "https://acme.ghe.com/settings/apps/new?state=s"),
    ],
)
def test_where_the_manifest_goes(api: str, page: str) -> None:
    assert new_app_url(api, "s") == page


def test_the_manifest_is_one_that_github_takes() -> None:
    sent = json.loads(manifest("https://a-very-long-host-name.of-an-organisation.example.org"))
    assert len(sent["name"]) <= 34
    # Each event needs a permission; GitHub wants `issues` for issue_comment, also on pull requests.
    assert {"issues", "pull_requests"} <= set(sent["default_permissions"])
    assert not {"ping", "installation", "installation_repositories"} & set(sent["default_events"])


@pytest.mark.parametrize(
    ("more", "says"), [({}, "set PTOPT_SETUP_TOKEN"), ({"setup_token": TOKEN}, "open this page")]
)
def test_the_log_says_what_is_left_to_do(sqlite_url: str, more: dict[str, str], says: str) -> None:
    with capture_logs() as lines:
        setup.announce(Settings(database_url=sqlite_url, **more), database.engine(sqlite_url))  # type: ignore[arg-type]
    (line,) = lines
    assert says in line["event"] and TOKEN not in str(line)
