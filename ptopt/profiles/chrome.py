"""Chrome traces of torch.profiler (Kineto), as JSON or gz."""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Mapping
from io import BufferedIOBase, BufferedReader
from typing import Any

from ptopt.profiles.stream import EventStream
from ptopt.profiles.trace import MOST_EVENTS, Kind, ProfileError, Trace

_KINDS: Mapping[str, Kind] = {
    "cpu_op": Kind.OPERATOR,
    "operator": Kind.OPERATOR,  # as torch 1.8 to 1.11 wrote it, and so the others in one word
    "user_annotation": Kind.ANNOTATION,
    "python_function": Kind.PYTHON,
    "cuda_runtime": Kind.RUNTIME,
    "cuda_driver": Kind.RUNTIME,
    "runtime": Kind.RUNTIME,
    "xpu_runtime": Kind.RUNTIME,
    "kernel": Kind.KERNEL,
    "gpu_memcpy": Kind.COPY,
    "memcpy": Kind.COPY,
    "gpu_memset": Kind.FILL,
    "memset": Kind.FILL,
}  # fmt: skip
_LATEST = (
    1e17  # microseconds since 1970, with room: torch has counted from there and from the start of the machine
)
_LARGEST = 2**63 - 1


def read_chrome(file: BufferedReader) -> Trace:
    """The trace in `file`, a buffered one. Raises ProfileError where there is none."""
    if file.peek(2)[:2] == b"\x1f\x8b":
        return _read(gzip.GzipFile(fileobj=file))
    return _read(file)


def _read(file: BufferedIOBase) -> Trace:
    trace = Trace("torch.profiler")
    stream = EventStream(file)
    try:
        for events in stream:
            _take(trace, events)
            if trace.events >= MOST_EVENTS:
                trace.cut = f"only its first {MOST_EVENTS:,} events were read"
                break
    except (OSError, zlib.error) as error:
        raise ProfileError(f"the file cannot be decompressed: {error}") from None
    trace.skipped += stream.skipped
    if stream.truncated:
        trace.cut = "the file ends in the middle"
    if not trace.events:
        raise ProfileError("the trace has no events of operators or kernels")
    _describe(trace, stream.about)
    return trace


def _take(trace: Trace, events: list[Any]) -> None:
    names = trace.names
    lanes: dict[tuple[object, object, bool], Any] = {}
    taken = 0
    for event in events:
        try:
            if event.get("ph") != "X":
                continue
            category = event.get("cat")
            kind = _KINDS.get(category)
            if kind is None:
                kind = _KINDS.get(str(category).lower())
                if kind is None:
                    continue
            start, duration = float(event["ts"]), float(event.get("dur", 0.0))
            if not (0 <= start < _LATEST and 0 <= duration < _LATEST):
                raise ValueError
            device = kind >= Kind.KERNEL
            link = 0
            if kind >= Kind.RUNTIME:
                args = event.get("args") or {}
                link = int(args.get("correlation", args.get("External id", 0))) & _LARGEST
                if device:
                    place = (args.get("device", event.get("pid")), args.get("stream", event.get("tid")), True)
                    if kind is Kind.COPY:
                        trace.copied[link] = max(0, int(args.get("bytes", 0)))
                else:
                    place = (event.get("pid"), event.get("tid"), False)
            else:
                place = (event.get("pid"), event.get("tid"), False)
                if kind is Kind.OPERATOR:
                    node = (event.get("args") or {}).get("Sequence number")
                    link = 0 if node is None else (int(node) + 1) & _LARGEST
            lane = lanes.get(place)
            if lane is None:
                lane = trace.stream(*place[:2]) if device else trace.thread(*place[:2])
                lanes[place] = lane
            lane.add(kind, names(event["name"]), start, duration, link)
            taken += 1
            if kind is Kind.PYTHON:
                trace.has_stacks = True
        except (KeyError, TypeError, ValueError, AttributeError, OverflowError):
            trace.skipped += 1
    trace.events += taken


def _describe(trace: Trace, about: Mapping[str, Any]) -> None:
    devices = about.get("deviceProperties")
    if isinstance(devices, list):
        found = [d.get("name") for d in devices[:64] if isinstance(d, dict)]
        trace.devices = tuple(str(name)[:100] for name in found if name)
    spread = about.get("distributedInfo")
    if isinstance(spread, dict):
        rank, ranks = spread.get("rank"), spread.get("world_size")
        trace.rank = rank if isinstance(rank, int) else None
        trace.ranks = ranks if isinstance(ranks, int) else None
