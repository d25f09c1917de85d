"""How people responded to review comments: all of a pull request in one GraphQL query, or one for each hundred threads."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ptopt.github.endpoint import checked_repo, checked_sha
from ptopt.github.errors import TooLargeError, UnavailableError
from ptopt.github.graphql import query
from ptopt.github.parsing import GHOST, moment
from ptopt.github.transport import MAX_PAGES, Transport
from ptopt.github.values import Actor, PullResponses, Reaction, ReactionContent, ThreadResponses

# A comment is the first of its thread unless it is a reply. GitHub counts this as two points of the hourly 5,000.
RESPONSES = """\
query Responses($owner: String!, $name: String!, $number: Int!, $after: String) {
  repository(owner: $owner, name: $name) {
    pullRequest(number: $number) {
      state
      headRefOid
      reviewThreads(first: 100, after: $after) {
        pageInfo { hasNextPage endCursor }
        nodes {
          isResolved
          isOutdated
          comments(first: 1) {
            nodes {
              fullDatabaseId
              isMinimized
              minimizedReason
              reactions(first: 100) {
                pageInfo { hasNextPage }
                nodes { databaseId content createdAt user { databaseId login } }
              }
            }
          }
        }
      }
    }
  }
}
"""
_CONTENTS: Mapping[str, ReactionContent] = {
    "THUMBS_UP": "+1",
    "THUMBS_DOWN": "-1",
    "LAUGH": "laugh",
    "CONFUSED": "confused",
    "HEART": "heart",
    "HOORAY": "hooray",
    "ROCKET": "rocket",
    "EYES": "eyes",
}


def responses(transport: Transport, repo: str, number: int) -> PullResponses:
    """Raises NotFoundError where there is no such pull request, TooLargeError for over 10,000 threads."""
    owner, _, name = checked_repo(repo).partition("/")
    found: list[ThreadResponses] = []
    after: str | None = None
    for _ in range(MAX_PAGES):
        variables = {"owner": owner, "name": name, "number": int(number), "after": after}
        data = query(transport, RESPONSES, variables, repeatable=True)
        try:
            pull = data["repository"]["pullRequest"]
            state, head_sha = str(pull["state"]), checked_sha(str(pull["headRefOid"]))
            page = pull["reviewThreads"]
            threads = (_thread(node) for node in page["nodes"] or () if node)
            found += [thread for thread in threads if thread is not None]
            after = str(page["pageInfo"]["endCursor"]) if page["pageInfo"]["hasNextPage"] else None
        except (AttributeError, LookupError, TypeError, ValueError):
            raise UnavailableError("POST GraphQL: the responses are not understood", status=200) from None
        if after is None:
            return PullResponses(state == "OPEN", state == "MERGED", head_sha, tuple(found))
    raise TooLargeError(f"POST GraphQL: more than {MAX_PAGES} pages of threads")


def _thread(node: Mapping[str, Any]) -> ThreadResponses | None:
    """None for a thread whose comments are hidden from us."""
    comment = next((each for each in node["comments"]["nodes"] or () if each), None)
    if comment is None:
        return None
    reason = str(comment.get("minimizedReason") or "").lower().replace("_", "-")
    reactions = comment["reactions"]
    return ThreadResponses(
        comment_id=int(comment["fullDatabaseId"]),
        resolved=bool(node["isResolved"]),
        outdated=bool(node["isOutdated"]),
        minimized=reason if comment["isMinimized"] else None,
        reactions=tuple(
            _reaction(each)
            for each in reactions["nodes"] or ()
            if each and each["databaseId"] and each["content"] in _CONTENTS
        ),
        complete=not reactions["pageInfo"]["hasNextPage"],
    )


def _reaction(node: Mapping[str, Any]) -> Reaction:
    """With the id that REST gives it. GitHub names only people here; a bot among them keeps its suffix."""
    return Reaction(
        id=int(node["databaseId"]),
        content=_CONTENTS[node["content"]],
        actor=_person(node.get("user")),
        created_at=moment(str(node["createdAt"])),
    )


def _person(user: Mapping[str, Any] | None) -> Actor:
    if user is None:
        return GHOST
    login = str(user["login"])
    return Actor(int(user.get("databaseId") or 0), login, login.endswith("[bot]"))
