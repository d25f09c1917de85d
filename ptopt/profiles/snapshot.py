"""Memory snapshots of the CUDA allocator (`torch.cuda.memory._dump_snapshot`): how much is in use, and which lines hold it.

They are pickles, which can run code when they are read: this reader makes builtin containers, strings and numbers, and nothing else.
"""

from __future__ import annotations

import pickle
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from io import BufferedReader
from typing import Any

from ptopt.profiles.frames import Frame, Place, is_library
from ptopt.profiles.trace import ProfileError

_LARGEST = 1 << 30
_MOST = 100


@dataclass(frozen=True, slots=True)
class Holder:
    """What one place in the code holds of the memory of the GPU."""

    place: Place | None  # None where no stack was recorded
    bytes: int
    blocks: int


@dataclass(frozen=True, slots=True)
class Memory:
    """The memory of the GPUs of one process, in bytes, at the time of the snapshot; the peak in the recorded history."""

    name: str
    reserved: int
    allocated: int
    free_in_segments: int  # reserved, and in pieces between what is used
    largest_free: int
    peak: int | None  # None: no history was recorded
    retries: int  # allocations that failed at first, in the history
    holders: tuple[Holder, ...]  # at the peak where there is a history, else now; largest first

    @property
    def fragmented(self) -> float:
        """Share of the reserved memory that is free and not in the largest piece."""
        return (self.free_in_segments - self.largest_free) / self.reserved if self.reserved else 0.0


class _Plain(pickle.Unpickler):
    """Refuses each name: no class, no function, hence no code."""

    def find_class(self, module_name: str, global_name: str) -> Any:
        raise pickle.UnpicklingError(f"it names {module_name}.{global_name}"[:200])

    def persistent_load(self, pid: Any) -> Any:
        raise pickle.UnpicklingError("it refers to something outside")


def read_snapshot(file: BufferedReader, name: str, size: int) -> Memory:
    """The snapshot in `file`, of `size` bytes. Raises ProfileError where it is none, or holds more than plain values."""
    if size > _LARGEST:
        raise ProfileError(f"a memory snapshot above {_LARGEST >> 20} MB")
    try:
        data = _Plain(file).load()
        return _memory(data, name)
    except ProfileError:
        raise
    except Exception as error:
        text = str(error)[:200] if isinstance(error, pickle.UnpicklingError) else type(error).__name__
        raise ProfileError(f"not a memory snapshot of torch: {text}") from None


def _memory(data: Any, name: str) -> Memory:
    if not isinstance(data, dict) or not isinstance(data.get("segments"), list):
        raise ProfileError("not a memory snapshot of torch: it has no segments")
    reserved = allocated = free = largest = 0
    live: dict[int, tuple[int, Place | None]] = {}
    for segment in data["segments"]:
        reserved += int(segment["total_size"])
        address = int(segment.get("address", 0))
        for block in segment["blocks"]:
            size = int(block["size"])
            if block["state"] == "active_allocated":
                allocated += int(block.get("requested_size", size))
                live[int(block.get("address", address))] = (size, _place(block.get("frames")))
            elif block["state"] == "inactive":
                free += size
                largest = max(largest, size)
            address += size
    peak, retries, at_peak = _history(data.get("device_traces") or [], live)
    return Memory(name, reserved, allocated, free, largest, peak, retries, _holders(at_peak or live))


def _history(
    traces: list[Any], live: dict[int, tuple[int, Place | None]]
) -> tuple[int | None, int, dict[int, tuple[int, Place | None]]]:
    """The most that was in use in the history, retries, and what was in use then. Read from its end, where `live` is known."""
    now = dict(live)
    total = sum(size for size, _ in now.values())
    peak, moment, retries, events = total, None, 0, 0
    steps = [entry for trace in traces for entry in trace]
    for index in range(len(steps) - 1, -1, -1):
        entry = steps[index]
        action, address = entry["action"], int(entry.get("addr", 0) or 0)
        if action == "alloc":
            events += 1
            total -= now.pop(address, (0, None))[0]
        elif action == "free_completed":
            events += 1
            size = int(entry["size"])
            now[address] = (size, _place(entry.get("frames")))
            total += size
            if total > peak:
                peak, moment = total, index
        elif action == "oom":
            retries += 1
    if not events:
        return None, retries, {}
    return peak, retries, _at(steps, live, moment) if moment is not None else dict(live)


def _at(
    steps: list[Any], live: dict[int, tuple[int, Place | None]], moment: int
) -> dict[int, tuple[int, Place | None]]:
    """What was in use before the event `moment`, with the stacks of the allocations where the history has them."""
    now = dict(live)
    for index in range(len(steps) - 1, moment - 1, -1):
        entry = steps[index]
        address = int(entry.get("addr", 0) or 0)
        if entry["action"] == "alloc":
            now.pop(address, None)
        elif entry["action"] == "free_completed":
            now[address] = (int(entry["size"]), None)
    for entry in steps[:moment]:
        address = int(entry.get("addr", 0) or 0)
        if entry["action"] == "alloc" and address in now:
            now[address] = (now[address][0], _place(entry.get("frames")))
    return now


def _holders(blocks: dict[int, tuple[int, Place | None]]) -> tuple[Holder, ...]:
    sums: dict[Place | None, list[int]] = defaultdict(lambda: [0, 0])
    for size, place in blocks.values():
        sums[place][0] += size
        sums[place][1] += 1
    found = [Holder(place, size, number) for place, (size, number) in sums.items()]
    return tuple(sorted(found, key=lambda holder: -holder.bytes)[:_MOST])


def _place(frames: Any) -> Place | None:
    """The innermost line of the user's code on a stack."""
    for frame in _python_frames(frames):
        if not is_library(frame.path):
            return Place(frame)
    return None


def _python_frames(frames: Any) -> Iterator[Frame]:
    for frame in frames if isinstance(frames, list) else ():
        path = str(frame.get("filename", ""))[:400]
        if path.endswith((".py", ".ipynb")) or path.startswith("/tmp/ipykernel"):  # noqa: S108 - a name, not a file
            yield Frame(path, int(frame.get("line", 0)), str(frame.get("name", ""))[:200])
