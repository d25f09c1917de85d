"""The checks find what is wrong, and let GitHub's own ways pass."""

from __future__ import annotations

import json
from typing import Any

import pytest

from fake_github import FakeGitHub
from fake_github.conformance import OpenAPICheck
from fake_github.graphqlcheck import GraphQLCheck
from fake_github.http import Request, Response

JSON = {"content-type": "application/json; charset=utf-8"}
REPO = "/repos/octo/hello"
ERROR = {"message": "Validation Failed", "documentation_url": "https://docs.github.com/rest", "status": "422"}
REFUSED = Response(422, JSON, json.dumps(ERROR).encode())
COMMENT = {"path": "a.py", "body": "slow", "line": 3, "side": "RIGHT"}
REVIEW = {"commit_id": "a" * 40, "event": "COMMENT", "body": "text", "comments": [COMMENT]}
ANNOTATION = {
    "path": "a.py",
    "start_line": 1,
    "end_line": 1,
    "annotation_level": "warning",
    "message": "slow",
}


def ask(method: str, path: str, data: Any = None, **query: str) -> Request:
    body = b"" if data is None else json.dumps(data).encode()
    return Request(method, path, query, dict(JSON) if body else {}, body)


def check_run(**annotation: Any) -> dict[str, Any]:
    output = {"title": "t", "summary": "s", "annotations": [{**ANNOTATION, **annotation}]}
    return {
        "name": "ptopt",
        "head_sha": "a" * 40,
        "status": "completed",
        "conclusion": "neutral",
        "output": output,
    }


@pytest.fixture(scope="module", params=["api.github.com", "ghes-3.17"])
def check(request: pytest.FixtureRequest) -> OpenAPICheck:
    return OpenAPICheck(request.param)


@pytest.mark.parametrize(
    "request_",
    [
        ask("POST", f"{REPO}/pulls/1/reviews", REVIEW),
        ask(
            "POST",
            f"{REPO}/pulls/1/comments",
            {**COMMENT, "commit_id": "a" * 40, "start_line": 1, "start_side": "RIGHT"},
        ),
        ask("POST", f"{REPO}/check-runs", check_run()),
        ask("GET", f"{REPO}/contents/a/b/c.py", ref="main"),
        ask("GET", f"{REPO}/compare/main...octo:feature/x"),
        ask("PATCH", f"{REPO}/git/refs/heads/feature/x", {"sha": "a" * 40, "force": False}),
        ask("GET", f"{REPO}/pulls/1/files", per_page="100", page="2"),
        ask("POST", "/app/installations/1/access_tokens"),
    ],
    ids=lambda request: request.path,
)
def test_good_requests(check: OpenAPICheck, request_: Request) -> None:
    assert check(request_, REFUSED) == []


@pytest.mark.parametrize(
    ("request_", "words"),
    [
        (ask("GET", f"{REPO}/pull/1"), "no such operation"),
        (ask("DELETE", f"{REPO}/pulls/1"), "no such operation"),
        (ask("GET", f"{REPO}/pulls/one"), "'one' is not of type 'integer'"),
        (ask("GET", f"{REPO}/pulls/1/files", per_page="101"), "maximum of 100"),
        (ask("GET", f"{REPO}/pulls/1/files", perpage="100"), "no query parameter perpage"),
        (ask("GET", f"{REPO}/pulls/1/files", page="x"), "'x' is not of type 'integer'"),
        (ask("GET", f"{REPO}/check-runs/1", {"a": 1}), "does not take"),
        (ask("POST", f"{REPO}/issues/1/comments"), "the body is missing"),
        (ask("POST", f"{REPO}/issues/1/comments", {"body": "x" * 65_537}), "is too long"),
        (ask("POST", f"{REPO}/issues/1/comments", {"body": "x", "text": "y"}), "unknown $.text"),
        (ask("POST", f"{REPO}/issues/comments/1/reactions", {"content": "thumbsup"}), "not one of"),
        (ask("POST", f"{REPO}/pulls/1/reviews", {**REVIEW, "event": "comment"}), "not one of"),
        (ask("POST", f"{REPO}/pulls/1/reviews", {"event": "COMMENT", "body": "b"}), "'commit_id' is a required"),
        (ask("POST", f"{REPO}/pulls/1/reviews", {**REVIEW, "comments": [{**COMMENT, "side": "UP"}]}), "not one of"),
        (ask("POST", f"{REPO}/pulls/1/reviews", {**REVIEW, "comments": [{**COMMENT, "line": 0}]}), "minimum of 1"),
        (ask("POST", f"{REPO}/pulls/1/reviews", {**REVIEW, "comments": [{**COMMENT, "line": "3"}]}), "'integer'"),
        (ask("POST", f"{REPO}/pulls/1/reviews", {**REVIEW, "comments": [{**COMMENT, "subject_type": "file"}]}), "subject_type"),
        (ask("POST", f"{REPO}/pulls/1/reviews", {**REVIEW, "comments": [{"body": "b", "line": 1}]}), "'path' is a required"),
        (ask("POST", f"{REPO}/check-runs", check_run(annotation_level="error")), "not one of"),
        (ask("POST", f"{REPO}/check-runs", check_run(column=1)), "unknown $.output.annotations[0].column"),
    ],
)  # fmt: skip
def test_bad_requests(check: OpenAPICheck, request_: Request, words: str) -> None:
    found = check(request_, REFUSED)
    assert found and words in " ".join(found)


def test_a_request_of_another_type(check: OpenAPICheck) -> None:
    request = ask("POST", f"{REPO}/issues/1/comments", {"body": "x"})
    request.headers["content-type"] = "application/x-www-form-urlencoded"
    assert "a body of type" in check(request, REFUSED)[0]


def answer(data: Any, status: int = 200, media: str = "application/json; charset=utf-8") -> Response:
    body = data if isinstance(data, bytes) else json.dumps(data).encode()
    return Response(status, {"content-type": media}, body)


@pytest.mark.parametrize(
    ("response", "words"),
    [
        (answer([{"id": 1}]), "is a required property"),
        (answer({"message": "?"}), "is not of type 'array'"),
        (answer([], 201), "201, which is not described"),
        (answer([], 204), "204, which is not described"),
        (answer(b"[", 200), "no JSON"),
        (answer(b"[]", 200, "text/html"), "'text/html'"),
        (answer(b"diff --git", 200, "application/vnd.github.diff"), "not asked for"),
        (answer({"message": 1}, 403), "1 is not of type 'string'"),
        (answer({"message": "m", "hint": "h"}, 404), "unknown $.hint"),
    ],
)
def test_bad_answers(check: OpenAPICheck, response: Response, words: str) -> None:
    found = check(ask("GET", f"{REPO}/pulls/1/reviews"), response)
    assert found and words in " ".join(found)


@pytest.mark.parametrize(
    "response",
    [
        answer([]),
        answer({"message": "m"}, 404),
        answer({"message": "m"}, 429),
        answer(b"<html>", 502, "text/html"),
        answer(b"", 304),
    ],
)
def test_good_answers(check: OpenAPICheck, response: Response) -> None:
    assert check(ask("GET", f"{REPO}/pulls/1/reviews"), response) == []


THREADS = """
query($owner: String!, $name: String!, $number: Int!) {
  repository(owner: $owner, name: $name) {
    pullRequest(number: $number) { reviewThreads(first: 100) { nodes { id isResolved resolvedBy { login } } } }
  }
}
"""
VARIABLES = {"owner": "octo", "name": "hello", "number": 1}
NODE = {"id": "PRRT_1", "isResolved": False, "resolvedBy": None}


def threads(node: Any) -> Any:
    return {"data": {"repository": {"pullRequest": {"reviewThreads": {"nodes": [node]}}}}}


def graphql(sent: Any, answered: Any) -> list[str]:
    request = ask("POST", "/graphql", sent)
    return GraphQLCheck()(request, answer(answered))


def test_good_graphql() -> None:
    assert graphql({"query": THREADS, "variables": VARIABLES}, threads(NODE)) == []
    assert (
        graphql({"query": THREADS, "variables": VARIABLES}, {"errors": [{"message": "no"}], "data": None})
        == []
    )
    by_type = "query($id: ID!) { node(id: $id) { ... on Issue { number } ... on PullRequestReviewThread { id isResolved } } }"
    assert (
        graphql(
            {"query": by_type, "variables": {"id": "x"}}, {"data": {"node": {"id": "x", "isResolved": True}}}
        )
        == []
    )


BLOB = """query { repository(owner: "octo", name: "hello") {
    object(oid: "4b825dc642cb6eb9a060e54bf8d69288fbee4904") { oid ... on Blob { text isTruncated } } } }"""


def blob(found: Any) -> Any:
    return {"data": {"repository": {"object": found}}}


@pytest.mark.parametrize(
    "found", [None, {"oid": "4b", "text": None, "isTruncated": False}, {"oid": "4b"}], ids=str
)
def test_good_objects_by_graphql(found: Any) -> None:
    assert graphql({"query": BLOB}, blob(found)) == []


@pytest.mark.parametrize(
    ("sent", "answered", "words"),
    [
        ({"query": BLOB}, blob({"oid": "4b", "text": "x"}), "not asked for"),
        ({"query": BLOB}, blob({"oid": "4b", "text": "x", "isTruncated": None}), "non-nullable"),
        ({"query": BLOB}, blob({"text": "x", "isTruncated": False}), "oid"),
        ({"query": THREADS.replace("isResolved", "isStale")}, threads(NODE), "isStale"),
        ({"query": "{"}, threads(NODE), "Syntax Error"),
        ({"query": THREADS, "vars": {}}, threads(NODE), "unknown keys"),
        ({"query": THREADS, "variables": {"owner": 1}}, threads(NODE), "$owner"),
        ({"query": THREADS, "variables": VARIABLES}, threads({**NODE, "isResolved": None}), "non-nullable"),
        ({"query": THREADS, "variables": VARIABLES}, threads({**NODE, "isResolved": "no"}), "Boolean"),
        ({"query": THREADS, "variables": VARIABLES}, threads({"id": "x", "isResolved": True}), "resolvedBy"),
        ({"query": THREADS, "variables": VARIABLES}, threads({**NODE, "more": 1}), "not asked for"),
        ({"query": THREADS, "variables": VARIABLES}, {"errors": [{}]}, "without messages"),
        ({"query": THREADS, "variables": VARIABLES}, {"result": {}}, "keys"),
    ],
)
def test_bad_graphql(sent: Any, answered: Any, words: str) -> None:
    found = graphql(sent, answered)
    assert found and words in " ".join(found)


def test_deliveries_of_the_stand_in(check: OpenAPICheck) -> None:
    with FakeGitHub(
        checks=[], webhook_url="http://127.0.0.1:9/"
    ) as github:  # nobody listens; all are remembered
        repo = github.repository("octo/models", {"a.py": b"x\n"})
        pull = repo.pull("mallory:fix", files={"a.py": b"x\ny\nz\n"}, labels=["perf"], draft=True)
        pull.ready()
        pull.push({"a.py": b"x\ny\nzz\n"})
        pull.edit("Faster")
        pull.label("fast")
        pull.edit_comment("dev", pull.comment("dev", "hi"), "/ptopt help")
        first = pull.review_comment("dev", "a.py", 2, "slow")
        pull.reply("octo", first, "no")
        pull.resolve("octo", first)
        pull.resolve("octo", first, False)
        pull.push({"a.py": b"x\n# y\n"})  # the comment is outdated
        pull.resolve("octo", first)
        pull.close()
        pull.reopen()
        pull.close(merged=True)
        other = github.repository("dev/other", installation=False)
        installation = github.install("dev", [other])
        github.suspend(installation)
        github.suspend(installation, False)
        github.remove_repository(installation, other)
        github.add_repository(installation, other)
        github.uninstall(installation)
        github.drain()
    payloads = [(each.event, json.loads(each.body)) for each in github.deliveries]
    assert [
        (event, problem) for event, payload in payloads for problem in check.delivery(event, payload)
    ] == []
    actions = {(event, payload["action"]) for event, payload in payloads}
    assert len(actions) >= 17
    event, payload = payloads[0]
    assert event == "pull_request"
    assert check.delivery(event, {**payload, "x": 1}) == ["webhook-pull-request-opened: unknown $.x"]
    assert "is a required property" in check.delivery(event, {**payload, "repository": {}})[0]
    assert check.delivery(event, {**payload, "action": "sold"}) == ["GitHub has no webhook-pull-request-sold"]
