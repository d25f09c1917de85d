"""Sign-in with GitHub: to its page with a state and a PKCE challenge, back with a code, and out again."""

from __future__ import annotations

import hmac
import re
import secrets
from contextlib import suppress
from datetime import datetime, timezone

import structlog
from fastapi import APIRouter
from fastapi.concurrency import run_in_threadpool
from sqlalchemy import Engine
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from bot.dashboard.guard import COOKIE, Guard, SignedOutError, check_form
from bot.dashboard.render import PREFIX, Pages
from bot.dashboard.sessions import SECONDS, Sessions
from ptopt.github.errors import GitHubError
from ptopt.github.oauth import UserClient, authorize_url, exchange, new_verifier
from service import credentials
from service.credentials import Credentials
from service.settings import Settings

_FLOW_COOKIE = "ptopt_sign_in"
_FLOW_SECONDS = 600
_NEXT = re.compile(r"[a-z]{1,20}(/[0-9]{1,19})?(\?[\w=&-]{0,200})?", re.ASCII)
_log = structlog.get_logger(__name__)


def router(settings: Settings, engine: Engine, guard: Guard, pages: Pages) -> APIRouter:
    routes = APIRouter()
    redirect_uri = f"{settings.public_url}{PREFIX}/callback"
    secure = settings.public_url.startswith("https://")

    def refused(status: int, problem: str) -> Response:
        return pages.show("sign_in.html", status=status, problem=problem, onward="")

    def ready() -> tuple[Sessions, Credentials] | None:
        found = credentials.load(engine, settings)
        return (guard.sessions, found) if guard.sessions and found and found.client_id else None

    def keep(answer: Response, name: str, value: str, seconds: int) -> Response:
        answer.set_cookie(name, value, seconds, path=pages.base, secure=secure, httponly=True, samesite="lax")
        return answer

    @routes.get("/sign-in")
    def page(onward: str = "") -> Response:
        if ready() is None:
            return refused(503, _missing(settings))
        onward = onward if _NEXT.fullmatch(onward) else ""
        return pages.show("sign_in.html", problem="", onward=onward)

    @routes.get("/sign-in/github")
    def begin(onward: str = "") -> Response:
        found = ready()
        if found is None:
            return refused(503, _missing(settings))
        sessions, app = found
        flow = {
            "state": secrets.token_urlsafe(24),
            "verifier": new_verifier(),
            "onward": onward if _NEXT.fullmatch(onward) else "reviews",
        }
        url = authorize_url(settings.github_url, app.client_id, redirect_uri, flow["state"], flow["verifier"])
        return keep(RedirectResponse(url, 303), _FLOW_COOKIE, sessions.seal(flow), _FLOW_SECONDS)

    @routes.get("/callback")
    def callback(request: Request, code: str = "", state: str = "", error: str = "") -> Response:
        found = ready()
        if found is None:
            return refused(503, _missing(settings))
        sessions, app = found
        # Only the browser that began has the cookie, so nobody can be signed in as somebody else by a link.
        flow = sessions.opened(request.cookies.get(_FLOW_COOKIE, ""), _FLOW_SECONDS)
        if "state" not in flow or not hmac.compare_digest(flow["state"].encode(), state.encode()):
            return refused(400, "This sign-in did not begin here, or took too long.")
        if error:
            return refused(403, "The sign-in was cancelled on GitHub.")
        try:
            token = exchange(
                settings.github_url, app.client_id, app.client_secret, code, flow["verifier"], redirect_uri
            )
            person = UserClient(settings.github_url, token.value).person()
        except (GitHubError, ValueError) as failure:
            _log.warning("sign-in failed", error=str(failure))
            return refused(502, "GitHub did not confirm this sign-in.")
        cookie = sessions.open(person.login, token, datetime.now(timezone.utc))
        _log.info("signed in", login=person.login)
        answer = keep(RedirectResponse(f"{pages.base}/{flow['onward']}", 303), COOKIE, cookie, SECONDS)
        answer.delete_cookie(_FLOW_COOKIE, path=pages.base)
        return answer

    @routes.post("/sign-out")
    async def end(request: Request) -> Response:
        form = await guard.form(request)

        def close() -> None:
            session = guard.session(request)
            check_form(form, session.csrf)
            guard.end(session)

        with suppress(SignedOutError):  # then that is done
            await run_in_threadpool(close)
        answer = RedirectResponse(f"{pages.base}/sign-in", 303)
        answer.delete_cookie(COOKIE, path=pages.base)
        return answer

    return routes


def _missing(settings: Settings) -> str:
    """What the operator has to set before anybody can sign in."""
    if settings.secret_key is None:
        return "PTOPT_SECRET_KEY is not set: nobody can sign in."
    return "The App's client id and secret are not known: set PTOPT_CLIENT_ID and PTOPT_CLIENT_SECRET."
