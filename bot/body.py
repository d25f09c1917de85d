"""Reads the body of a request without trusting its Content-Length."""

from __future__ import annotations

import asyncio
import sys

from starlette.requests import ClientDisconnect, Request

LIMIT = 25 * 1024 * 1024  # GitHub's own; larger deliveries are never made
_SECONDS = 20.0  # GitHub gives up after 10 (30 on Enterprise Server)
_SLOW = "the body is slow"


class BodyError(Exception):
    """The body is not taken. `status` and `detail` are for the answer."""

    def __init__(self, status: int, detail: str) -> None:
        super().__init__(detail)
        self.status = status
        self.detail = detail


class BodyReader:
    """Reads bodies of at most `limit` bytes, and at most `budget` bytes of all unfinished requests together.

    Whoever sends them is not known yet: without the budget a handful of strangers could fill the memory.
    """

    def __init__(self, *, limit: int = LIMIT, budget: int = 8 * LIMIT, seconds: float = _SECONDS) -> None:
        self.limit = limit
        self._free = budget
        self._seconds = seconds

    async def read(self, request: Request) -> bytes | bytearray:
        """The body. Raises BodyError: 413, 408 when it is slow, 503 when too much is under way, 400 when cut off."""
        length = request.headers.get("content-length", "")
        if length.isdigit() and (len(length) > 12 or int(length) > self.limit):
            raise self._too_large()
        task = asyncio.current_task()
        assert task is not None  # noqa: S101
        # What asyncio.timeout does, which Python 3.10 lacks.
        timer = asyncio.get_running_loop().call_later(self._seconds, task.cancel, _SLOW)
        try:
            return await self._read(request)
        except asyncio.CancelledError as error:
            if error.args != (_SLOW,):
                raise
            if sys.version_info >= (3, 11):
                task.uncancel()
            raise BodyError(408, f"The body did not arrive within {self._seconds:g} seconds.") from None
        finally:
            timer.cancel()

    async def _read(self, request: Request) -> bytes | bytearray:
        first = b""
        rest = bytearray()
        taken = 0
        try:
            async for chunk in request.stream():
                taken += len(chunk)
                self._free -= len(chunk)
                if taken > self.limit:
                    raise self._too_large()
                if self._free < 0:
                    raise BodyError(503, "Too many large requests are under way. Try again in a minute.")
                if not first:
                    first = chunk  # most bodies come in one piece and are not copied
                elif chunk:
                    rest += chunk if rest else first + chunk
        except ClientDisconnect:
            raise BodyError(400, "The connection closed before the whole body arrived.") from None
        finally:
            self._free += taken
        return rest or first

    def _too_large(self) -> BodyError:
        return BodyError(413, f"The body is larger than {self.limit} bytes.")
