"""Time, manners, and the transport that waits."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import Protocol

import httpx

from training.sources.base import QuotaError


class Clock(Protocol):
    """Time, so that tests need not wait. Seconds since the epoch."""

    def now(self) -> float: ...

    def sleep(self, seconds: float) -> None: ...


class SystemClock:
    def now(self) -> float:
        return time.time()

    def sleep(self, seconds: float) -> None:
        time.sleep(seconds)


def stamp(clock: Clock) -> str:
    """The time, as documents hold it."""
    return datetime.fromtimestamp(clock.now(), timezone.utc).isoformat(timespec="seconds")


@dataclass(frozen=True, slots=True)
class Manners:
    """How a client behaves. Times in seconds."""

    interval: float = 1.0  # at least so long between two requests to a host
    max_requests: int = 10_000  # of one client, answers from the cache not counted
    max_bytes: int = 8_000_000  # of one body, decoded
    attempts: int = 5
    max_wait: float = 900.0  # who is told to wait longer stops, and says when to come back
    timeout: float = 30.0
    robots: bool = False  # for web pages; an API has terms of its own


class Paced(httpx.BaseTransport):
    """Below the cache: only what is really sent waits, counts, and carries credentials, which so reach no cache file."""

    def __init__(self, manners: Manners, clock: Clock, secrets: Mapping[str, Mapping[str, str]]) -> None:
        self._transport = httpx.HTTPTransport()
        self._manners = manners
        self._clock = clock
        self._secrets = secrets
        self.not_before: dict[str, float] = {}
        self.delays: dict[str, float] = {}
        self.sent = 0

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        host = request.url.netloc.decode()
        if self.sent >= self._manners.max_requests:
            raise QuotaError(f"{self.sent} requests were sent, the limit of this pull; pull again to go on")
        wait = self.not_before.get(host, 0.0) - self._clock.now()
        if wait > 0:
            self._clock.sleep(wait)
        self.sent += 1
        for name, value in self._secrets.get(host, {}).items():
            request.headers[name] = value
        try:
            return self._transport.handle_request(request)
        finally:
            delay = max(self._manners.interval, self.delays.get(host, 0.0))
            self.hold(host, delay)

    def hold(self, host: str, seconds: float) -> None:
        self.not_before[host] = max(self.not_before.get(host, 0.0), self._clock.now() + seconds)

    def close(self) -> None:
        self._transport.close()
