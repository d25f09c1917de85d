"""Every error is answered as problem JSON (RFC 9457). What is unexpected is logged, never shown."""

from __future__ import annotations

import http
import json
from collections.abc import Mapping
from typing import Any

import structlog
from fastapi import FastAPI
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

_log = structlog.get_logger(__name__)


def problem(
    status: int, detail: str = "", *, headers: Mapping[str, str] | None = None, **more: Any
) -> Response:
    """An answer with the members `title`, `status`, `detail` and those of `more`."""
    content: dict[str, Any] = {"title": http.HTTPStatus(status).phrase, "status": status}
    if detail:
        content["detail"] = detail
    return Response(
        json.dumps(content | more, separators=(",", ":")),
        status_code=status,
        headers=dict(headers or {}) | {"X-Content-Type-Options": "nosniff"},
        media_type="application/problem+json",
    )


def install(app: FastAPI) -> None:
    """Makes `app` answer all errors this way."""
    app.add_exception_handler(HTTPException, _http_error)
    app.add_exception_handler(RequestValidationError, _invalid)
    app.add_middleware(Unexpected)


async def _http_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)  # noqa: S101 (Starlette calls it for nothing else)
    default = http.HTTPStatus(error.status_code).phrase
    detail = "" if error.detail == default else str(error.detail)
    return problem(error.status_code, detail, headers=error.headers)


async def _invalid(request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)  # noqa: S101
    # The values are left out: they may be secrets.
    errors = [
        {"where": ".".join(str(part) for part in item["loc"]), "detail": item["msg"]}
        for item in error.errors()
    ]
    return problem(422, "The request does not have the expected parameters.", errors=errors)


class Unexpected:
    """Turns an exception that nobody expected into a 500. Starlette's own handler would log it a second time."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        started = False

        async def watch(message: Message) -> None:
            nonlocal started
            started = started or message["type"] == "http.response.start"
            await send(message)

        try:
            await self.app(scope, receive, watch)
        except Exception:
            if started:
                raise
            _log.exception("request failed", method=scope["method"], path=scope["path"])
            answer = problem(500, "Internal error; see the log of the service.")
            await answer(scope, receive, send)
