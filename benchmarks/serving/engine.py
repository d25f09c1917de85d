"""A model server's engine without a model: continuous batching with the latency of a GPU, which is slept.

Each step decodes a token of every running request and reads prompts with what is left of its token budget, so that a long
prompt is read in parts beside the others. What an earlier prompt began with is cached in blocks, as vLLM does.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from dataclasses import dataclass, field

CHARACTERS = 4  # a token, about
_BLOCK = 64  # characters


@dataclass(frozen=True, slots=True)
class Speed:
    """Of the device that is simulated."""

    tokens_per_s: float  # prompts
    step_ms: float  # each step, beside the tokens that it reads
    slots: int  # requests that run at once
    budget: int  # tokens of a step


@dataclass(slots=True)
class _Request:
    to_read: int
    to_write: int
    done: asyncio.Event = field(default_factory=asyncio.Event)


class Engine:
    """`serve` requests; `run` is its loop."""

    def __init__(self, speed: Speed) -> None:
        self._speed = speed
        self._waiting: deque[_Request] = deque()
        self._running: list[_Request] = []
        self._work = asyncio.Event()
        self._cached: set[int] = set()
        self.busy = 0.0  # seconds in which the device computed
        self.most = 0  # requests under way at once
        self.answered = 0

    async def serve(self, text: str, to_write: int) -> None:
        """Returns when so many tokens have been written after the text."""
        request = _Request(max(1, self._uncached(text) // CHARACTERS), to_write)
        self._waiting.append(request)
        self.most = max(self.most, len(self._waiting) + len(self._running))
        self._work.set()
        await request.done.wait()
        self.answered += 1

    async def run(self) -> None:
        free_at = time.perf_counter()
        while True:
            if not self._waiting and not self._running:
                self._work.clear()
                await self._work.wait()
                free_at = time.perf_counter()
            seconds = self._step()
            self.busy += seconds
            free_at += seconds
            late = time.perf_counter() - free_at
            if late < 0:
                await asyncio.sleep(-late)
            else:  # this process, not the device, was slow
                await asyncio.sleep(0)
                free_at = time.perf_counter()
            for request in self._running:
                if not request.to_read:
                    request.to_write -= 1
                    if not request.to_write:
                        request.done.set()
            self._running = [request for request in self._running if request.to_write]

    def _step(self) -> float:
        """Admit and read what fits; returns the seconds that this takes."""
        speed = self._speed
        while self._waiting and len(self._running) < speed.slots:
            self._running.append(self._waiting.popleft())
        left = speed.budget - sum(not request.to_read for request in self._running)
        for request in self._running:
            part = min(request.to_read, max(left, 0))
            request.to_read -= part
            left -= part
        return speed.step_ms / 1e3 + (speed.budget - left) / speed.tokens_per_s

    def _uncached(self, text: str) -> int:
        """Characters of the text that no earlier one began with; they are cached from now on."""
        key, known = 0, 0
        for at in range(0, len(text) - _BLOCK + 1, _BLOCK):
            key = hash((key, text[at : at + _BLOCK]))
            if key in self._cached:
                known = at + _BLOCK
            else:
                self._cached.add(key)
        return len(text) - known
