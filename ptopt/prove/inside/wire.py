"""Messages between the referee and a process: a JSON header and raw bytes. Nothing in them is code or a pickle."""

from __future__ import annotations

import json
import os
import select
import time
from collections.abc import Sequence
from typing import Any

HEADER = 1 << 20  # bytes of a header at most
PAYLOAD = 64 << 20  # bytes of all values at most

Message = tuple[dict[str, Any], list[bytes]]


class BrokenError(Exception):
    """The other side has ended, or sends what is no message."""


class LateError(Exception):
    """No whole message came in time."""


def packed(header: dict[str, Any], blobs: Sequence[bytes] = ()) -> bytes:
    head = json.dumps({**header, "sizes": [len(blob) for blob in blobs]}).encode()
    return b"".join([len(head).to_bytes(4, "big"), head, *blobs])


# -- in a process that runs the code -----------------------------------------------------------------------


def send(descriptor: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view) :]


def receive(descriptor: int) -> Message:
    head = json.loads(_exactly(descriptor, int.from_bytes(_exactly(descriptor, 4), "big")))
    return head, [_exactly(descriptor, size) for size in head["sizes"]]


def _exactly(descriptor: int, size: int) -> bytes:
    parts = []
    while size:
        part = os.read(descriptor, min(size, 1 << 20))
        if not part:
            raise BrokenError
        parts.append(part)
        size -= len(part)
    return b"".join(parts)


# -- in the referee: nothing is trusted, and nothing is waited for longer than until `end` -------------------


def send_until(descriptor: int, data: bytes, end: float) -> None:
    """Raises `LateError`, or `BrokenError`. The descriptor does not block."""
    view = memoryview(data)
    while view:
        _wait(descriptor, select.POLLOUT, end)
        try:
            view = view[os.write(descriptor, view) :]
        except BlockingIOError:
            continue
        except OSError:
            raise BrokenError from None


def receive_until(descriptor: int, end: float) -> Message:
    """Raises `LateError`, or `BrokenError`."""
    size = int.from_bytes(_read_until(descriptor, 4, end), "big")
    if size > HEADER:
        raise BrokenError
    try:
        head = json.loads(_read_until(descriptor, size, end))
        sizes = head["sizes"]
        good = isinstance(head, dict) and all(type(s) is int and 0 <= s <= PAYLOAD for s in sizes)
    except (ValueError, TypeError, KeyError, RecursionError):
        raise BrokenError from None
    if not good or sum(sizes) > PAYLOAD:
        raise BrokenError
    return head, [_read_until(descriptor, s, end) for s in sizes]


def _read_until(descriptor: int, size: int, end: float) -> bytes:
    parts = []
    while size:
        _wait(descriptor, select.POLLIN, end)
        try:
            part = os.read(descriptor, min(size, 1 << 20))
        except OSError:
            raise BrokenError from None
        if not part:
            raise BrokenError
        parts.append(part)
        size -= len(part)
    return b"".join(parts)


def _wait(descriptor: int, event: int, end: float) -> None:
    poll = select.poll()
    poll.register(descriptor, event)
    left = end - time.monotonic()
    if left <= 0 or not poll.poll(left * 1000):
        raise LateError
