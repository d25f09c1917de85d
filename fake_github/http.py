"""One request and its answer, routes, errors and pages."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import urlencode

if TYPE_CHECKING:
    from fake_github.accounts import Token
    from fake_github.fake import FakeGitHub
    from fake_github.pulls import Pull
    from fake_github.repos import Repo

DOCS = "https://docs.github.com/rest"
T = TypeVar("T")
Json = dict[str, Any]


@dataclass
class Request:
    """What a client asked. `path` is decoded, without `/api/v3`; `route` is GitHub's own path template."""

    method: str
    path: str
    query: dict[str, str]
    headers: dict[str, str]  # lower-case names
    body: bytes
    route: str | None = None  # "/graphql" for GraphQL; None for git and unknown paths
    status: int = 0  # of the answer, once there is one; 0 when the connection was dropped
    fault: str | None = None
    page: bool = False  # for a browser, and no part of the API

    @cached_property
    def json(self) -> Any:
        """The body as JSON; None when it is none."""
        try:
            return json.loads(self.body) if self.body else None
        except ValueError:
            return None


@dataclass
class Response:
    """What was answered. `fault` names the fault on demand that made this answer, if one did."""

    status: int
    headers: dict[str, str]  # lower-case names
    body: bytes
    fault: str | None = None

    @cached_property
    def json(self) -> Any:
        try:
            return json.loads(self.body) if self.body else None
        except ValueError:
            return None


@dataclass
class Answer:
    """What a handler returns. `bytes` are sent as they are, everything else as JSON; None is an empty body."""

    data: Any
    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)
    media_type: str = "application/json; charset=utf-8"


class ApiError(Exception):
    """An answer of GitHub that is an error."""

    def __init__(
        self,
        status: int,
        message: str,
        errors: Sequence[Any] | None = None,
        *,
        docs: str = DOCS,
        headers: Mapping[str, str] | None = None,
        **more: Any,
    ) -> None:
        super().__init__(f"{status} {message} {errors or ''}")
        data: Json = {"message": message, **more}
        if errors is not None:
            data["errors"] = list(errors)
        data |= {"documentation_url": docs, "status": str(status)}
        self.answer = Answer(data, status, dict(headers or {}))


def not_found() -> ApiError:
    return ApiError(404, "Not Found")


def forbidden() -> ApiError:
    return ApiError(403, "Resource not accessible by integration")


def invalid(resource: str, field_: str, code: str = "invalid", message: str | None = None) -> ApiError:
    error = {"resource": resource, "code": code, "field": field_}
    if message:
        error["message"] = message
    return ApiError(422, "Validation Failed", [error])


@dataclass
class Call:
    """A request on its way through a handler."""

    github: FakeGitHub
    request: Request
    params: dict[str, str]
    token: Token | None

    @property
    def query(self) -> dict[str, str]:
        return self.request.query

    @cached_property
    def data(self) -> Json:
        """The JSON object of the body."""
        data = self.request.json
        if data is None and self.request.body:
            raise ApiError(400, "Problems parsing JSON")
        if data is not None and not isinstance(data, dict):
            raise ApiError(422, "Invalid request.\n\nBody should be a JSON object")
        return data or {}

    def text(self, name: str, *, required: bool = True) -> str:
        value = self.data.get(name)
        if value is None and not required:
            return ""
        if value is None:
            raise ApiError(422, f'Invalid request.\n\n"{name}" wasn\'t supplied.')
        if not isinstance(value, str):
            raise ApiError(
                422, f"Invalid request.\n\nFor 'properties/{name}', {json.dumps(value)} is not a string."
            )
        return value

    def number(self, name: str) -> int:
        return int(self.params[name]) if self.params[name].isdecimal() else 0

    @cached_property
    def login(self) -> str:
        assert self.token
        return self.token.login

    @cached_property
    def repo(self) -> Repo:
        """The repository that the path names. ApiError 404, or 301 to its id when it was renamed."""
        name = f"{self.params['owner']}/{self.params['repo']}"
        moved = self.github.renamed.get(name.lower())
        if moved and name.lower() not in self.github.repos:
            rest = self.request.path.removeprefix("/repos/").split("/", 2)[2:]
            url = "/".join([f"{self.github.url}/repositories/{moved.id}", *rest])
            raise ApiError(301, "Moved Permanently", headers={"Location": url}, url=url)
        return self.github.find_repo(name)

    @property
    def pull(self) -> Pull:
        name = "pull_number" if "pull_number" in self.params else "issue_number"
        pull = self.repo.pulls.get(self.number(name))
        if pull is None:
            raise not_found()
        return pull


Handler = Callable[[Call], Answer]


@dataclass(frozen=True)
class Route:
    method: str
    template: str
    pattern: re.Pattern[str]
    handler: Handler
    needs: str  # "app", "any", "token", or a permission such as "pull_requests:write" ("a:write|b:write")


ROUTES: list[Route] = []
_PARAMETER = re.compile(r"\{(\w+)\}")
_LONG = {"path": ".*", "ref": ".+", "basehead": ".+"}


def route(method: str, template: str, needs: str) -> Callable[[Handler], Handler]:
    """Registers a handler under GitHub's own path template."""

    def register(handler: Handler) -> Handler:
        pattern = _PARAMETER.sub(lambda match: f"(?P<{match[1]}>{_LONG.get(match[1], '[^/]+')})", template)
        ROUTES.append(Route(method, template, re.compile(pattern), handler, needs))
        return handler

    return register


def page(call: Call, items: Sequence[T], build: Callable[[T], Json], *, wrap: str | None = None) -> Answer:
    """One page of `items`, with GitHub's Link header; 30 a page unless asked, 100 at most."""
    size = min(max(_int(call.query.get("per_page"), 30), 1), 100)
    number = max(_int(call.query.get("page"), 1), 1)
    last = max((len(items) + size - 1) // size, 1)
    links: dict[str, int] = {}
    if number < last:
        links |= {"next": number + 1, "last": last}
    if number > 1:
        links |= {"prev": number - 1, "first": 1}
    url = call.github.url + call.request.path
    parts = [
        f'<{url}?{urlencode({**call.query, "page": to})}>; rel="{relation}"' for relation, to in links.items()
    ]
    data: Any = [build(item) for item in items[(number - 1) * size : number * size]]
    if wrap:
        data = {"total_count": len(items), wrap: data}
    return Answer(data, headers={"Link": ", ".join(parts)} if parts else {})


def _int(text: str | None, default: int) -> int:
    return int(text) if text and text.isdecimal() else default
