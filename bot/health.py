"""`/healthz`: the process answers. `/readyz`: it can do its work."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import structlog
from fastapi import APIRouter
from starlette.responses import JSONResponse, Response

from bot.problems import problem

# Raises when something is wrong; the text is for the log.
Check = Callable[[], None]
_log = structlog.get_logger(__name__)


def failing(checks: Mapping[str, Check]) -> list[str]:
    """Names of the checks that fail; the log has the reasons."""
    return [name for name, check in checks.items() if not _passes(name, check)]


def router(checks: Mapping[str, Check]) -> APIRouter:
    routes = APIRouter()

    @routes.get("/healthz")
    async def healthz() -> Response:
        return JSONResponse({"status": "ok"})

    @routes.get("/readyz")
    def readyz() -> Response:
        if found := failing(checks):
            return problem(503, "Not ready; see the log of the service.", failing=found)
        return JSONResponse({"status": "ready", "checks": list(checks)})

    return routes


def _passes(name: str, check: Check) -> bool:
    try:
        check()
    except Exception as error:
        _log.warning("not ready", check=name, error=str(error))
        return False
    return True
