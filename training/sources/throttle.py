"""The request policy of a client, and the transport that enforces it."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import Protocol

import httpx

from training.sources.base import QuotaError


class Clock(Protocol):
    """The time in seconds since the epoch; tests replace it, so that they need not wait."""

    def now(self) -> float: ...

    def sleep(self, seconds: float) -> None: ...


class SystemClock:
    def now(self) -> float:
        return time.time()

    def sleep(self, seconds: float) -> None:
        time.sleep(seconds)


def timestamp(clock: Clock) -> str:
    """The time in the format of `Document.fetched_at`."""
    return datetime.fromtimestamp(clock.now(), timezone.utc).isoformat(timespec="seconds")


@dataclass(frozen=True, slots=True)
class RequestPolicy:
    """Rate limits and bounds of a client. Times in seconds."""

    interval: float = 1.0  # least time between two requests to a host
    max_requests: int = 10_000  # of one client; cached answers do not count
    max_bytes: int = 8_000_000  # of one body, decoded
    attempts: int = 5
    max_wait: float = 900.0  # a longer wait ends the pull with QuotaError
    timeout: float = 30.0
    robots: bool = False  # for web pages; an API has terms of its own


class ThrottledTransport(httpx.BaseTransport):
    """Below the cache: only requests that are sent wait, count, and carry credentials, so that no cache file holds these."""

    def __init__(self, policy: RequestPolicy, clock: Clock, secrets: Mapping[str, Mapping[str, str]]) -> None:
        self._transport = httpx.HTTPTransport()
        self._policy = policy
        self._clock = clock
        self._secrets = secrets
        self.not_before: dict[str, float] = {}
        self.delays: dict[str, float] = {}
        self.sent = 0

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        host = request.url.netloc.decode()
        if self.sent >= self._policy.max_requests:
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
            delay = max(self._policy.interval, self.delays.get(host, 0.0))
            self.pause(host, delay)

    def pause(self, host: str, seconds: float) -> None:
        self.not_before[host] = max(self.not_before.get(host, 0.0), self._clock.now() + seconds)

    def close(self) -> None:
        self._transport.close()
