"""Reviews: where comments may stand, what a push does to them, threads, suggestions."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from fake_github import FakeGitHub, Pull, Repo, SuggestionRefusedError
from fake_github.http import Json
from tests.fake_github.conftest import LINES, Ask

OFF = "Pull request review thread line must be part of the diff"
HUNK = "Pull request review thread start line must be part of the same hunk as the line."
BLANK = "Pull request review thread diff hunk can't be blank"
REVIEWS = "/repos/octo/models/pulls/1/reviews"
COMMENTS = "/repos/octo/models/pulls/1/comments"
RESOLVE = "mutation($id: ID!) { resolveReviewThread(input: {threadId: $id}) { thread { isResolved } } }"


def draft(pull: Pull, *comments: Json, body: str = "Read this") -> Json:
    full = [{"path": "train.py", "side": "RIGHT", "body": "Faster so", **each} for each in comments]
    return {"commit_id": pull.head_sha, "event": "COMMENT", "body": body, "comments": full}


def post(pull: Pull, ask: Ask, **where: object) -> int:
    answer = ask("POST", REVIEWS, draft(pull, where))
    assert answer.status_code == 200, answer.text
    return pull.review_comments[-1].id


@pytest.mark.parametrize(
    ("where", "errors"),
    [
        ({"line": 25}, f"{OFF} and {BLANK}"),
        ({"line": 6}, f"{OFF} and {BLANK}"),
        ({"line": 14}, f"{OFF} and {BLANK}"),
        ({"line": 10_000}, f"{OFF} and {BLANK}"),
        ({"start_line": 12, "start_side": "RIGHT", "line": 38}, HUNK),
        ({"start_line": 20, "start_side": "RIGHT", "line": 25}, f"{OFF}, {HUNK}, and {BLANK}"),
        ({"start_line": 10, "line": 10}, "Pull request review thread start line must precede the end line."),
        ({"start_line": 11, "line": 10}, "Pull request review thread start line must precede the end line."),
        ({"path": "sub/x.py", "line": 1}, f"Pull request review thread path is invalid and {BLANK}"),
    ],
)
def test_a_comment_off_the_diff_fails_the_whole_review(
    pull: Pull, ask: Ask, where: Json, errors: str
) -> None:
    answer = ask("POST", REVIEWS, draft(pull, {"line": 10}, where))
    assert answer.status_code == 422
    assert answer.json()["message"] == "Unprocessable Entity"
    assert answer.json()["errors"] == [errors]
    assert not pull.reviews
    assert not pull.threads


@pytest.mark.parametrize(
    ("where", "position"),
    [
        ({"line": 7}, 1),
        ({"line": 10}, 5),
        ({"line": 13}, 8),
        ({"line": 10, "side": "LEFT"}, 4),
        ({"line": 43}, 17),
        ({"start_line": 38, "start_side": "RIGHT", "line": 41}, 15),
    ],
)
def test_a_comment_on_the_diff(pull: Pull, ask: Ask, where: Json, position: int) -> None:
    post(pull, ask, **where)
    comment = ask("GET", COMMENTS).json()[0]
    assert comment["position"] == comment["original_position"] == position
    assert comment["line"] == where["line"]
    assert comment["start_line"] == where.get("start_line")
    assert comment["diff_hunk"].count("\n") + 1 == (position + 1 if position < 9 else position - 8)


@pytest.mark.parametrize(
    ("change", "error"),
    [
        ({"body": ""}, "Body can't be blank"),
        ({"commit_id": "0" * 40}, "Commit is not part of the pull request"),
    ],
)
def test_a_review_needs(pull: Pull, ask: Ask, change: Json, error: str) -> None:
    answer = ask("POST", REVIEWS, draft(pull) | change)
    assert (answer.status_code, answer.json()["errors"]) == (422, [error])


@pytest.mark.parametrize("body", ["x" * 65_537, "é" * 65_537])
def test_bodies_that_are_too_long(github: FakeGitHub, pull: Pull, ask: Ask, body: str) -> None:
    first = post(pull, ask, line=10)
    for path, data in (
        (REVIEWS, draft(pull, body=body)),
        (f"{COMMENTS}/{first}/replies", {"body": body}),
        ("/repos/octo/models/issues/1/comments", {"body": body}),
    ):
        assert ask("POST", path, data).status_code == 422
    assert len(github.violations) == 3  # GitHub's description says so, too
    github.violations.clear()


def test_the_longest_body(pull: Pull, ask: Ask) -> None:
    assert ask("POST", REVIEWS, draft(pull, body="é" * 65_536)).status_code == 200


def test_no_event_is_a_pending_review_that_others_do_not_see(
    github: FakeGitHub, pull: Pull, repo: Repo, ask: Ask
) -> None:
    data = draft(pull, {"line": 10})
    del data["event"]
    review = ask("POST", REVIEWS, data).json()
    assert (review["state"], review.get("submitted_at")) == ("PENDING", None)
    assert ask("GET", REVIEWS, token=None).json() == []
    assert ask("GET", COMMENTS).json() == []
    second = ask("POST", REVIEWS, draft(pull))
    assert second.json()["errors"] == ["User can only have one pending review per pull request"]
    done = ask("POST", f"{REVIEWS}/{review['id']}/events", {"event": "COMMENT"}).json()
    assert done["state"] == "COMMENTED"
    assert len(ask("GET", COMMENTS).json()) == 1
    assert [each for each in github.violations if "event" not in each] == []  # we always send it
    github.violations.clear()


def test_a_comment_moves_with_its_lines(pull: Pull, ask: Ask) -> None:
    post(pull, ask, line=10)
    post(pull, ask, start_line=39, start_side="RIGHT", line=41)
    text = LINES.replace(b"line 10\n", b"ten\n").replace(b"line 40\n", b"forty\n")
    head = pull.push({"train.py": b"new\nnew\n" + text})
    one, two = ask("GET", COMMENTS).json()
    assert (one["line"], one["original_line"], one["commit_id"]) == (12, 10, head)
    assert (two["start_line"], two["line"], two["original_start_line"]) == (41, 43, 39)


def test_a_comment_whose_lines_changed_is_outdated(pull: Pull, ask: Ask) -> None:
    post(pull, ask, line=10)
    post(pull, ask, line=40)
    before = pull.head_sha
    pull.push({"train.py": LINES.replace(b"line 10\n", b"TEN\n").replace(b"line 40\n", b"forty\n")})
    one, two = ask("GET", COMMENTS).json()
    assert (one["line"], one["position"], one["original_line"], one["commit_id"]) == (None, None, 10, before)
    assert two["line"] == 40
    assert [thread.outdated for thread in pull.threads] == [True, False]


def test_a_comment_whose_change_was_taken_back_is_outdated(pull: Pull, ask: Ask) -> None:
    post(pull, ask, line=12)
    pull.push({"train.py": LINES.replace(b"line 40\n", b"forty\n")})
    assert ask("GET", COMMENTS).json()[0]["line"] is None


def test_a_reply_is_a_review_of_its_own_without_a_body(pull: Pull, ask: Ask) -> None:
    first = post(pull, ask, line=10)
    reply = ask("POST", f"{COMMENTS}/{first}/replies", {"body": "Thanks"})
    assert reply.status_code == 201
    assert reply.json()["in_reply_to_id"] == first
    assert [review["body"] for review in ask("GET", REVIEWS).json()] == ["Read this", ""]
    assert len(pull.threads) == 1
    second = ask("POST", f"{COMMENTS}/{reply.json()['id']}/replies", {"body": "No"})
    assert second.status_code == 422


def test_threads_by_graphql(
    github: FakeGitHub, repo: Repo, pull: Pull, ask: Ask, graphql: Callable[..., Json]
) -> None:
    first = post(pull, ask, line=10)
    pull.reply("dev", first, "Why?")
    query = """query($after: String) { repository(owner: "octo", name: "models") { pullRequest(number: 1) {
        reviewThreads(first: 1, after: $after) { pageInfo { hasNextPage endCursor } nodes { id isResolved
        comments(first: 10) { nodes { databaseId author { __typename login } } } } } } } }"""
    post(pull, ask, line=40)
    page = graphql(query)["data"]["repository"]["pullRequest"]["reviewThreads"]
    assert page["pageInfo"]["hasNextPage"]
    comments = page["nodes"][0]["comments"]["nodes"]
    assert [comment["author"] for comment in comments] == [
        {"__typename": "Bot", "login": "ptopt"},
        {"__typename": "User", "login": "dev"},
    ]
    after = page["pageInfo"]["endCursor"]
    rest = graphql(query, after=after)["data"]["repository"]["pullRequest"]["reviewThreads"]
    assert not rest["pageInfo"]["hasNextPage"]
    assert rest["nodes"][0]["id"] == pull.threads[1].id


@pytest.mark.parametrize(
    ("permissions", "allowed"),
    [
        ({"pull_requests": "write", "contents": "write"}, True),
        ({"pull_requests": "write", "contents": "read"}, False),
        ({"pull_requests": "read", "contents": "write"}, False),
    ],
)
def test_who_may_resolve(
    github: FakeGitHub,
    repo: Repo,
    pull: Pull,
    ask: Ask,
    graphql: Callable[..., Json],
    permissions: Json,
    allowed: bool,
) -> None:
    post(pull, ask, line=10)
    thread = pull.threads[0]
    assert repo.installation
    token = github.installation_token(repo.installation, permissions)
    answer = graphql(RESOLVE, id=thread.id, token=token)
    assert thread.resolved is allowed
    if not allowed:
        assert answer["errors"][0]["type"] == "FORBIDDEN"
    # GITHUB_TOKEN cannot, whatever it may do otherwise.
    actions = github.token(repo, {"pull_requests": "write", "contents": "write"})
    assert graphql(RESOLVE, id=thread.id, token=actions)["errors"][0]["type"] == "FORBIDDEN"


def suggestion(*lines: str) -> str:
    return "Faster:\n\n```suggestion\n" + "".join(f"{line}\n" for line in lines) + "```\n"


@pytest.mark.parametrize("ending", [b"\n", b"\r\n"])
def test_a_suggestion_replaces_exactly_its_lines(
    github: FakeGitHub, ask: Ask, repo: Repo, ending: bytes
) -> None:
    old = LINES.replace(b"\n", ending)
    new = old.replace(b"line 10" + ending, b"\tten" + ending)
    repo.commit("main", {"train.py": old})
    pull = repo.pull(files={"train.py": new})
    post(
        pull,
        ask,
        start_line=9,
        start_side="RIGHT",
        line=10,
        body=suggestion("\tnine", "\tnine and a half", "ten"),
    )
    sha = pull.accept(pull.review_comments[0].id, "dev")
    expected = new.replace(
        ending.join([b"line 9", b"\tten", b""]), ending.join([b"\tnine", b"\tnine and a half", b"ten", b""])
    )
    assert repo.file("train.py", sha) == expected
    commit = repo.git.read_commit(sha)
    assert (commit.author.name, commit.committer.name) == ("dev", "GitHub")
    assert "Co-authored-by: ptopt[bot] <" in commit.message
    assert pull.head_sha == sha
    assert pull.review_comments[0].line is None
    assert pull.threads[0].resolved


def test_an_empty_suggestion_deletes(pull: Pull, ask: Ask, repo: Repo) -> None:
    comment = post(pull, ask, line=10, body=suggestion())
    sha = pull.accept(comment, "dev")
    assert repo.file("train.py", sha) == LINES.replace(b"line 10\n", b"").replace(b"line 40\n", b"forty\n")


def test_a_suggestion_for_the_last_line_keeps_it_unended(repo: Repo, ask: Ask) -> None:
    pull = repo.pull(files={"train.py": b"one\ntwo"})
    comment = post(pull, ask, line=2, body=suggestion("2"))
    assert repo.file("train.py", pull.accept(comment, "dev")) == b"one\n2"


@pytest.mark.parametrize("fence", ["````", "~~~~~"])
def test_a_longer_fence_may_hold_fences(pull: Pull, ask: Ask, repo: Repo, fence: str) -> None:
    comment = post(pull, ask, line=10, body=f"{fence}suggestion\n```\nx\n```\n{fence}")
    assert b"```\nx\n```\nline 11" in (repo.file("train.py", pull.accept(comment, "dev")) or b"")


def test_what_the_page_refuses(github: FakeGitHub, pull: Pull, ask: Ask) -> None:
    plain = post(pull, ask, line=10)
    same = post(pull, ask, line=10, body=suggestion("ten"))
    deleted = post(pull, ask, line=10, side="LEFT", body=suggestion("X"))
    good = post(pull, ask, line=40, body=suggestion("X"))
    for comment, reason in ((plain, "no suggestion"), (same, "no changes"), (deleted, "deleted lines")):
        with pytest.raises(SuggestionRefusedError, match=reason):
            pull.accept(comment, "dev")
    pull.push({"train.py": LINES.replace(b"line 40\n", b"FORTY\n")})
    with pytest.raises(SuggestionRefusedError, match="outdated"):
        pull.accept(good, "dev")
    again = post(pull, ask, line=40, body=suggestion("Y"))
    pull.close()
    with pytest.raises(SuggestionRefusedError, match="closed"):
        pull.accept(again, "dev")


def test_reactions_are_counted_once_a_person(pull: Pull, ask: Ask) -> None:
    comment = post(pull, ask, line=10)
    path = f"/repos/octo/models/pulls/comments/{comment}/reactions"
    assert ask("POST", path, {"content": "eyes"}).status_code == 201
    assert ask("POST", path, {"content": "eyes"}).status_code == 200
    pull.react("dev", comment, "+1")
    rollup = ask("GET", COMMENTS).json()[0]["reactions"]
    assert (rollup["total_count"], rollup["+1"], rollup["eyes"], rollup["heart"]) == (2, 1, 1, 0)
    assert [each["user"]["login"] for each in ask("GET", path).json()] == ["ptopt[bot]", "dev"]


def test_a_single_comment(pull: Pull, ask: Ask) -> None:
    data = {"commit_id": pull.head_sha, "path": "train.py", "line": 10, "side": "RIGHT", "body": "One"}
    assert ask("POST", COMMENTS, data).status_code == 201
    bad = ask("POST", COMMENTS, data | {"line": 25}).json()
    assert bad["message"] == "Validation Failed"
    assert bad["errors"][0]["field"] == "pull_request_review_thread.line"
    whole = ask(
        "POST", COMMENTS, {key: data[key] for key in ("commit_id", "path", "body")} | {"subject_type": "file"}
    )
    assert whole.json()["subject_type"] == "file"
    one = ask("GET", f"/repos/octo/models/pulls/comments/{pull.review_comments[0].id}").json()
    assert one["body"] == "One"
    assert ask("DELETE", one["url"]).status_code == 204
    assert ask("GET", one["url"]).status_code == 404
