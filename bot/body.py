"""Reads the body of a request without trusting its Content-Length."""

from __future__ import annotations

import asyncio
import sys
from dataclasses import dataclass

from starlette.requests import ClientDisconnect, Request

from bot.peers import Peers

LIMIT = 25 * 1024 * 1024  # GitHub's own; larger deliveries are never made
SMALL = 128 * 1024  # nearly all deliveries are smaller. The number of connections bounds their memory
_SECONDS = 20.0  # GitHub gives up after 10 (30 on Enterprise Server)
_STEP = 64 * 1024  # bytes that count as progress of a large body
_SLOW = "the body is slow"
_BUSY = "others need the room"


class BodyError(Exception):
    """The body is not taken. `status` and `detail` are for the answer."""

    def __init__(self, status: int, detail: str) -> None:
        super().__init__(detail)
        self.status = status
        self.detail = detail


@dataclass(eq=False)
class _Body:
    """An unfinished body. `at` is when it last got on by a step."""

    task: asyncio.Task[object]
    peer: str | None
    at: float
    taken: int = 0
    taken_then: int = 0


class BodyReader:
    """Reads bodies of at most `limit` bytes, and at most `budget` bytes of all unfinished large requests together.

    Whoever sends them is not known yet: without the budget a handful of strangers could fill the memory. Bodies of
    at most `small` bytes need none of it. When it is spent, the large body that got on longest ago has to go, so that
    those who stop half-way keep nobody out. One peer has at most `per_peer` large ones.
    """

    def __init__(
        self,
        *,
        limit: int = LIMIT,
        budget: int = 8 * LIMIT,
        small: int = SMALL,
        per_peer: int = 2,
        seconds: float = _SECONDS,
        peers: Peers | None = None,
    ) -> None:
        self.limit = limit
        self._budget = budget
        self._small = small
        self._per_peer = per_peer
        self._seconds = seconds
        self._peers = peers or Peers("")
        self._large: set[_Body] = set()

    async def read(self, request: Request) -> bytes | bytearray:
        """The body. Raises BodyError: 413, 408 when it is slow, 503 when too much is under way, 400 when cut off."""
        length = request.headers.get("content-length", "")
        if length.isdigit() and (len(length) > 12 or int(length) > self.limit):
            raise self._too_large()
        task = asyncio.current_task()
        assert task is not None  # noqa: S101
        loop = asyncio.get_running_loop()
        # What asyncio.timeout does, which Python 3.10 lacks.
        timer = loop.call_later(self._seconds, task.cancel, _SLOW)
        body = _Body(task, self._peers.of(request.scope.get("client")), loop.time())
        try:
            return await self._read(request, body)
        except asyncio.CancelledError as error:
            if error.args not in ((_SLOW,), (_BUSY,)):
                raise
            if sys.version_info >= (3, 11):
                task.uncancel()
            if error.args == (_BUSY,):
                raise self._busy() from None
            raise BodyError(408, f"The body did not arrive within {self._seconds:g} seconds.") from None
        finally:
            timer.cancel()
            self._large.discard(body)

    async def _read(self, request: Request, body: _Body) -> bytes | bytearray:
        first = b""
        rest = bytearray()
        try:
            async for chunk in request.stream():
                self._count(body, len(chunk))
                if not first:
                    first = chunk  # most bodies come in one piece and are not copied
                elif chunk:
                    rest += chunk if rest else first + chunk
        except ClientDisconnect:
            raise BodyError(400, "The connection closed before the whole body arrived.") from None
        return rest or first

    def _count(self, body: _Body, more: int) -> None:
        """Notes that this much more has come. Makes room for it, or raises BodyError."""
        body.taken += more
        if body.taken > self.limit:
            raise self._too_large()
        if body.taken <= self._small:
            return
        if body.taken - body.taken_then >= _STEP:
            body.at, body.taken_then = asyncio.get_running_loop().time(), body.taken
        self._large.add(body)
        while sum(other.taken for other in self._large) > self._budget:
            self._drop_slowest(self._large, body)
        if body.peer is not None:
            of_peer = {other for other in self._large if other.peer == body.peer}
            if len(of_peer) > self._per_peer:
                self._drop_slowest(of_peer, body)

    def _drop_slowest(self, among: set[_Body], ours: _Body) -> None:
        slowest = min(among, key=lambda body: body.at)
        if slowest is ours:
            raise self._busy()
        self._large.discard(slowest)
        slowest.task.cancel(_BUSY)

    def _busy(self) -> BodyError:
        return BodyError(503, "Too many large requests are under way. Try again in a minute.")

    def _too_large(self) -> BodyError:
        return BodyError(413, f"The body is larger than {self.limit} bytes.")
