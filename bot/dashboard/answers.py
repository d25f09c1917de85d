"""What all answers of the dashboard have in common: headers, and errors as pages or as problem JSON."""

from __future__ import annotations

import http
from urllib.parse import quote

import structlog
from fastapi import FastAPI
from fastapi.exceptions import RequestValidationError
from starlette.datastructures import MutableHeaders
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from bot.dashboard.guard import SignedOutError
from bot.dashboard.render import PREFIX, Pages
from bot.problems import problem
from ptopt.github.errors import GitHubError

_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; form-action 'self'; "
    "base-uri 'none'; frame-ancestors 'none'"
)
_HEADERS = {
    "Content-Security-Policy": _POLICY,
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}
_log = structlog.get_logger(__name__)


class Headers:
    """Adds the headers of the dashboard. Only static files may be kept by a browser."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        kept = "no-cache" if scope.get("path", "").startswith(f"{PREFIX}/static/") else "no-store"

        async def more(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                headers.update(_HEADERS | {"Cache-Control": kept})
            await send(message)

        await self.app(scope, receive, more)


def install(dashboard: FastAPI, pages: Pages) -> None:
    """Makes `dashboard` answer all errors: below `/api` as problem JSON, else as pages."""

    def answer(request: Request, status: int, detail: str) -> Response:
        if _path(request).startswith("api/"):
            return problem(status, detail)
        title = http.HTTPStatus(status).phrase
        return pages.show("error.html", status=status, title=title, detail=detail)

    async def http_error(request: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)  # noqa: S101 (Starlette calls it for nothing else)
        usual = http.HTTPStatus(error.status_code).phrase
        detail = "" if error.detail == usual else str(error.detail)
        return answer(request, error.status_code, detail or _USUAL.get(error.status_code, ""))

    async def invalid(request: Request, error: Exception) -> Response:
        return answer(request, 422, "The address has a parameter that this page does not take.")

    async def signed_out(request: Request, error: Exception) -> Response:
        if _path(request).startswith("api/"):
            return problem(401, "Sign in on the dashboard first.")
        onward = _path(request) + (f"?{request.url.query}" if request.url.query else "")
        target = f"{pages.base}/sign-in?onward={quote(onward, safe='')}"
        if "hx-request" in request.headers:  # a redirect would put the page into a part of this one
            return Response(status_code=401, headers={"HX-Redirect": f"{pages.base}/sign-in"})
        return RedirectResponse(target if request.method == "GET" else f"{pages.base}/sign-in", 303)

    async def github(request: Request, error: Exception) -> Response:
        _log.warning("what somebody may see is not known", error=str(error))
        return answer(
            request, 503, "GitHub does not say which repositories you may see. Try again in a minute."
        )

    dashboard.add_exception_handler(HTTPException, http_error)
    dashboard.add_exception_handler(RequestValidationError, invalid)
    dashboard.add_exception_handler(SignedOutError, signed_out)
    dashboard.add_exception_handler(GitHubError, github)


_USUAL = {404: "There is no such page, or it is of a repository that you may not see."}


def _path(request: Request) -> str:
    """Below the dashboard, without the slash at its beginning."""
    return str(request.scope["path"]).removeprefix(f"{PREFIX}/")
