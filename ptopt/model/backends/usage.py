"""The tokens that a server says it read and wrote: what a hosted model is paid by."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from typing import Any


@dataclass(slots=True)
class Usage:
    """Counts of answers; safe to share between threads. `uncounted`: answers in which the server named no tokens."""

    requests: int = 0
    read: int = 0
    written: int = 0
    uncounted: int = 0
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False)

    def count(self, usage: Any) -> None:
        """What an answer has in its field `usage`."""
        numbers = [usage.get(name) if isinstance(usage, dict) else None for name in _FIELDS]
        known = [n if isinstance(n, int) and 0 <= n < 10**9 else None for n in numbers]
        with self._lock:
            self.requests += 1
            if known[0] is None or known[1] is None:
                self.uncounted += 1
            else:
                self.read += known[0]
                self.written += known[1]

    def snapshot(self) -> tuple[int, int, int]:
        """Requests, tokens read, tokens written."""
        with self._lock:
            return self.requests, self.read, self.written


_FIELDS = ("prompt_tokens", "completion_tokens")
