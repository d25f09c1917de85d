"""Answers of servers, read with a limit."""

from __future__ import annotations

import math
import time

import httpx


class TooMuchError(Exception):
    """The body is above the limit."""


def read_bounded(response: httpx.Response, limit: int, *, until: float = math.inf) -> bytes:
    """The decoded body of a streamed response. TooMuchError above `limit` bytes.

    httpx.ReadTimeout after `until`, a time of `time.monotonic`: httpx bounds each wait, not their sum.
    """
    body = bytearray()
    for chunk in response.iter_bytes(2**16):
        body += chunk
        if len(body) > limit:
            raise TooMuchError
        if time.monotonic() > until:
            raise httpx.ReadTimeout("the whole answer takes too long")
    return bytes(body)
