"""Who asks, and may they?"""

from __future__ import annotations

import base64
import time
from typing import TYPE_CHECKING

import jwt

from fake_github.accounts import ROLES, Token, public_key
from fake_github.http import ApiError, Call, Request, Route, forbidden, not_found

if TYPE_CHECKING:
    from fake_github.fake import FakeGitHub
    from fake_github.repos import Repo

_LEVELS = ("none", "read", "write", "admin")
_BAD = "Bad credentials"


def credential(request: Request) -> str | None:
    """The token of an Authorization header, also as a password for git."""
    scheme, _, value = request.headers.get("authorization", "").partition(" ")
    if scheme.lower() in ("bearer", "token"):
        return value.strip()
    if scheme.lower() == "basic":
        try:
            return base64.b64decode(value).decode().partition(":")[2]
        except ValueError:
            return ""
    return None


def authenticate(github: FakeGitHub, request: Request, route: Route | None = None) -> Token | None:
    """The token; None without one, or when the route takes the App's JWT and it is good."""
    value = credential(request)
    if route and route.needs == "app":
        _check_jwt(github, value)
        return None
    if value is None:
        if route is None or route.needs != "any":
            if route and route.needs == "token":
                raise ApiError(401, "Requires authentication")
            if request.path == "/graphql":
                raise ApiError(401, "This endpoint requires you to be authenticated.")
        return None
    token = github.tokens.get(value)
    if token is None or token.expires <= time.time():
        raise ApiError(401, _BAD)
    if token.installation and token.installation.suspended:
        raise ApiError(403, "This installation has been suspended")
    return token


def _check_jwt(github: FakeGitHub, value: str | None) -> None:
    if not value:
        raise ApiError(401, "A JSON web token could not be decoded")
    try:
        claims = jwt.decode(
            value,
            public_key(github.app.private_key),
            algorithms=["RS256"],
            options={"require": ["exp", "iat", "iss"], "verify_iat": False},
        )
    except jwt.ExpiredSignatureError:
        raise ApiError(
            401, "'Expiration time' claim ('exp') must be a numeric value representing the future time"
        ) from None
    except jwt.PyJWTError:
        raise ApiError(401, "A JSON web token could not be decoded") from None
    if claims["exp"] > time.time() + 600 + 5:
        raise ApiError(401, "'Expiration time' claim ('exp') is too far in the future")
    if claims["iat"] > time.time() + 60:
        raise ApiError(
            401,
            "'Issued at' claim ('iat') must be an Integer representing the time that the assertion was issued",
        )
    if str(claims["iss"]) not in (str(github.app.id), github.app.client_id):
        raise ApiError(404, "Integration not found")


def check(call: Call, route: Route) -> None:
    """Raises GitHub's answer when the caller lacks a permission that the route needs."""
    if ":" not in route.needs:
        return
    wanted = [part.split(":") for part in route.needs.split("|")]
    check_repo(call.github, call.token, call.repo, wanted)


def check_repo(github: FakeGitHub, token: Token | None, repo: Repo, wanted: list[list[str]]) -> None:
    """`wanted`: [permission, level] pairs, any of which will do."""
    reading = all(level == "read" for _, level in wanted)
    if token is None:
        if repo.private:
            raise not_found()
        if not reading:
            raise ApiError(401, "Requires authentication")
        return
    if token.kind == "user":
        role = ROLES.index(repo.role(token.login))
        if role == 0:
            raise not_found()
        commenting = any(name in ("issues", "pull_requests") for name, _ in wanted)
        if not reading and not commenting and role < ROLES.index("write"):
            raise ApiError(403, "Must have push access to repository.")
        if any(name == "checks" and level == "write" for name, level in wanted):
            raise ApiError(403, "You must authenticate via a GitHub App.")
        return
    covered = _covers(token, repo)
    if not covered:
        if repo.private:
            raise not_found()
        if not reading:
            raise forbidden()
        return
    for name, level in wanted:
        granted = "read" if name == "metadata" else token.permissions.get(name, "none")
        if _LEVELS.index(granted) >= _LEVELS.index(level):
            return
    if reading and not repo.private:
        return
    raise forbidden()


def _covers(token: Token, repo: Repo) -> bool:
    if token.installation and repo.id not in token.installation.repository_ids:
        return False
    return token.repository_ids is None or repo.id in token.repository_ids
