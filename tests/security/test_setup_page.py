"""`/setup`, opened by somebody else, and answered by a GitHub that is none."""

from __future__ import annotations

import io
import logging
import re
import time
from collections.abc import Iterator
from html.parser import HTMLParser
from typing import Any

import pytest
import structlog

from bot import setup
from fake_github import FakeGitHub
from fake_github.accounts import private_key
from service import logs
from tests.bot.conftest import Serve, Served
from tests.github.scripted import Got, Say, Scripted

TOKEN = "the setup token"
OPEN: dict[str, Any] = {"setup_token": TOKEN, "webhook_secret": None, "public_url": "https://ptopt.example"}
EVIL = '"><script>evil()</script><a href="javascript:evil()">'


class Links(HTMLParser):
    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.found: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        assert not any(name.startswith("on") or name == "style" for name, _ in attrs)
        self.found += [value or "" for name, value in attrs if name in ("href", "action", "src")]


@pytest.fixture
def hostile() -> Iterator[Scripted]:
    """A GitHub that answers the code with an App full of markup and addresses."""

    def answer(got: Got) -> Say:
        return Say(
            201,
            {
                "id": 7,
                "slug": EVIL,
                "pem": private_key() + EVIL,
                "webhook_secret": EVIL,
                "html_url": "javascript:evil()//",
            },
        )

    with Scripted(answer) as github:
        yield github


def state(token: str = TOKEN) -> str:
    return setup.new_state(token, time.time())


@pytest.mark.parametrize("stores", [True, False])
def test_answers_of_github_are_text(serve: Serve, hostile: Scripted, stores: bool) -> None:
    key = {"secret_key": "a secret key"} if stores else {}
    with serve(**OPEN, **key, github_url=hostile.url) as served:
        answer = served.client.get("/setup/callback", params={"code": "c", "state": state()})
    assert answer.status_code == 200
    page = Links(answer.text)
    assert "script" not in page.tags
    assert [link for link in page.found if link] and all(
        link.startswith(hostile.origin) for link in page.found
    )
    policy = answer.headers["content-security-policy"]
    assert "default-src 'none'" in policy and "unsafe" not in policy and "form-action 'none'" in policy
    assert answer.headers["cache-control"] == "no-store"
    assert answer.headers["x-frame-options"] == "DENY"
    assert "location" not in answer.headers


@pytest.mark.parametrize(
    "url", ["https://github.com.evil.example/x", "//evil.example", "https://github.com@evil.example/"]
)
def test_the_link_leads_to_github(serve: Serve, url: str) -> None:
    made = {"id": 7, "slug": "s", "pem": private_key(), "webhook_secret": "w", "html_url": url}
    with Scripted(lambda got: Say(201, made)) as github, serve(**OPEN, github_url=github.url) as served:
        answer = served.client.get("/setup/callback", params={"code": "c", "state": state()})
    assert all(link.startswith(github.origin + "/") for link in Links(answer.text).found)


def test_what_is_asked_for_is_text(serve: Serve) -> None:
    with serve(**OPEN) as served:
        answer = served.client.get("/setup", params={"token": TOKEN, "organization": EVIL})
        assert answer.status_code == 422
        assert "script" not in Links(answer.text).tags
        for path, kind in (
            ("/setup", "text/html; charset=utf-8"),
            ("/setup/callback", "text/html; charset=utf-8"),
            ("/nowhere", "application/problem+json"),
        ):
            answer = served.client.get(path, params={"token": EVIL, "code": EVIL, "state": EVIL})
            assert answer.headers["content-type"] == kind
            assert "evil" not in answer.text and "script" not in Links(answer.text).tags


def test_without_the_token_one_page_says_nothing(serve: Serve) -> None:
    with serve(**OPEN) as served:
        closed = served.client.get("/setup")
        for token in (
            "",
            "x",
            TOKEN[:-1],
            TOKEN + "x",
            TOKEN.upper(),
            "\udc80".encode("utf-8", "replace").decode(),
        ):
            answer = served.client.get("/setup", params={"token": token})
            assert (answer.status_code, answer.content) == (404, closed.content)
    with serve(**OPEN | {"setup_token": None}) as served:
        answer = served.client.get("/setup", params={"token": ""})
        assert (answer.status_code, answer.content) == (404, closed.content)


def states() -> dict[str, str]:
    good = state()
    expires, noise, signed = good.split(".")
    return {
        "none": "",
        "of another token": state("another token"),
        "longer life": f"{int(expires) + 9}.{noise}.{signed}",
        "other noise": f"{expires}.{'A' * 22}.{signed}",
        "cut": good[:-1],
        "upper case": f"{expires}.{noise}.{signed.upper()}",
        "expired": setup.new_state(TOKEN, time.time() - 4000),
        "line": good + "\n",
        "digits of another script": f"{expires.replace('1', '١')}.{noise}.{signed}",
    }


def test_states_of_others(serve: Serve, hostile: Scripted) -> None:
    with serve(**OPEN, github_url=hostile.url) as served:
        for name, text in states().items():
            answer = served.client.get("/setup/callback", params={"code": "c", "state": text})
            assert answer.status_code == 400, name
        for code in ("", "../../app", "a/b", "a?b", "x" * 101, "a\n"):
            answer = served.client.get("/setup/callback", params={"code": code, "state": state()})
            assert answer.status_code == 400, code
    assert hostile.got == []  # GitHub was asked for nothing


def test_a_code_counts_once(serve: Serve, github: FakeGitHub) -> None:
    code, other = github.manifest(), github.manifest("another")
    with serve(**OPEN, secret_key="a secret key", github_url=github.url) as served:
        assert callback(served, code) == 200
        assert callback(served, code) == 404  # it is closed
        assert callback(served, other) == 404
        assert served.client.get("/setup", params={"token": TOKEN}).status_code == 404


@pytest.mark.parametrize("first", ["a code", "no code of GitHub's"])
def test_a_state_counts_once(serve: Serve, github: FakeGitHub, first: str) -> None:
    """Nothing is stored here that would close the page: who saw the address could bring an App of their own."""
    used = state()
    with serve(**OPEN, github_url=github.url) as served:
        code = github.manifest() if first == "a code" else "unknown"
        assert callback(served, code, used) == (200 if first == "a code" else 502)
        asked = len(github.requests)
        assert callback(served, github.manifest("another"), used) == 400
        assert len(github.requests) == asked
        assert callback(served, github.manifest("another")) == 200


def callback(served: Served, code: str, given: str | None = None) -> int:
    answer = served.client.get("/setup/callback", params={"code": code, "state": given or state()})
    return answer.status_code


def test_nothing_of_it_is_logged(serve: Serve, github: FakeGitHub) -> None:
    out, handlers, level = io.StringIO(), logging.getLogger().handlers[:], logging.getLogger().level
    levels = {name: logging.getLogger(name).level for name in ("httpx", "httpcore")}
    code = github.manifest(webhook_secret="hunter2hunter2")
    try:
        with serve(**OPEN, secret_key="a secret key", github_url=github.url) as served:
            logs.configure("DEBUG", "json", out)
            for name in levels:
                logging.getLogger(name).setLevel(logging.DEBUG)
            served.client.get("/setup", params={"token": TOKEN})
            callback(served, "0" * 40)
            callback(served, code)
    finally:
        logging.getLogger().handlers[:] = handlers
        logging.getLogger().setLevel(level)
        for name, before in levels.items():
            logging.getLogger(name).setLevel(before)
        structlog.reset_defaults()
    assert "GitHub App created" in out.getvalue()
    assert not re.search(f"{TOKEN}|hunter2|{code}|{'0' * 40}|PRIVATE KEY", out.getvalue())
