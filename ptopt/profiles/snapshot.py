"""Memory snapshots of the CUDA allocator (`torch.cuda.memory._dump_snapshot`): how much is in use, and which lines hold it.

They are pickles, which can run code when they are read: this reader makes builtin containers, strings and numbers, and nothing else.
"""

from __future__ import annotations

import pickle
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from io import BufferedReader
from typing import Any, TypeAlias

from ptopt.pathkind import PYTHON
from ptopt.profiles.frames import Frame, Place, is_library
from ptopt.profiles.trace import ProfileError

Blocks: TypeAlias = dict[int, tuple[int, Place | None]]  # address -> size, and the line that allocated it
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
    failures: int  # allocations that found no memory, in the history
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
    live: dict[int, Blocks] = defaultdict(dict)
    for segment in data["segments"]:
        reserved += int(segment["total_size"])
        address = int(segment.get("address", 0))
        for block in segment["blocks"]:
            size = int(block["size"])
            if block["state"] == "active_allocated":
                allocated += size
                place = _place(block.get("frames"))
                live[int(segment.get("device", 0))][int(block.get("address", address))] = (size, place)
            elif block["state"] == "inactive":
                free += size
                largest = max(largest, size)
            address += size
    peak, failures, recorded = 0, 0, False
    held: list[tuple[int, Place | None]] = []
    for device, trace in enumerate(data.get("device_traces") or []):
        failures += sum(entry["action"] == "oom" for entry in trace)
        steps = [entry for entry in trace if entry["action"] in ("alloc", "free_completed")]
        most, blocks = _at_peak(steps, live[device])
        peak += most
        held += blocks.values()
        recorded = recorded or bool(steps)
    holders = _holders(held if recorded else [block for blocks in live.values() for block in blocks.values()])
    return Memory(name, reserved, allocated, free, largest, peak if recorded else None, failures, holders)


def _at_peak(steps: list[Any], live: Blocks) -> tuple[int, Blocks]:
    """The most that was in use on a device, and by what. Read from the end, where `live` is what is in use."""
    now, peak = dict(live), sum(size for size, _ in live.values())
    total, moment = peak, len(steps)
    for index in range(len(steps) - 1, -1, -1):
        total += _undo(steps[index], now)
        if total > peak:
            peak, moment = total, index
    now = dict(live)
    for index in range(len(steps) - 1, moment - 1, -1):
        _undo(steps[index], now)
    for entry in steps[:moment]:  # what is freed later is known with its stack by its allocation only
        address = int(entry["addr"])
        if entry["action"] == "alloc" and address in now:
            now[address] = (now[address][0], _place(entry.get("frames")))
    return peak, now


def _undo(entry: Any, now: Blocks) -> int:
    """Takes an event back, and returns by how much that changes what is in use."""
    address = int(entry["addr"])
    if entry["action"] == "alloc":
        return -now.pop(address, (0, None))[0]
    now[address] = (int(entry["size"]), None)
    return now[address][0]


def _holders(blocks: list[tuple[int, Place | None]]) -> tuple[Holder, ...]:
    sums: dict[Place | None, list[int]] = defaultdict(lambda: [0, 0])
    for size, place in blocks:
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
        if path.endswith(PYTHON) or path.startswith("/tmp/ipykernel"):  # noqa: S108 - a name, not a file
            yield Frame(path, int(frame.get("line", 0)), str(frame.get("name", ""))[:200])
