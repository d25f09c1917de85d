"""The GraphQL that ptopt uses, executed with graphql-core over a part of GitHub's schema."""

from __future__ import annotations

import base64
import functools
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from graphql import GraphQLError, GraphQLSchema, build_schema, graphql_sync

from . import access, shapes
from .comments import IssueComment
from .http import Answer, ApiError, Call
from .pulls import Pull
from .reviews import Review, ReviewComment, Thread

if TYPE_CHECKING:
    from .accounts import Account
    from .repos import Repo

Json = dict[str, Any]
_CONTENTS = dict(
    zip(
        shapes.REACTIONS,
        ("THUMBS_UP", "THUMBS_DOWN", "LAUGH", "HOORAY", "CONFUSED", "HEART", "ROCKET", "EYES"),
        strict=True,
    )
)


@functools.cache
def schema() -> GraphQLSchema:
    return build_schema(Path(__file__).with_name("schema.graphql").read_text())


def handle(call: Call) -> Answer:
    """Errors come with status 200, as from GitHub."""
    data = call.data
    query, variables = data.get("query"), data.get("variables")
    if not isinstance(query, str):
        raise ApiError(400, "A query attribute must be specified and must be a string.")
    result = graphql_sync(
        schema(), query, Root(call), variable_values=variables or {}, operation_name=data.get("operationName")
    )
    answer: Json = {"data": result.data} if result.data is not None or not result.errors else {}
    if result.errors:
        answer["errors"] = [_error(error) for error in result.errors]
        if result.data is not None:
            answer["data"] = result.data
    return Answer(answer)


def _error(error: GraphQLError) -> Json:
    data: Json = {"message": error.message}
    if (error.extensions or {}).get("type") == "FORBIDDEN":
        data["extensions"] = {"saml_failure": False}
    if error.locations:
        data["locations"] = [{"line": place.line, "column": place.column} for place in error.locations]
    if error.path:
        data["path"] = error.path
    if error.extensions:
        data |= error.extensions
    return data


def failed(kind: str, message: str) -> GraphQLError:
    return GraphQLError(message, extensions={"type": kind})


class Root:
    """Queries and mutations."""

    def __init__(self, call: Call) -> None:
        self.call = call
        self.github = call.github

    def viewer(self, info: Any) -> Json:
        return person(self, self.github.account(self.call.login))

    def rateLimit(self, info: Any) -> Json:
        limit = self.github.limits.requests
        return {"cost": 1, "limit": limit, "remaining": limit, "used": 0, "resetAt": "2030-01-01T00:00:00Z"}

    def repository(self, info: Any, owner: str, name: str, **_: Any) -> Json:
        try:
            repo = self.github.find_repo(f"{owner}/{name}")
            self._allow(repo, "read")
        except ApiError:
            message = f"Could not resolve to a Repository with the name '{owner}/{name}'."
            raise failed("NOT_FOUND", message) from None
        return repository(self, repo)

    def node(self, info: Any, id: str) -> Json:
        found = self._find(id)
        self._allow(found.pull.repo if not isinstance(found, Pull) else found.repo, "read")
        return node(self, found)

    def nodes(self, info: Any, ids: list[str]) -> list[Json]:
        return [self.node(info, each) for each in ids]

    def resolveReviewThread(self, info: Any, input: Json) -> Json:
        return self._resolve(input, True)

    def unresolveReviewThread(self, info: Any, input: Json) -> Json:
        return self._resolve(input, False)

    def _resolve(self, input: Json, resolved: bool) -> Json:
        found = self._find(input["threadId"])
        if not isinstance(found, Thread):
            raise failed("NOT_FOUND", f"Could not resolve to a node with the global id of '{input['threadId']}'")
        if not self.can_resolve(found):
            raise failed("FORBIDDEN", "Resource not accessible by integration")
        self.github.webhooks.background(found.resolve(self.github.account(self.call.login), resolved))
        return {"thread": node(self, found), "clientMutationId": input.get("clientMutationId")}

    def can_resolve(self, thread: Thread) -> bool:
        """An App needs contents:write beside pull_requests:write; GITHUB_TOKEN is refused whatever it has."""
        token, repo = self.call.token, thread.pull.repo
        if token is None or token.kind == "actions":
            return False
        if token.kind == "user" and token.login == thread.pull.author.login:
            return True
        try:
            for name in ("pull_requests", "contents"):
                access.check_repo(self.github, token, repo, [[name, "write"]])
        except ApiError:
            return False
        return True

    def minimizeComment(self, info: Any, input: Json) -> Json:
        found = self._find(input["subjectId"])
        if not isinstance(found, (IssueComment, ReviewComment)):
            raise failed("NOT_FOUND", f"Could not resolve to a node with the global id of '{input['subjectId']}'")
        self._allow(found.pull.repo, "write")
        found.minimized = True
        return {"minimizedComment": node(self, found), "clientMutationId": input.get("clientMutationId")}

    def _allow(self, repo: Repo, level: str) -> None:
        try:
            access.check_repo(self.github, self.call.token, repo, [["pull_requests", level]])
        except ApiError as error:
            raise failed("FORBIDDEN", error.answer.data["message"]) from None

    def _find(self, node_id: str) -> Pull | Thread | Review | ReviewComment | IssueComment:
        for repo in self.github.repos.values():
            for pull in repo.pulls.values():
                if f"PR_{pull.id:x}" == node_id:
                    return pull
                for thread in pull.threads:
                    if thread.id == node_id:
                        return thread
                for comment in (*pull.review_comments, *pull.issue_comments):
                    if comment.node_id == node_id:
                        return comment
        raise failed("NOT_FOUND", f"Could not resolve to a node with the global id of '{node_id}'")


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
        found = repo.pulls.get(number)
        if found is None:
            raise failed("NOT_FOUND", f"Could not resolve to a PullRequest with the number of {number}.")
        return node(root, found)

    return {
        "__typename": "Repository",
        "id": f"R_{repo.id:x}",
        "databaseId": repo.id,
        "name": repo.name,
        "nameWithOwner": repo.full_name,
        "isPrivate": repo.private,
        "pullRequest": pull,
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
        return data | {"body": found.body, "author": actor(root, found.author), "url": found.shape()["html_url"]}
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
    groups = [
        {
            "content": name,
            "createdAt": next((shapes.stamp(r.created) for r in comment.reactions if r.content == content), None),
            "viewerHasReacted": any(
                each.content == content and each.account.login == root.call.login for each in comment.reactions
            ),
            "reactors": connection(
                lambda content=content: [each.account for each in comment.reactions if each.content == content],
                lambda account: actor(root, account),
            ),
        }
        for content, name in _CONTENTS.items()
    ]
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
        "isMinimized": comment.minimized,
        "viewerDidAuthor": comment.author.login == root.call.login,
        "reactionGroups": groups,
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
    more = {
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
        raise failed("INVALID_CURSOR_ARGUMENTS", f"`{cursor}` does not appear to be a valid cursor.") from None
