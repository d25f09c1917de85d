"""The OAuth flow of the App: codes, which are good once and for ten minutes, and what they are exchanged for."""

from __future__ import annotations

import base64
import hashlib
import hmac
import secrets
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode

from fake_github.http import Answer, Json, Request

if TYPE_CHECKING:
    from fake_github.fake import FakeGitHub

FIELDS = ("client_id", "redirect_uri", "state", "code_challenge", "code_challenge_method")
_SECONDS = 600
_TOKEN_SECONDS = 8 * 3600
_REFRESH_SECONDS = 15_897_600


@dataclass
class Authorization:
    """What a person allowed, until the code is used."""

    login: str
    redirect_uri: str
    challenge: str
    made: float = field(default_factory=time.time)


def problem(github: FakeGitHub, query: Mapping[str, str]) -> str:
    """Why GitHub shows no form for these parameters; "" when it does."""
    if query.get("client_id") != github.app.client_id:
        return "There is no such application."
    if query.get("redirect_uri") not in github.app.callback_urls:
        return "The redirect_uri is not associated with this application."
    if query.get("code_challenge") and query.get("code_challenge_method") != "S256":
        return "Only the code challenge method S256 is supported."
    return ""


def new_code(github: FakeGitHub, form: Mapping[str, str]) -> str:
    code = secrets.token_hex(10)
    with github.lock:
        made = Authorization(github.person, form["redirect_uri"], form.get("code_challenge", ""))
        github.authorizations[code] = made
    return code


def access_token(github: FakeGitHub, request: Request, form: Mapping[str, str]) -> Answer:
    """Of JSON or a form. A refusal has status 200, too; the answer is a form unless JSON was asked for."""
    answer = _access_token(github, request.json if isinstance(request.json, dict) else form)
    if "application/json" in request.headers.get("accept", ""):
        return Answer(answer)
    return Answer(urlencode(answer).encode(), media_type="application/x-www-form-urlencoded")


def _access_token(github: FakeGitHub, given: Mapping[str, Any]) -> Json:
    if (given.get("client_id"), given.get("client_secret")) != (
        github.app.client_id,
        github.app.client_secret,
    ):
        text = "The client_id and/or client_secret passed are incorrect."
        return _refused("incorrect_client_credentials", text)
    with github.lock:
        found = github.authorizations.pop(str(given.get("code")), None)
    if found is None or found.made < time.time() - _SECONDS or not _proven(found, given):
        return _refused("bad_verification_code", "The code passed is incorrect or expired.")
    if given.get("redirect_uri", found.redirect_uri) != found.redirect_uri:
        text = "The redirect_uri MUST match the registered callback URL for this application."
        return _refused("redirect_uri_mismatch", text)
    return {
        "access_token": github.signed_in_token(found.login),
        "expires_in": _TOKEN_SECONDS,
        "refresh_token": f"ghr_{secrets.token_hex(30)}",
        "refresh_token_expires_in": _REFRESH_SECONDS,
        "scope": "",
        "token_type": "bearer",
    }


def _proven(found: Authorization, given: Mapping[str, Any]) -> bool:
    """Does the verifier belong to the challenge?"""
    digest = hashlib.sha256(str(given.get("code_verifier", "")).encode()).digest()
    ours = base64.urlsafe_b64encode(digest).decode().rstrip("=")
    return not found.challenge or hmac.compare_digest(ours, found.challenge)


def _refused(error: str, text: str) -> Json:
    docs = "https://docs.github.com/apps/managing-oauth-apps/troubleshooting-oauth-app-access-token-request-errors"
    return {"error": error, "error_description": text, "error_uri": docs}
