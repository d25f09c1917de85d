"""The pages of a repository and of its pull requests, as a browser without scripts uses them."""

from __future__ import annotations

from collections.abc import Iterator

import httpx
import pytest

from fake_github import FakeGitHub, Pull, Repo

CODE = b"import torch\nfor x in loader:\n    total += loss.item()\n"
SUGGESTION = "Slow <b>here</b>\n\n```suggestion\n    total += loss.detach()\n```\n\nWrong if: never"


@pytest.fixture
def repo(github: FakeGitHub) -> Repo:
    found = github.repository("octocat/models", {"train.py": b"import torch\n"})
    found.permission("ada", "write")
    found.commit("faster", {"train.py": CODE}, "Faster & <better>\n\nmore")
    return found


@pytest.fixture
def browser(github: FakeGitHub) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=github.html, follow_redirects=True) as client:
        yield client


@pytest.fixture
def pull(repo: Repo, browser: httpx.Client) -> Pull:
    answer = browser.post("/octocat/models/pulls", data={"branch": "faster"})
    assert answer.status_code == 200 and answer.url.path == "/octocat/models/pull/1"
    return repo.pulls[1]


def act(browser: httpx.Client, action: str, **form: object) -> httpx.Response:
    return browser.post(f"/octocat/models/pull/1/{action}", data={k: str(v) for k, v in form.items()})


def test_a_branch_becomes_a_pull_request(browser: httpx.Client, repo: Repo) -> None:
    page = browser.get("/octocat/models").text
    assert "Faster &amp; &lt;better&gt;" in page and "Open a pull request from faster" in page
    assert browser.post("/octocat/models/pulls", data={"branch": "nowhere"}).status_code == 404
    browser.post("/octocat/models/pulls", data={"branch": "faster"})
    (pull,) = repo.pulls.values()
    assert (pull.title, pull.author.login, pull.head_ref) == ("Faster & <better>", "octocat", "faster")
    page = browser.get("/octocat/models").text
    assert 'href="/octocat/models/pull/1"' in page and "Open a pull request from" not in page


def test_the_webhook_of_a_pull_request_that_is_opened(
    github: FakeGitHub, browser: httpx.Client, repo: Repo
) -> None:
    github.webhook_url = "http://127.0.0.1:9/nobody"
    browser.post("/octocat/models/pulls", data={"branch": "faster"})
    github.drain()
    assert [(each.event, each.action) for each in github.deliveries] == [("pull_request", "opened")]


def test_a_comment_and_its_suggestion(browser: httpx.Client, pull: Pull) -> None:
    comment = pull.review_comment("ptopt[bot]", "train.py", 3, SUGGESTION)
    page = browser.get("/octocat/models/pull/1").text
    assert "Slow <b>here</b>" in page and "Wrong if: never" in page
    assert '<span class="old">-     total += loss.item()</span>' in page
    assert '<span class="new">+     total += loss.detach()</span>' in page
    assert act(browser, "accept", comment=comment).status_code == 200
    assert b"loss.detach()" in (pull.repo.file("train.py", pull.head_sha) or b"")
    assert pull.thread_of(comment).resolved
    page = browser.get("/octocat/models/pull/1").text
    assert "resolved, outdated" in page and "Commit suggestion" not in page
    refused = act(browser, "accept", comment=comment)
    assert refused.status_code == 422 and "This suggestion is outdated." in refused.text


def test_people_react_reply_and_resolve(github: FakeGitHub, browser: httpx.Client, pull: Pull) -> None:
    comment = pull.review_comment("ptopt[bot]", "train.py", 3, "Slow")
    act(browser, "react", comment=comment, content="+1")
    browser.post("/login", data={"person": "ada", "back": "/octocat/models/pull/1"})
    assert "👍 2" in act(browser, "react", comment=comment, content="+1").text
    reactions = pull.comment_of(comment).reactions
    assert [each.account.login for each in reactions] == ["octocat", "ada"]
    assert "👍 1" in act(browser, "react", comment=comment, content="+1").text  # taken back
    act(browser, "reply", comment=comment, body="/ptopt explain")
    act(browser, "comment", body="/ptopt status")
    assert [(each.author.login, each.body) for each in pull.review_comments[1:]] == [
        ("ada", "/ptopt explain")
    ]
    assert [(each.author.login, each.body) for each in pull.issue_comments] == [("ada", "/ptopt status")]
    act(browser, "resolve", comment=comment)
    assert pull.thread_of(comment).resolved
    act(browser, "resolve", comment=comment)
    assert not pull.thread_of(comment).resolved
    assert github.person == "ada"


def test_the_end_of_a_pull_request(browser: httpx.Client, pull: Pull) -> None:
    act(browser, "close")
    assert (pull.open, pull.merged) == (False, False)
    assert "Reopen pull request" in act(browser, "merge").text and not pull.merged
    act(browser, "reopen")
    page = act(browser, "merge").text
    assert (pull.open, pull.merged) == (False, True)
    assert "Merged." in page and "Reopen" not in page
    act(browser, "reopen")
    assert not pull.open


def test_what_there_is_not(github: FakeGitHub, browser: httpx.Client, pull: Pull) -> None:
    github.repository("acme/secret", private=True)
    for path in ("/acme/secret", "/octocat/models/pull/2", "/octocat/models/pull/1/merge"):
        assert browser.get(path).status_code == 404, path
    assert pull.open
    assert act(browser, "reply", comment=5, body="x").status_code == 404
    assert act(browser, "destroy").status_code == 404
    assert act(browser, "comment", body=" ").status_code == 422
    assert browser.post("/login", data={"person": "mallory"}).status_code == 404
    away = browser.post("/login", data={"person": "ada", "back": "//example.org/"}, follow_redirects=False)
    assert (away.status_code, away.headers["location"]) == (303, "/")
    home = browser.get("/").text
    assert 'href="/octocat/models"' in home and "acme/secret" not in home
