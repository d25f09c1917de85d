"""A recorded run as columns: millions of events in little memory, whatever format they came in.

Times are in microseconds from an origin that the whole trace shares.
"""

from __future__ import annotations

import enum
import re
from array import array
from collections.abc import Sequence
from dataclasses import dataclass, field

MOST_NAMES = 200_000
LONGEST_NAME = 400
MOST_LANES = 4096
MOST_EVENTS = 20_000_000
_ADDRESS = re.compile(r" at 0x[0-9a-fA-F]+")
_OTHER = "(further names)"


class Kind(enum.IntEnum):
    """What an event is: the first four ran on the host, the others on a device."""

    OPERATOR = 0
    ANNOTATION = 1
    PYTHON = 2
    RUNTIME = 3
    KERNEL = 4
    COPY = 5
    FILL = 6


class ProfileError(Exception):
    """The file is not what `ptopt profile` reads; the text says why."""


class Names:
    """Each name once. Addresses in names are dropped: they would make each call a name of its own."""

    def __init__(self) -> None:
        self.texts: list[str] = []
        self._ids: dict[str, int] = {}

    def __call__(self, text: str) -> int:
        known = self._ids.get(text)
        return self._add(text) if known is None else known

    def _add(self, text: str) -> int:
        name = _ADDRESS.sub("", text[:LONGEST_NAME]) if " at 0x" in text else text[:LONGEST_NAME]
        if len(self.texts) >= MOST_NAMES and name not in self._ids:
            name = _OTHER
        number = self._ids.get(name)
        if number is None:
            number = self._ids[name] = len(self.texts)
            self.texts.append(name)
        return number


class Lane:
    """The events of one thread of the host, or of one stream of a device."""

    __slots__ = ("duration", "kind", "link", "name", "start")

    def __init__(self) -> None:
        self.start = array("d")
        self.duration = array("d")
        self.name = array("I")
        self.kind = array("B")
        # What a call of the runtime and the device work that it starts share; of operators the number of the node of autograd
        # that the forward pass makes and the backward pass runs, plus 1. 0: nothing.
        self.link = array("q")

    def __len__(self) -> int:
        return len(self.start)

    def add(self, kind: Kind, name: int, start: float, duration: float, link: int = 0) -> None:
        self.start.append(start)
        self.duration.append(duration)
        self.name.append(name)
        self.kind.append(kind)
        self.link.append(link)

    def order(self, kinds: frozenset[Kind]) -> Sequence[int]:
        """The indices of the events of these kinds by start; of events that start together, the longest first."""
        start, duration, kind = self.start, self.duration, self.kind
        found = [i for i in range(len(start)) if kind[i] in kinds]
        found.sort(key=start.__getitem__)
        at = 0
        while at + 1 < len(found):  # ties are rare: a sort by several keys would double the time
            until = at + 1
            while until < len(found) and start[found[until]] == start[found[at]]:
                until += 1
            if until - at > 1:
                found[at:until] = sorted(
                    found[at:until], key=lambda i: (-duration[i], kind[i] == Kind.RUNTIME)
                )
            at = until
        return found


@dataclass
class Trace:
    """One recorded process. Lanes are keyed by (process, thread) and by (device, stream)."""

    origin: str  # "torch.profiler" | "Nsight Systems"
    names: Names = field(default_factory=Names)
    threads: dict[tuple[str, str], Lane] = field(default_factory=dict)
    streams: dict[tuple[str, str], Lane] = field(default_factory=dict)
    copied: dict[int, int] = field(default_factory=dict)  # link of a copy -> bytes
    devices: tuple[str, ...] = ()
    rank: int | None = None
    ranks: int | None = None
    events: int = 0
    skipped: int = 0  # events that could not be read
    cut: str = ""  # why the trace is not whole; "" when it is
    has_stacks: bool = False

    def thread(self, process: object, thread: object) -> Lane:
        return _lane(self.threads, process, thread)

    def stream(self, device: object, stream: object) -> Lane:
        return _lane(self.streams, device, stream)


def _lane(lanes: dict[tuple[str, str], Lane], first: object, second: object) -> Lane:
    key = (str(first)[:64], str(second)[:64])
    lane = lanes.get(key)
    if lane is None:
        if len(lanes) >= MOST_LANES:
            raise ProfileError(f"the trace names more than {MOST_LANES:,} threads or streams")
        lane = lanes[key] = Lane()
    return lane
