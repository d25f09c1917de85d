"""GraphQL's objects for people, pull requests, threads and comments, and its connections."""

from __future__ import annotations

import base64
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from graphql import GraphQLError

from fake_github import shapes
from fake_github.comments import IssueComment
from fake_github.pulls import Pull
from fake_github.reviews import Review, ReviewComment, Thread

if TYPE_CHECKING:
    from fake_github.accounts import Account
    from fake_github.graphql import Root
    from fake_github.repos import Repo

Json = dict[str, Any]
_CONTENTS = dict(
    zip(
        shapes.REACTIONS,
        ("THUMBS_UP", "THUMBS_DOWN", "LAUGH", "HOORAY", "CONFUSED", "HEART", "ROCKET", "EYES"),
        strict=True,
    )
)


def failed(kind: str, message: str) -> GraphQLError:
    return GraphQLError(message, extensions={"type": kind})


def person(root: Root, account: Account) -> Json:
    """An account where the schema says User: a bot keeps its suffix there."""
    return {**actor(root, account), "__typename": "User", "login": account.login}


def actor(root: Root, account: Account) -> Json:
    """An account where the schema says Actor: a Bot is named without the suffix that REST gives it."""
    login = account.login.removesuffix("[bot]")
    data = shapes.user(root.github, account)
    return {
        "__typename": account.type,
        "id": data["node_id"],
        "databaseId": account.id,
        "login": login,
        "url": data["html_url"],
        "avatarUrl": data["avatar_url"],
        "resourcePath": f"/{login}",
    }


def repository(root: Root, repo: Repo) -> Json:
    def pull(info: Any, number: int) -> Json:
        root.allow(repo, "pull_requests", "read")
        found = repo.pulls.get(number)
        if found is None:
            raise failed("NOT_FOUND", f"Could not resolve to a PullRequest with the number of {number}.")
        return node(root, found)

    def git_object(info: Any, oid: str) -> Json | None:
        root.allow(repo, "contents", "read")
        kind = repo.git.kind(oid)
        return None if kind is None else _git_object(root, repo, oid, kind)

    return {
        "__typename": "Repository",
        "id": f"R_{repo.id:x}",
        "databaseId": repo.id,
        "name": repo.name,
        "nameWithOwner": repo.full_name,
        "isPrivate": repo.private,
        "object": git_object,
        "pullRequest": pull,
    }


def _git_object(root: Root, repo: Repo, oid: str, kind: str) -> Json:
    common: Json = {
        "__typename": kind.capitalize(),
        "id": f"{kind[0].upper()}_{repo.id:x}{oid}",
        "oid": oid,
        "abbreviatedOid": oid[:7],
        "repository": lambda info: repository(root, repo),
    }
    if kind != "blob":
        return common
    data = repo.git.blob(oid) or b""
    text = data[: root.github.limits.blob_text]
    binary = b"\0" in text
    try:
        whole = text.decode()
    except UnicodeDecodeError:  # GitHub guesses the encoding and converts
        whole = text.decode("latin-1")
    return common | {
        "byteSize": len(data),
        "isBinary": binary,
        "isTruncated": len(text) < len(data),
        "text": None if binary else whole,
    }


def node(root: Root, found: Any) -> Json:
    if isinstance(found, Pull):
        return _pull(root, found)
    if isinstance(found, Thread):
        return _thread(root, found)
    if isinstance(found, Review):
        data = {
            "__typename": "PullRequestReview",
            "id": f"PRR_{found.id:x}",
            "databaseId": found.id,
            "fullDatabaseId": str(found.id),
            "state": found.state,
        }
        return data | {
            "body": found.body,
            "author": actor(root, found.author),
            "url": found.shape()["html_url"],
        }
    return _comment(root, found)


def _pull(root: Root, pull: Pull) -> Json:
    return {
        "__typename": "PullRequest",
        "id": f"PR_{pull.id:x}",
        "databaseId": pull.id,
        "fullDatabaseId": str(pull.id),
        "number": pull.number,
        "title": pull.title,
        "url": pull.html_url,
        "headRefOid": pull.head_sha,
        "baseRefOid": pull.base_sha,
        "isDraft": pull.draft,
        "merged": pull.merged,
        "state": "OPEN" if pull.open else "MERGED" if pull.merged else "CLOSED",
        "author": actor(root, pull.author),
        "reviewThreads": connection(lambda: pull.threads, lambda each: _thread(root, each)),
        "reviews": connection(lambda: pull.reviews, lambda each: node(root, each)),
        "comments": connection(lambda: pull.issue_comments, lambda each: _comment(root, each)),
    }


def _thread(root: Root, thread: Thread) -> Json:
    first = thread.comments[0]
    start, line, _ = first.place
    return {
        "__typename": "PullRequestReviewThread",
        "id": thread.id,
        "isResolved": thread.resolved,
        "isOutdated": thread.outdated,
        "isCollapsed": thread.resolved,
        "resolvedBy": person(root, thread.resolved_by) if thread.resolved_by else None,
        "path": first.path,
        "line": line,
        "startLine": start,
        "originalLine": first.anchor.line,
        "originalStartLine": first.anchor.start_line,
        "diffSide": first.anchor.side,
        "subjectType": "LINE" if first.anchor.line else "FILE",
        "viewerCanReply": True,
        "viewerCanResolve": not thread.resolved and root.can_resolve(thread),
        "viewerCanUnresolve": thread.resolved and root.can_resolve(thread),
        "pullRequest": lambda info: _pull(root, thread.pull),
        "comments": connection(lambda: thread.comments, lambda each: _comment(root, each)),
    }


def _comment(root: Root, comment: IssueComment | ReviewComment) -> Json:
    data = comment.shape()
    whole = {
        "id": comment.node_id,
        "databaseId": comment.id,
        "fullDatabaseId": str(comment.id),
        "body": comment.body,
        "url": data["html_url"],
        "createdAt": data["created_at"],
        "updatedAt": data["updated_at"],
        "author": actor(root, comment.author),
        "authorAssociation": data["author_association"],
        "isMinimized": comment.minimized is not None,
        "minimizedReason": comment.minimized,
        "viewerDidAuthor": comment.author.login == root.call.login,
        "reactionGroups": [_reaction_group(root, comment, content) for content in _CONTENTS],
        "reactions": connection(
            lambda: list(comment.reactions),
            lambda each: {
                "id": f"REA_{each.id:x}",
                "databaseId": each.id,
                "content": _CONTENTS[each.content],
                "createdAt": shapes.stamp(each.created),
                "user": person(root, each.account),
            },
        ),
    }
    if isinstance(comment, IssueComment):
        return whole | {"__typename": "IssueComment"}
    more: Json = {
        "__typename": "PullRequestReviewComment",
        "path": comment.path,
        "line": comment.line,
        "outdated": comment.thread.outdated,
        "replyTo": None,
        "pullRequestReview": node(root, comment.review),
    }
    if comment.in_reply_to:
        parent = comment.thread.comments[0]
        more["replyTo"] = lambda info: _comment(root, parent)
    return whole | more


def _reaction_group(root: Root, comment: IssueComment | ReviewComment, content: str) -> Json:
    found = [each for each in comment.reactions if each.content == content]
    return {
        "content": _CONTENTS[content],
        "createdAt": shapes.stamp(found[0].created) if found else None,
        "viewerHasReacted": any(each.account.login == root.call.login for each in found),
        "reactors": connection(lambda: [each.account for each in found], lambda each: actor(root, each)),
    }


def connection(items: Callable[[], Sequence[Any]], build: Callable[[Any], Json]) -> Callable[..., Json]:
    """A resolver of a connection: `first` is 1 to 100, as on GitHub, or `last`."""

    def resolve(
        info: Any,
        first: int | None = None,
        after: str | None = None,
        last: int | None = None,
        before: str | None = None,
        **_: Any,
    ) -> Json:
        found = list(items())
        size = first if first is not None else last
        if size is None:
            message = f"You must provide a `first` or `last` value to properly paginate the `{info.field_name}` connection."
            raise failed("MISSING_PAGINATION_BOUNDARIES", message)
        if not 1 <= size <= 100:
            message = f"Requesting {size} records on the `{info.field_name}` connection exceeds the `first` limit of 100 records."
            raise failed("EXCESSIVE_PAGINATION", message)
        low = _position(after) + 1 if after else 0
        high = _position(before) if before else len(found)
        if first is not None:
            high = min(high, low + first)
        else:
            low = max(low, high - size)
        cursors = [_cursor(at) for at in range(low, high)]
        chosen = found[low:high]
        nodes = [build(item) for item in chosen]
        return {
            "nodes": nodes,
            "edges": [{"cursor": c, "node": n} for c, n in zip(cursors, nodes, strict=True)],
            "totalCount": len(found),
            "pageInfo": {
                "hasNextPage": high < len(found),
                "hasPreviousPage": low > 0,
                "startCursor": cursors[0] if cursors else None,
                "endCursor": cursors[-1] if cursors else None,
            },
        }

    return resolve


def _cursor(position: int) -> str:
    return base64.b64encode(b"cursor:%d" % position).decode()


def _position(cursor: str) -> int:
    try:
        return int(base64.b64decode(cursor).decode().partition(":")[2])
    except ValueError:
        raise failed(
            "INVALID_CURSOR_ARGUMENTS", f"`{cursor}` does not appear to be a valid cursor."
        ) from None
