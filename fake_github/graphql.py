"""The GraphQL that ptopt uses, executed with graphql-core over a part of GitHub's schema."""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from graphql import GraphQLError, GraphQLSchema, build_schema, graphql_sync

from fake_github import access
from fake_github.comments import IssueComment
from fake_github.http import Answer, ApiError, Call
from fake_github.nodes import failed, node, person, repository
from fake_github.pulls import Pull
from fake_github.reviews import Review, ReviewComment, Thread

if TYPE_CHECKING:
    from fake_github.repos import Repo

Json = dict[str, Any]


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
        schema(),
        query,
        Root(call).fields(),
        variable_values=variables or {},
        operation_name=data.get("operationName"),
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


class Root:
    """Queries and mutations."""

    def __init__(self, call: Call) -> None:
        self.call = call
        self.github = call.github

    def fields(self) -> dict[str, Callable[..., Any]]:
        """What queries and mutations begin with."""
        return {
            "viewer": lambda info: person(self, self.github.account(self.call.login)),
            "rateLimit": self._rate_limit,
            "repository": self._repository,
            "node": lambda info, **given: self._node(given["id"]),
            "nodes": lambda info, ids: [self._node(each) for each in ids],
            "resolveReviewThread": lambda info, **given: self._resolve(given["input"], True),
            "unresolveReviewThread": lambda info, **given: self._resolve(given["input"], False),
            "minimizeComment": lambda info, **given: self._minimize(given["input"]),
        }

    def _rate_limit(self, info: Any, **_: Any) -> Json:
        limit = self.github.limits.requests
        return {"cost": 1, "limit": limit, "remaining": limit, "used": 0, "resetAt": "2030-01-01T00:00:00Z"}

    def _repository(self, info: Any, owner: str, name: str, **_: Any) -> Json:
        try:
            repo = self.github.find_repo(f"{owner}/{name}")
            access.check_repo(self.github, self.call.token, repo, [["metadata", "read"]])
        except ApiError:
            message = f"Could not resolve to a Repository with the name '{owner}/{name}'."
            raise failed("NOT_FOUND", message) from None
        return repository(self, repo)

    def _node(self, node_id: str) -> Json:
        found = self._find(node_id)
        self.allow(found.repo if isinstance(found, Pull) else found.pull.repo, "pull_requests", "read")
        return node(self, found)

    def _resolve(self, given: Json, resolved: bool) -> Json:
        found = self._find(given["threadId"])
        if not isinstance(found, Thread):
            raise failed(
                "NOT_FOUND", f"Could not resolve to a node with the global id of '{given['threadId']}'"
            )
        if not self.can_resolve(found):
            raise failed("FORBIDDEN", "Resource not accessible by integration")
        self.github.webhooks.background(found.resolve(self.github.account(self.call.login), resolved))
        return {"thread": node(self, found), "clientMutationId": given.get("clientMutationId")}

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

    def _minimize(self, given: Json) -> Json:
        found = self._find(given["subjectId"])
        if not isinstance(found, (IssueComment, ReviewComment)):
            raise failed(
                "NOT_FOUND", f"Could not resolve to a node with the global id of '{given['subjectId']}'"
            )
        self.allow(found.pull.repo, "pull_requests", "write")
        found.minimized = given["classifier"].lower().replace("_", "-")
        return {"minimizedComment": node(self, found), "clientMutationId": given.get("clientMutationId")}

    def allow(self, repo: Repo, permission: str, level: str) -> None:
        """Raises GitHub's error when the caller lacks the permission."""
        try:
            access.check_repo(self.github, self.call.token, repo, [[permission, level]])
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
                comments: list[ReviewComment | IssueComment] = [*pull.review_comments, *pull.issue_comments]
                for comment in comments:
                    if comment.node_id == node_id:
                        return comment
        raise failed("NOT_FOUND", f"Could not resolve to a node with the global id of '{node_id}'")
