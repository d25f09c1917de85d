"""Who we are to GitHub: an App's installation, or a plain token. Tokens are opaque; none is shown anywhere."""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Generator
from dataclasses import dataclass, field
from datetime import datetime, timedelta, timezone
from typing import TYPE_CHECKING, Any

import httpx

from ptopt.github.client import GitHubClient
from ptopt.github.endpoint import GITHUB, Endpoint
from ptopt.github.errors import ForbiddenError, RejectedError
from ptopt.github.graphql import viewer
from ptopt.github.parsing import moment
from ptopt.github.transport import Transport

if TYPE_CHECKING:
    from github.Auth import AppAuth as AppJWT

ACTIONS_BOT = "github-actions[bot]"
_EARLY = timedelta(
    minutes=2
)  # a token is not used in the last minutes of its hour: `git fetch` takes a while


class TokenAuth(httpx.Auth):
    """Sends a token with each request."""

    scheme = "token"

    def __init__(self, token: str) -> None:
        self._token = token

    def token(self) -> str:
        return self._token

    def renew(self, _refused: str) -> bool:
        """Whether there may be another token than the one that got a 401."""
        return False

    def auth_flow(self, request: httpx.Request) -> Generator[httpx.Request, httpx.Response, None]:
        token = self.token()
        request.headers["Authorization"] = f"{self.scheme} {token}"
        response = yield request
        if response.status_code == 401 and self.renew(
            token
        ):  # a 401 did nothing yet, so a write may follow it
            request.headers["Authorization"] = f"{self.scheme} {self.token()}"
            yield request


class AppAuth:
    """An App: its id, its private key, and the GitHub it is registered at."""

    def __init__(
        self,
        base_url: str,
        app_id: int,
        private_key: str,
        *,
        seconds_between_writes: float = 1.0,
    ) -> None:
        """ValueError when `base_url` is not an API's, or `private_key` (PEM) cannot sign."""
        self.endpoint = Endpoint.of(base_url)
        self.app_id = app_id
        self.seconds_between_writes = seconds_between_writes
        signer = _signer(app_id, private_key)
        if signer is None:
            raise ValueError("the App's private key is not an RSA key in PEM format")
        self.transport = Transport(self.endpoint, _JWTAuth(signer), seconds_between_writes=0)
        self._slug: str | None = None
        self._minted: defaultdict[int, _Minted] = defaultdict(_Minted)  # by installation

    def __repr__(self) -> str:
        return f"AppAuth({self.endpoint.origin}, {self.app_id})"

    def slug(self) -> str:
        """The App's name in URLs; its login is `<slug>[bot]`. Asked once."""
        if self._slug is None:
            self._slug = self.transport.get("/app", lambda data: str(data["slug"]))
        return self._slug


class _JWTAuth(TokenAuth):
    scheme = "Bearer"

    def __init__(self, signer: AppJWT) -> None:
        self._signer = signer

    def token(self) -> str:
        return self._signer.token


class InstallationAuth(TokenAuth):
    """Access to one installation. All of an App share one token, minted anew shortly before it expires."""

    def __init__(self, app: AppAuth, installation_id: int) -> None:
        self._app = app
        self._installation_id = installation_id
        self._minted = app._minted[installation_id]

    def token(self) -> str:
        minted = self._minted
        with minted.lock:
            if minted.token is None or minted.expires_at - _EARLY < datetime.now(timezone.utc):
                minted.token, minted.expires_at = self._app.transport.post_repeatable(
                    f"/app/installations/{int(self._installation_id)}/access_tokens", {}, _token
                )
            return minted.token

    def renew(self, refused: str) -> bool:
        """Another thread's newer token stays."""
        with self._minted.lock:
            if refused == self._minted.token:
                self._minted.token = None
        return True


def for_installation(auth: AppAuth, installation_id: int) -> GitHubClient:
    """A client that acts as the App in one installation."""
    access = InstallationAuth(auth, installation_id)
    transport = Transport(auth.endpoint, access, seconds_between_writes=auth.seconds_between_writes)
    return GitHubClient(transport, access, lambda: f"{auth.slug()}[bot]")


def for_token(token: str, base_url: str = GITHUB, *, seconds_between_writes: float = 1.0) -> GitHubClient:
    """A client that acts as the bearer of `token`: a person's, or the GITHUB_TOKEN of a workflow.

    ValueError when `base_url` is not an API's, or the token can be none.
    """
    token = token.strip()
    if not token or not token.isascii() or not token.isprintable() or " " in token:
        raise ValueError("the GitHub token is empty or has characters that no token has")
    auth = TokenAuth(token)
    transport = Transport(Endpoint.of(base_url), auth, seconds_between_writes=seconds_between_writes)
    return GitHubClient(transport, auth, lambda: _bearer(transport))


@dataclass(slots=True)
class _Minted:
    lock: threading.Lock = field(default_factory=threading.Lock)
    token: str | None = field(default=None, repr=False)
    expires_at: datetime = field(default_factory=lambda: datetime.now(timezone.utc))


def _signer(app_id: int, private_key: str) -> AppJWT | None:
    """None when the key cannot sign."""
    # PyGithub takes half a second to import, and the Action, which has a token, does without an App.
    import jwt
    from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey
    from cryptography.hazmat.primitives.serialization import load_pem_private_key
    from github.Auth import AppAuth as AppJWT

    try:
        # Read once: to check an RSA key takes a hundred times as long as to sign with it.
        pem = private_key.replace("\\n", "\n")  # as environment files write it
        key = load_pem_private_key(pem.encode(), None)
        if not isinstance(key, RSAPrivateKey):
            return None
        signer = AppJWT(app_id, sign_func=lambda payload: jwt.encode(payload, key, algorithm="RS256"))
        signer.create_jwt()
    except Exception:  # one of many kinds, and the text may quote the key
        return None
    return signer


def _token(data: Any) -> tuple[str, datetime]:
    token = data["token"]
    if not isinstance(token, str) or not token:
        raise TypeError("no token")
    return token, moment(data["expires_at"])


def _bearer(transport: Transport) -> str:
    """The token's login. An App's token may not ask for /user: a workflow's own, or one that a workflow minted."""
    try:
        return transport.get("/user", lambda data: str(data["login"]))
    except ForbiddenError as error:
        if error.status != 403:
            raise
    try:
        login = viewer(transport)
    except (ForbiddenError, RejectedError):
        return ACTIONS_BOT
    return login if login.endswith("[bot]") else f"{login}[bot]"
