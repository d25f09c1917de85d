"""A process that runs one side, as the referee sees it."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Sequence
from typing import Any

from ptopt.prove.inside import child, wire
from ptopt.prove.inside.confine import end_with_parent

CALL = 3.0  # seconds of one call, or one block of calls, at most


class Process:
    """Forked from the referee, confined, and killed when it is closed."""

    def __init__(self, side: dict[str, Any], name: str) -> None:
        reading, self._to = os.pipe()
        self._from, writing = os.pipe()
        self._pid = os.fork()
        if self._pid == 0:
            try:
                end_with_parent(signal.SIGKILL)
                child.run(reading, writing, side, name)
            except BaseException:
                os._exit(1)
            os._exit(0)
        os.close(reading)
        os.close(writing)
        os.set_blocking(self._to, False)
        os.set_blocking(self._from, False)
        self._clock = (~self._pid << 3) | 2  # the kernel's id of the clock of its processor time

    def receive(self, seconds: float = CALL) -> wire.Message:
        return wire.receive_until(self._from, time.monotonic() + seconds)

    def send(self, header: dict[str, Any], blobs: Sequence[bytes] = ()) -> None:
        wire.send_until(self._to, wire.packed(header, blobs), time.monotonic() + CALL)

    def ask(self, header: dict[str, Any], blobs: Sequence[bytes] = ()) -> wire.Message:
        """Raises `wire.LateError` and `wire.BrokenError`."""
        self.send(header, blobs)
        return self.receive()

    def cpu(self) -> float:
        """Seconds of processor time that it has used, by the kernel's account."""
        try:
            return time.clock_gettime(self._clock)
        except OSError:
            raise wire.BrokenError from None

    def close(self) -> None:
        os.kill(self._pid, signal.SIGKILL)
        os.waitpid(self._pid, 0)
        os.close(self._to)
        os.close(self._from)

    def __enter__(self) -> Process:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
