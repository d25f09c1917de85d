"""Sends requests over connections that stay open, one after the other on each, and takes the time of each answer.

httpx needs longer for a request than the receivers do; this needs a fraction.
"""

from __future__ import annotations

import asyncio
import copy
import hashlib
import hmac
import json
import time
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from fake_github.descriptions import webhooks

PATH = "/webhooks/github"


@dataclass(frozen=True)
class Block:
    """What sending some requests gave."""

    rate: float  # answers a second
    seconds: list[float]  # from sending a request to the end of its answer, of each


def recorded(action: str) -> dict[str, Any]:
    """GitHub's own recording of a `pull_request` delivery to an App."""
    return copy.deepcopy(
        next(p for p in webhooks()["pull_request"] if p["action"] == action and "installation" in p)
    )


def headers(secret: str, event: str, body: bytes) -> dict[str, str]:
    """The headers that GitHub sends, with a delivery id of its own."""
    return {
        "Content-Type": "application/json",
        "X-GitHub-Event": event,
        "X-GitHub-Delivery": str(uuid.uuid4()),
        "X-Hub-Signature-256": "sha256=" + hmac.new(secret.encode(), body, hashlib.sha256).hexdigest(),
    }


def requests(secret: str, number: int) -> list[bytes]:
    """`number` pushes to 100 pull requests, each to another head."""
    payload = recorded("synchronize")
    made = []
    for at in range(number):
        payload["number"] = payload["pull_request"]["number"] = 1 + at % 100
        payload["pull_request"]["head"]["sha"] = uuid.uuid4().hex + "00000000"
        body = json.dumps(payload).encode()
        said = {"Host": "localhost", "Content-Length": str(len(body))} | headers(secret, "pull_request", body)
        head = f"POST {PATH} HTTP/1.1\r\n" + "".join(f"{name}: {value}\r\n" for name, value in said.items())
        made.append(head.encode() + b"\r\n" + body)
    return made


def send(port: int, requests: list[bytes], connections: int) -> Block:
    """Send all of them, and wait for the answers. Raises RuntimeError for an answer that is not 202."""
    return asyncio.run(_send(port, requests, connections))


async def _send(port: int, requests: list[bytes], connections: int) -> Block:
    loop = asyncio.get_running_loop()
    waiting = iter(requests)
    seconds: list[float] = []
    made = [_Connection(waiting, seconds, loop.create_future()) for _ in range(connections)]
    for connection in made:
        await loop.create_connection(lambda one=connection: one, "127.0.0.1", port)  # type: ignore[misc]
    start = time.perf_counter()
    for connection in made:
        connection.next()
    ends = await asyncio.gather(*(connection.end for connection in made), return_exceptions=True)
    took = time.perf_counter() - start
    await asyncio.sleep(0)  # the last connections close
    for error in filter(None, ends):
        raise error
    return Block(len(seconds) / took, seconds)


class _Connection(asyncio.Protocol):
    def __init__(self, waiting: Iterator[bytes], seconds: list[float], end: asyncio.Future[None]) -> None:
        self._waiting = waiting
        self._seconds = seconds
        self.end = end
        self._answer = b""
        self._sent = 0.0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def next(self) -> None:
        request = next(self._waiting, None)
        if request is None:
            self.end.set_result(None)
            self._transport.close()
            return
        self._sent = time.perf_counter()
        self._transport.write(request)

    def data_received(self, data: bytes) -> None:
        self._answer += data
        head, found, body = self._answer.partition(b"\r\n\r\n")
        if not found:
            return
        length = head.lower().partition(b"\r\ncontent-length:")[2].partition(b"\r\n")[0]
        if len(body) < int(length or 0):
            return
        if not head.startswith(b"HTTP/1.1 202"):
            self._fail(f"an answer that was not expected: {self._answer[:500]!r}")
            return
        self._seconds.append(time.perf_counter() - self._sent)
        self._answer = b""
        self.next()

    def connection_lost(self, error: Exception | None) -> None:
        self._fail("a connection ended before its answer came")

    def _fail(self, text: str) -> None:
        self._transport.abort()
        if not self.end.done():
            self.end.set_exception(RuntimeError(text))
