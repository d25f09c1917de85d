"""The most memory that the processes of a fleet have at once."""

from __future__ import annotations

import threading

from benchmarks.service.processes import memory
from tests.faults.fleet import Fleet


class PeakMemory:
    """Looks once a second within its `with` block; as text it says what it found."""

    def __init__(self, fleet: Fleet) -> None:
        self._fleet = fleet
        self._peak = self._processes = 0
        self._parts = ""
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._weigh, daemon=True)

    def __enter__(self) -> PeakMemory:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join(60)

    def __str__(self) -> str:
        return (
            f"{self._peak / 1e6:.0f} MB at most (proportional set size of {self._processes} processes: {self._parts}; "
            "without databases)"
        )

    def _weigh(self) -> None:
        while not self._over.wait(1.0):
            found = {process.name: memory(process.session) for process in self._fleet.processes}
            total = sum(sum(sizes) for sizes in found.values())
            if total > self._peak:
                self._peak, self._processes = total, sum(map(len, found.values()))
                self._parts = ", ".join(
                    f"{name} {max(sizes, default=0) / 1e6:.0f} + {(sum(sizes) - max(sizes, default=0)) / 1e6:.0f}"
                    for name, sizes in found.items()
                )
