"""Exports of Nsight Systems (`nsys export --type sqlite`): kernels, copies, calls of the runtime, and NVTX ranges.

`torch.autograd.profiler.emit_nvtx()` makes each operator a range; ranges of your own mark steps and parts of them.
"""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from ptopt.profiles.phases import STEP
from ptopt.profiles.trace import MOST_EVENTS, Kind, ProfileError, Trace

_LARGEST = 2**63 - 1
_COPY_KINDS: Mapping[int, str] = {
    1: "Memcpy HtoD", 2: "Memcpy DtoH", 3: "Memcpy HtoA", 4: "Memcpy AtoH", 8: "Memcpy DtoD", 9: "Memcpy HtoH", 10: "Memcpy PtoP",
}  # fmt: skip
_MEMORY: Mapping[int, str] = {0: "Pageable", 1: "Pinned", 2: "Device", 3: "Array", 4: "Managed"}
_VERSION = re.compile(r"_v\d+$|_ptsz$")
_STEP = re.compile(r"(?:training[ _]|train[ _])?(?:step|iter(?:ation)?|batch)[ _#:]*(\d+)", re.I)
_OPERATOR = re.compile(r"(?:aten|c10d|torch\w*|prims|autograd)::|\w+Backward\d*$")
_ON_DEVICE = ("start", "end", "deviceId", "streamId", "correlationId", "globalPid")
_RANGES = (59, 60)  # NvtxPushPopRange, NvtxStartEndRange


def read_nsys(path: Path) -> Trace:
    """The export at `path`, which is opened to be read only. Raises ProfileError where it is none."""
    try:
        link = sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro&immutable=1", uri=True)
    except sqlite3.Error as error:
        raise ProfileError(f"the database cannot be opened: {error}") from None
    try:
        link.execute("PRAGMA trusted_schema = OFF")
        link.text_factory = lambda data: data.decode("utf-8", "replace")
        return _Reader(link).read()
    except (sqlite3.Error, OverflowError, TypeError, ValueError) as error:
        raise ProfileError(f"not an export of Nsight Systems: {str(error)[:200]}") from None
    finally:
        link.close()


class _Reader:
    def __init__(self, link: sqlite3.Connection) -> None:
        self._link = link
        self._trace = Trace("Nsight Systems")
        kept = link.execute("SELECT name FROM sqlite_master WHERE type = 'table'")
        self._tables = {str(row[0]) for row in kept}

    def read(self) -> Trace:
        if "StringIds" not in self._tables:
            raise ProfileError("not an export of Nsight Systems: it has no table StringIds")
        self._ranges()
        self._runtime()
        self._kernels()
        self._copies()
        if "TARGET_INFO_GPU" in self._tables:
            self._trace.devices = tuple(str(row[0])[:100] for row in self._rows("TARGET_INFO_GPU", "name"))[
                :64
            ]
        if not self._trace.events:
            raise ProfileError("the export has no kernels, calls of the runtime or NVTX ranges")
        return self._trace

    def _rows(self, table: str, *columns: str, text: str = "") -> Iterator[tuple[Any, ...]]:
        """These columns of a table, 0 for those that this version of nsys has not; last the string that `text` refers to."""
        if table not in self._tables:
            return
        known = {str(row[1]) for row in self._link.execute(f"PRAGMA table_info({table})")}
        chosen = [f't."{name}"' if name in known else "0" for name in columns]
        joined = f"LEFT JOIN StringIds AS s ON s.id = t.{text}" if text in known else ""
        chosen += ["s.value"] if joined else ["NULL"] * bool(text)
        # Names of tables and columns are ours.
        yield from self._link.execute(f"SELECT {', '.join(chosen)} FROM {table} AS t {joined}")  # noqa: S608

    def _add(
        self, kind: Kind, place: tuple[object, object], name: str, start: int, end: int, link: int = 0
    ) -> None:
        if end is None or end < start or self._trace.events >= MOST_EVENTS:
            self._trace.skipped += 1
            return
        trace = self._trace
        lane = trace.stream(*place) if kind >= Kind.KERNEL else trace.thread(*place)
        lane.add(kind, trace.names(name), start / 1e3, (end - start) / 1e3, link & _LARGEST)
        trace.events += 1

    def _ranges(self) -> None:
        columns = ("start", "end", "globalTid", "eventType", "text")
        for start, end, thread, kind, own, shared in self._rows("NVTX_EVENTS", *columns, text="textId"):
            text = shared if own in (None, 0, "") else own
            if kind not in _RANGES or text is None:
                continue
            name = str(text).partition(", seq = ")[0].partition(", op_id = ")[0]
            step = _STEP.fullmatch(name.strip())
            if step is not None:
                name = f"{STEP}{step[1]}"
            operator = _OPERATOR.match(name) is not None
            self._add(Kind.OPERATOR if operator else Kind.ANNOTATION, _thread(thread), name, start, end)

    def _runtime(self) -> None:
        columns = ("start", "end", "globalTid", "correlationId")
        for start, end, thread, link, name in self._rows(
            "CUPTI_ACTIVITY_KIND_RUNTIME", *columns, text="nameId"
        ):
            call = _VERSION.sub("", str(name))
            self._add(Kind.RUNTIME, _thread(thread), call, start, end, _link(link, thread))

    def _kernels(self) -> None:
        for start, end, device, stream, link, process, name in self._rows(
            "CUPTI_ACTIVITY_KIND_KERNEL", *_ON_DEVICE, text="demangledName"
        ):
            self._add(Kind.KERNEL, (device, stream), str(name), start, end, _link(link, process))

    def _copies(self) -> None:
        columns = (*_ON_DEVICE, "bytes", "copyKind", "srcKind", "dstKind")
        for start, end, device, stream, link, process, size, kind, source, target in self._rows(
            "CUPTI_ACTIVITY_KIND_MEMCPY", *columns
        ):
            ends = f"{_MEMORY.get(source, 'Unknown')} -> {_MEMORY.get(target, 'Unknown')}"
            name = f"{_COPY_KINDS.get(kind, 'Memcpy')} ({ends})"
            self._trace.copied[_link(link, process)] = max(0, int(size or 0))
            self._add(Kind.COPY, (device, stream), name, start, end, _link(link, process))
        for start, end, device, stream, link, process in self._rows(
            "CUPTI_ACTIVITY_KIND_MEMSET", *_ON_DEVICE
        ):
            self._add(Kind.FILL, (device, stream), "Memset", start, end, _link(link, process))


def _thread(number: int) -> tuple[object, object]:
    """Process and thread: nsys packs both, and the machine, into one number."""
    return (number >> 24) & 0xFFFFFF, number & 0xFFFFFF


def _link(correlation: int, place: int) -> int:
    """Correlations count by process."""
    return (((place >> 24) & 0xFFFFFF) << 32 | (correlation & 0xFFFFFFFF)) & _LARGEST
