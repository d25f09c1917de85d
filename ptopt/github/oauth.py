"""Signing people in: the OAuth flow of the App with PKCE, and which repositories of its installations a person sees."""

from __future__ import annotations

import base64
import hashlib
import re
import secrets
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlencode

from ptopt.github.auth import TokenAuth
from ptopt.github.endpoint import Endpoint
from ptopt.github.errors import ForbiddenError, NotFoundError, RejectedError
from ptopt.github.transport import Transport

_CODE = re.compile(r"[A-Za-z0-9_-]{1,200}", re.ASCII)


@dataclass(frozen=True, slots=True)
class UserToken:
    """A token that acts as a person, within what the App may do. `seconds`: its life; None where it has no end."""

    value: str = field(repr=False)
    seconds: float | None


@dataclass(frozen=True, slots=True)
class Person:
    id: int
    login: str


@dataclass(frozen=True, slots=True)
class SeenRepository:
    """A repository that the App is installed on and that the person may read. `writes`: or write to."""

    id: int
    full_name: str
    installation_id: int
    writes: bool


def new_verifier() -> str:
    """The secret of PKCE (RFC 7636): 64 characters."""
    return secrets.token_urlsafe(48)


def challenge(verifier: str) -> str:
    """What stands for the verifier in the address, by the method S256."""
    return base64.urlsafe_b64encode(hashlib.sha256(verifier.encode()).digest()).decode().rstrip("=")


def authorize_url(base_url: str, client_id: str, redirect_uri: str, state: str, verifier: str) -> str:
    """GitHub's page that asks the person, and then leads to `redirect_uri` with `code` and `state`."""
    query = {
        "client_id": client_id,
        "redirect_uri": redirect_uri,
        "state": state,
        "code_challenge": challenge(verifier),
        "code_challenge_method": "S256",
    }
    return f"{Endpoint.of(base_url).web}/login/oauth/authorize?{urlencode(query)}"


def exchange(
    base_url: str, client_id: str, client_secret: str, code: str, verifier: str, redirect_uri: str
) -> UserToken:
    """The token for a code, which is good once and for ten minutes.

    ValueError when `code` cannot be one. RejectedError when GitHub does not take it.
    """
    if not _CODE.fullmatch(code):
        raise ValueError("not a code of GitHub's")
    web = Endpoint.of(base_url).web
    transport = Transport(Endpoint(web, "", "", web), None)
    payload = {
        "client_id": client_id,
        "client_secret": client_secret,
        "code": code,
        "redirect_uri": redirect_uri,
        "code_verifier": verifier,
    }
    return transport.write(
        "POST", "/login/oauth/access_token", payload, _user_token, accept="application/json"
    )


def _user_token(data: Any) -> UserToken:
    if "error" in data:  # with status 200
        raise RejectedError(f"POST /login/oauth/access_token: {str(data['error'])[:100]!r}", status=200)
    if not isinstance(data["access_token"], str) or not data["access_token"]:
        raise TypeError("no token")
    seconds = data.get("expires_in")
    return UserToken(data["access_token"], None if seconds is None else float(seconds))


class UserClient:
    """Acts with the token of a person."""

    def __init__(self, base_url: str, token: str) -> None:
        self._transport = Transport(Endpoint.of(base_url), TokenAuth(token), seconds_between_writes=0)

    def person(self) -> Person:
        return self._transport.get("/user", lambda data: Person(int(data["id"]), str(data["login"])))

    def repositories(self) -> Iterator[SeenRepository]:
        """Repositories of the App's installations. ForbiddenError with status 401: the token is over.

        Left out are installations that are suspended, and those that an organisation closes to this sign-in.
        """
        for page in self._transport.pages("/user/installations", _installations):
            for installation_id in page:
                try:
                    yield from self._repositories(installation_id)
                except (ForbiddenError, NotFoundError) as error:
                    if error.status == 401:
                        raise

    def _repositories(self, installation_id: int) -> Iterator[SeenRepository]:
        path = f"/user/installations/{installation_id}/repositories"
        for page in self._transport.pages(path, lambda data: _repositories(data, installation_id)):
            yield from page


def _installations(data: Any) -> list[int]:
    return [int(each["id"]) for each in data["installations"] if each.get("suspended_at") is None]


def _repositories(data: Any, installation_id: int) -> list[SeenRepository]:
    return [
        SeenRepository(
            int(each["id"]),
            str(each["full_name"]),
            installation_id,
            bool((each.get("permissions") or {}).get("push")),
        )
        for each in data["repositories"]
    ]
