"""`/healthz`: the process answers. `/readyz`: it accepts deliveries; what else is away is named as degraded.

A proxy takes a process that is not ready away from its clients. So only what deliveries need makes it that: without the
broker they are stored, and without a process that takes them they are lost.
"""

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


def router(checks: Mapping[str, Check], degrading: Mapping[str, Check]) -> APIRouter:
    """`checks` must pass for readiness; those of `degrading` that do not are named in the answer."""
    routes = APIRouter()

    @routes.get("/healthz")
    async def healthz() -> Response:
        return JSONResponse({"status": "ok"})

    @routes.get("/readyz")
    def readyz() -> Response:
        if found := failing(checks):
            return problem(503, "Not ready; see the log of the service.", failing=found)
        return JSONResponse({"status": "ready", "checks": list(checks), "degraded": failing(degrading)})

    return routes


def _passes(name: str, check: Check) -> bool:
    try:
        check()
    except Exception as error:
        _log.warning("check failed", check=name, error=str(error))
        return False
    return True
