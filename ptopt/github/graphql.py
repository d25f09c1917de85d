"""What only GraphQL can: review threads, resolving one, who we are, and many files in one request."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from ptopt.github.endpoint import checked_repo, checked_sha
from ptopt.github.error_responses import one_line, wait
from ptopt.github.errors import (
    AmbiguousError,
    ForbiddenError,
    GitHubError,
    NotFoundError,
    RateLimitedError,
    RejectedError,
    UnavailableError,
)
from ptopt.github.parsing import GHOST
from ptopt.github.transport import MAX_PAGES, Answer, Transport
from ptopt.github.values import Actor, Thread

# fullDatabaseId: comment ids have outgrown the Int of databaseId
THREADS = """\
query Threads($owner: String!, $name: String!, $number: Int!, $after: String) {
  repository(owner: $owner, name: $name) {
    pullRequest(number: $number) {
      reviewThreads(first: 50, after: $after) {
        pageInfo { hasNextPage endCursor }
        nodes {
          id
          isResolved
          resolvedBy { login }
          comments(first: 100) {
            nodes {
              fullDatabaseId
              author {
                __typename
                login
                ... on User { databaseId }
                ... on Bot { databaseId }
                ... on Mannequin { databaseId }
              }
            }
          }
        }
      }
    }
  }
}
"""
RESOLVE = """\
mutation Resolve($thread: ID!) {
  resolveReviewThread(input: {threadId: $thread}) { thread { id isResolved } }
}
"""
VIEWER = "query Viewer { viewer { login } }"


def threads(transport: Transport, repo: str, number: int) -> list[Thread]:
    """The review threads of a pull request. Of one with over 100 comments, the first 100."""
    owner, _, name = checked_repo(repo).partition("/")
    found: list[Thread] = []
    after: str | None = None
    for _ in range(MAX_PAGES):
        variables = {"owner": owner, "name": name, "number": number, "after": after}
        data = query(transport, THREADS, variables, repeatable=True)
        try:
            page = data["repository"]["pullRequest"]["reviewThreads"]
            found += [_thread(node) for node in page["nodes"] or () if node]
            after = page["pageInfo"]["endCursor"] if page["pageInfo"]["hasNextPage"] else None
        except (AttributeError, LookupError, TypeError, ValueError):
            raise UnavailableError("POST GraphQL: the threads are not understood", status=200) from None
        if after is None:
            break
    return found


def resolve_thread(transport: Transport, thread_id: str) -> None:
    """Resolved already is a success."""
    query(transport, RESOLVE, {"thread": thread_id}, repeatable=False)


def viewer(transport: Transport) -> str:
    """The login that the token acts as; an App's may or may not have its `[bot]`."""
    data = query(transport, VIEWER, {}, repeatable=True)
    try:
        return str(data["viewer"]["login"])
    except (LookupError, TypeError):
        raise UnavailableError("POST GraphQL: the viewer is not understood", status=200) from None


def blob_texts(transport: Transport, repo: str, shas: Sequence[str]) -> list[str | None]:
    """The text of each blob; None where there is no such blob, or GitHub takes it for binary.

    GitHub cuts long ones off, and converts what is not UTF-8.
    """
    owner, _, name = checked_repo(repo).partition("/")
    variables = {f"blob{at}": checked_sha(sha) for at, sha in enumerate(shas)}
    declared = "".join(f", ${key}: GitObjectID!" for key in variables)
    objects = "".join(f"    {key}: object(oid: ${key}) {{ ... on Blob {{ text }} }}\n" for key in variables)
    text = (
        f"query Blobs($owner: String!, $name: String!{declared}) {{\n"
        f"  repository(owner: $owner, name: $name) {{\n{objects}  }}\n}}\n"
    )
    data = query(transport, text, {"owner": owner, "name": name, **variables}, repeatable=True)
    try:
        found = [(data["repository"].get(key) or {}).get("text") for key in variables]
    except (AttributeError, LookupError):
        raise UnavailableError("POST GraphQL: the blobs are not understood", status=200) from None
    return [text if isinstance(text, str) else None for text in found]


def _thread(node: Mapping[str, Any]) -> Thread:
    resolved_by = node.get("resolvedBy")
    return Thread(
        id=str(node["id"]),
        resolved=bool(node["isResolved"]),
        resolved_by=str(resolved_by["login"]) if resolved_by else None,
        comments=tuple(
            (int(comment["fullDatabaseId"]), _actor(comment.get("author")))
            for comment in node["comments"]["nodes"] or ()
            if comment
        ),
    )


def _actor(data: Mapping[str, Any] | None) -> Actor:
    if data is None:
        return GHOST
    login, is_bot = str(data["login"]), data.get("__typename") == "Bot"
    if is_bot and not login.endswith("[bot]"):
        login += "[bot]"  # as REST calls it; GraphQL has the bare slug
    return Actor(int(data.get("databaseId") or 0), login, is_bot)


def query(
    transport: Transport, text: str, variables: Mapping[str, Any], *, repeatable: bool
) -> dict[str, Any]:
    """`data` of the answer; an answer with errors is raised, as GraphQL answers 200 to those too."""
    answer = transport.graphql({"query": text, "variables": variables}, repeatable=repeatable)
    unclear: type[GitHubError] = UnavailableError if repeatable else AmbiguousError
    try:
        content = json.loads(answer.body)
        data, errors = content.get("data"), content.get("errors")
    except (AttributeError, RecursionError, ValueError):
        raise unclear("POST GraphQL: the answer is not understood", status=200) from None
    if errors:
        raise _refusal(answer, errors, unclear)
    if not isinstance(data, dict):
        raise unclear("POST GraphQL: the answer has no data", status=200)
    return data


def _refusal(answer: Answer, errors: object, unclear: type[GitHubError]) -> GitHubError:
    listed = [error for error in errors if isinstance(error, dict)] if isinstance(errors, list) else []
    kinds = {str(error.get("type") or "") for error in listed}
    reasons = tuple(one_line(str(error.get("message") or error.get("type") or "")) for error in listed[:20])
    text = "POST GraphQL: " + "; ".join(reasons)
    if "RATE_LIMITED" in kinds or any("rate limit" in reason.lower() for reason in reasons):
        return RateLimitedError(text, status=answer.status, retry_after=wait(answer.headers))
    if "NOT_FOUND" in kinds:
        return NotFoundError(text, status=answer.status)
    if kinds & {"FORBIDDEN", "INSUFFICIENT_SCOPES"}:
        return ForbiddenError(text, status=answer.status)
    if kinds & {"SERVICE_UNAVAILABLE", "INTERNAL"} or any("went wrong" in reason for reason in reasons):
        return unclear(text, status=answer.status)
    return RejectedError(text, status=answer.status, errors=reasons)
