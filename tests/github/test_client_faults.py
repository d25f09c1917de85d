"""The client when GitHub fails, refuses, leaves things out or makes no sense."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from fake_github import FakeGitHub, Pull
from ptopt.github import transport
from ptopt.github.auth import for_token
from ptopt.github.client import GitHubClient
from ptopt.github.errors import (
    AmbiguousError,
    ForbiddenError,
    GitHubError,
    NotFoundError,
    RateLimitedError,
    RejectedError,
    TooLargeError,
    UnavailableError,
)
from ptopt.github.values import CheckRun
from tests.github.octo import REPO, draft, writes
from tests.github.scripted import Got, Say, Scripted

WRITES: dict[str, Callable[[GitHubClient, Pull], object]] = {
    "create_review": lambda c, p: c.create_review(REPO, p.number, draft(p)),
    "create_issue_comment": lambda c, p: c.create_issue_comment(REPO, p.number, "x"),
    "create_check_run": lambda c, p: c.create_check_run(
        REPO, CheckRun(p.head_sha, "success", "t", "s", (), "e")
    ),
    "react": lambda c, p: c.react(REPO, "issue", p.issue_comments[0].id, "eyes"),
    "edit_issue_comment": lambda c, p: c.edit_issue_comment(REPO, p.issue_comments[0].id, "y"),
    "resolve_thread": lambda c, p: c.resolve_thread(p.threads[0].id),
    "reply": lambda c, p: c.reply(REPO, p.number, p.review_comments[0].id, "x"),
    "edit_review": lambda c, p: c.edit_review(REPO, p.number, p.reviews[0].id, "z"),
    "delete_issue_comment": lambda c, p: c.delete_issue_comment(REPO, p.issue_comments[0].id),
}


@pytest.mark.parametrize(
    ("fault", "error"),
    [
        ("500", AmbiguousError), ("502", AmbiguousError), ("503", AmbiguousError), ("502-after", AmbiguousError),
        ("drop", AmbiguousError), ("drop-after", AmbiguousError), ("primary-limit", RateLimitedError),
        ("secondary-limit", RateLimitedError), ("secondary-limit-429", RateLimitedError),
        ("abuse", RateLimitedError),
    ],
)  # fmt: skip
def test_each_write_is_sent_once(
    client: GitHubClient, pull: Pull, github: FakeGitHub, fault: str, error: type[GitHubError]
) -> None:
    pull.comment("ptopt[bot]", "x")
    pull.review_comment("ptopt[bot]", "train.py", 7, "x")
    client.token()
    for method in ("POST", "PATCH", "PUT", "DELETE"):
        github.faults.add(method, "", fault, times=-1)
    for number, write in enumerate(WRITES.values(), 1):
        with pytest.raises(error) as caught:
            write(client, pull)
        assert type(caught.value) is error
        assert len(writes(github)) == number
        if isinstance(caught.value, RateLimitedError):
            assert 55 <= caught.value.retry_after <= 65


@pytest.mark.parametrize(
    ("fault", "error"),
    [("502", UnavailableError), ("drop", UnavailableError), ("secondary-limit", RateLimitedError)],
)
def test_a_graphql_query_is_a_read(
    client: GitHubClient, pull: Pull, github: FakeGitHub, fault: str, error: type[GitHubError]
) -> None:
    client.token()
    github.faults.add("POST", "/graphql", fault, times=-1)
    with pytest.raises(error):
        client.threads(REPO, pull.number)
    github.faults.clear()
    github.faults.add("POST", "/graphql", "502", times=2)
    assert client.threads(REPO, pull.number) == []


def graphql(answer: Any) -> Say:
    return Say(200, answer, {"X-RateLimit-Remaining": "0", "X-RateLimit-Reset": "1"})


@pytest.mark.parametrize(
    ("errors", "query", "mutation"),
    [
        (
            [{"type": "RATE_LIMITED", "message": "API rate limit exceeded"}],
            RateLimitedError,
            RateLimitedError,
        ),
        ([{"message": "You have exceeded a secondary rate limit."}], RateLimitedError, RateLimitedError),
        ([{"type": "NOT_FOUND", "message": "Could not resolve"}], NotFoundError, NotFoundError),
        ([{"type": "FORBIDDEN", "message": "Resource not accessible"}], ForbiddenError, ForbiddenError),
        ([{"message": "Something went wrong while executing your query."}], UnavailableError, AmbiguousError),
        ([{"message": "Field 'x' doesn't exist"}], RejectedError, RejectedError),
        ("nonsense", RejectedError, RejectedError),
    ],
)
def test_errors_of_graphql_come_with_200(
    errors: Any, query: type[GitHubError], mutation: type[GitHubError]
) -> None:
    with Scripted(lambda _got: graphql({"data": None, "errors": errors})) as server:
        client = for_token("t", server.url, seconds_between_writes=0)
        for error, call in (
            (query, lambda: client.threads(REPO, 1)),
            (mutation, lambda: client.resolve_thread("T")),
        ):
            server.got.clear()
            with pytest.raises(error) as caught:
                call()
            assert type(caught.value) is error
            assert len(server.got) == 1


@pytest.mark.parametrize(
    "answer",
    [
        b"", b"null", b"[]", b"not JSON", {}, {"data": None}, {"data": {"repository": None}}, {"data": []},
        {"data": {"repository": {"pullRequest": {"reviewThreads": {"nodes": [{"id": 1}], "pageInfo": {}}}}}},
    ],
)  # fmt: skip
def test_nonsense_of_graphql(answer: Any) -> None:
    with Scripted(lambda _got: graphql(answer)) as server, pytest.raises(UnavailableError):
        for_token("t", server.url).threads(REPO, 1)


# Answers that lack what GitHub may leave out


def test_ghosts_nulls_and_keys_to_come() -> None:
    answers: dict[str, Any] = {
        "/reviews": [{"id": 1, "user": None, "body": None, "commit_id": None, "new": 1}],
        "/pulls/1/comments": [
            {"id": 2, "user": None, "path": "a", "created_at": "2024-05-06T07:08:09Z", "new": {}}
        ],
        "/issues/1/comments": [{"id": 3, "user": None, "created_at": "2024-05-06T07:08:09+02:00"}],
        "/files": [{"filename": "a", "status": "unheard-of", "sha": None, "additions": 0, "deletions": 0}],
    }

    def answer(got: Got) -> Say:
        return Say(200, next(data for end, data in answers.items() if end in got.target))

    with Scripted(answer) as server:
        client = for_token("t", server.url)
        review = client.reviews(REPO, 1)[0]
        assert (review.author.login, review.author.id) == ("ghost", 0)
        assert (review.body, review.commit_id, review.submitted_at) == ("", "", None)
        comment = client.review_comments(REPO, 1)[0]
        assert (comment.line, comment.review_id, comment.in_reply_to) == (None, None, None)
        assert client.issue_comments(REPO, 1)[0].created_at.isoformat() == "2024-05-06T07:08:09+02:00"
        file = client.pull_files(REPO, 1)[0]
        assert (file.patch, file.blob_sha, file.previous_path) == (None, None, None)


@pytest.mark.parametrize("data", [None, {}, [], [[]], [None], [{"id": "x"}], "text", 3, {"message": "fine"}])
def test_answers_of_another_shape(data: Any) -> None:
    with Scripted(lambda _got: Say(200, data)) as server:
        client = for_token("t", server.url, seconds_between_writes=0)
        with pytest.raises(UnavailableError):
            client.pull(REPO, 1)
        with pytest.raises(UnavailableError):
            client.blob(REPO, "0" * 40, 10)
        if data != []:
            with pytest.raises(UnavailableError):
                client.reviews(REPO, 1)
        with pytest.raises(AmbiguousError):
            client.create_issue_comment(REPO, 1, "x")


@pytest.mark.parametrize(
    "repo", ["octo", "octo/../user", "octo/a?b", "//evil.example/x", "octo/models/../../user"]
)
def test_nothing_is_sent_for_what_is_no_repository(
    client: GitHubClient, github: FakeGitHub, repo: str
) -> None:
    for call in (
        lambda: client.pull(repo, 1),
        lambda: client.create_issue_comment(repo, 1, "x"),
        lambda: client.threads(repo, 1),
        lambda: client.clone_url(repo),
        lambda: client.permission(repo, "dev"),
    ):
        with pytest.raises(ValueError, match="full name"):
            call()
    assert github.requests == []


def test_nothing_is_sent_for_other_parts_that_can_be_none(client: GitHubClient, github: FakeGitHub) -> None:
    for call in (
        lambda: client.permission(REPO, "../../user"),
        lambda: client.blob(REPO, "../../../user", 10),
        lambda: client.merge_base(REPO, "main", "a" * 40),
        lambda: client.file(REPO, "../../user", "main"),
        lambda: client.commit_files(REPO, "../main", "a" * 40, {}, "m"),
        lambda: client.pull(REPO, "1/../../../user"),  # type: ignore[arg-type]
    ):
        with pytest.raises(ValueError, match=r"not a|invalid literal"):
            call()
    assert github.requests == []


def test_where_to_clone_from(client: GitHubClient, github: FakeGitHub) -> None:
    assert client.clone_url(REPO) == f"{github.html}/{REPO}.git"
    assert for_token("t").clone_url(REPO) == "https://github.com/octo/models.git"
    assert for_token("t", "https://git.corp/api/v3").clone_url(REPO) == "https://git.corp/octo/models.git"
    assert client.token() not in client.clone_url(REPO)


def test_comments_without_end(monkeypatch: pytest.MonkeyPatch, client: GitHubClient, pull: Pull) -> None:
    monkeypatch.setattr(transport, "MAX_PAGES", 1)
    for number in range(101):
        pull.comment("dev", str(number))
    with pytest.raises(TooLargeError):
        client.issue_comments(REPO, pull.number)
