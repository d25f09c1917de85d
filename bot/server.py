"""The HTTP server, the same for `python -m bot` and the embedded service."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Iterable
from functools import partial
from typing import Any, cast

import uvicorn
from fastapi import FastAPI
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from bot.peers import Peers

_MAX_CONNECTIONS = 500
_MAX_OF_PEER = 64  # connections of one address that is no reverse proxy's
_SECONDS_TO_STOP = 20
_SECONDS_TO_ASK = 5.0
_MAX_HEAD = 64 * 1024  # bytes of a request's line and headers


class Impatient(HttpToolsProtocol):
    """Closes connections on which no request comes, and those whose headers have no end.

    uvicorn waits for both for ever: a stranger could hold all connections there are, or fill the memory. When there
    are too many, of all or of one peer, the one that has been waited for longest makes room for the new one.
    """

    seconds = _SECONDS_TO_ASK
    peer: str | None = None
    _head = 0  # bytes since a request was last due
    _due = 0.0  # when a request was last due
    _timer: asyncio.TimerHandle | None = None

    def __init__(self, *arguments: Any, peers: Peers, **more: Any) -> None:
        super().__init__(*arguments, **more)
        self._peers = peers

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self.peer = self._peers.of(self.client)
        self._wait_for_request()
        others = [each for each in self.connections if isinstance(each, Impatient) and not each._is_closing()]
        of_peer = [each for each in others if each.peer == self.peer]
        if self.peer is not None and len(of_peer) > _MAX_OF_PEER:
            self._make_room(of_peer)
        elif len(others) > _MAX_CONNECTIONS:
            self._make_room(others)

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

    def _is_closing(self) -> bool:
        return self.transport.is_closing()

    def _is_unfinished(self) -> bool:
        """Whether a request is due that has not come, or not wholly."""
        return self._timer is not None or (self.cycle is not None and self.cycle.more_body)

    @staticmethod
    def _make_room(connections: Iterable[Impatient]) -> None:
        """The new connection is among them: it is the one to go where all others have their requests in."""
        unfinished = (each for each in connections if each._is_unfinished())
        min(unfinished, key=lambda each: each._due).transport.abort()

    def _wait_for_request(self) -> None:
        self._stop_waiting()
        self._head = 0
        self._due = self.loop.time()
        self._timer = self.loop.call_later(self.seconds, self.transport.close)

    def _stop_waiting(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


def server(app: FastAPI, host: str, port: int, seconds_to_stop: int = _SECONDS_TO_STOP) -> uvicorn.Server:
    """A server of `bot.app.create_app` to `run()`. Logs go where `service.logs.configure` sends them."""
    return uvicorn.Server(
        uvicorn.Config(
            app,
            host,
            port,
            http=cast(type[asyncio.Protocol], partial(Impatient, peers=app.state.peers)),
            log_config=None,
            access_log=False,  # it would hold the setup token; the webhook logs a line for each delivery
            server_header=False,
            proxy_headers=False,
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
