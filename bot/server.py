"""The HTTP server, the same for `python -m bot` and the embedded service."""

from __future__ import annotations

import uvicorn
from fastapi import FastAPI

_MAX_CONNECTIONS = 500
_SECONDS_TO_STOP = 20


def server(app: FastAPI, host: str, port: int) -> uvicorn.Server:
    """A server to `run()`. Logs go where `bot.logs.configure` sends them."""
    return uvicorn.Server(
        uvicorn.Config(
            app,
            host,
            port,
            log_config=None,
            access_log=False,  # it would hold the setup token; the webhook logs a line for each delivery
            server_header=False,
            proxy_headers=False,
            limit_concurrency=_MAX_CONNECTIONS,
            timeout_graceful_shutdown=_SECONDS_TO_STOP,
        )
    )
