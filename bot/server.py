"""The HTTP server, the same for `python -m bot` and the embedded service."""

from __future__ import annotations

import asyncio
import signal

import uvicorn
from fastapi import FastAPI
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

_MAX_CONNECTIONS = 500
_SECONDS_TO_STOP = 20
_SECONDS_TO_ASK = 20.0
_MAX_HEAD = 64 * 1024  # bytes of a request's line and headers


class Impatient(HttpToolsProtocol):
    """Closes connections on which no request comes, and those whose headers have no end.

    uvicorn waits for both for ever: a stranger could hold all connections there are, or fill the memory.
    """

    seconds = _SECONDS_TO_ASK
    _head = 0  # bytes since a request was last due
    _timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._wait_for_request()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_waiting()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self._timer is not None:
            self._head += len(data)
            if self._head > _MAX_HEAD:
                self.transport.close()

    def on_headers_complete(self) -> None:
        self._stop_waiting()
        super().on_headers_complete()

    def on_response_complete(self) -> None:
        piped = bool(self.pipeline)
        super().on_response_complete()
        if not piped and not self.transport.is_closing():
            self._wait_for_request()

    def _wait_for_request(self) -> None:
        self._stop_waiting()
        self._head = 0
        self._timer = self.loop.call_later(self.seconds, self.transport.close)

    def _stop_waiting(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


def server(app: FastAPI, host: str, port: int, seconds_to_stop: int = _SECONDS_TO_STOP) -> uvicorn.Server:
    """A server to `run()`. Logs go where `service.logs.configure` sends them."""
    return uvicorn.Server(
        uvicorn.Config(
            app,
            host,
            port,
            http=Impatient,
            log_config=None,
            access_log=False,  # it would hold the setup token; the webhook logs a line for each delivery
            server_header=False,
            proxy_headers=False,
            limit_concurrency=_MAX_CONNECTIONS,
            timeout_graceful_shutdown=seconds_to_stop,
        )
    )


def run(app: FastAPI, host: str, port: int, seconds_to_stop: int = _SECONDS_TO_STOP) -> None:
    """Serve until SIGTERM or SIGINT, then return; requests are given `seconds_to_stop` to end."""
    for number in (signal.SIGTERM, signal.SIGINT):
        # uvicorn stops at a signal and then raises it once more: by default that would end us before we are done.
        signal.signal(number, lambda *_: None)
    try:
        server(app, host, port, seconds_to_stop).run()
    finally:
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, signal.SIG_DFL)
