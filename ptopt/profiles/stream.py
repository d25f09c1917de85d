"""Events of a Chrome trace, one part of the file at a time, so that gigabytes need little memory.

A part of the array of events that ends in `}` and parses is a list of whole events: JSON has one reading. So a cut is guessed
from the back and checked by the parser; where no guess holds, braces are counted.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from io import BufferedIOBase
from typing import Any

from ptopt.profiles.trace import ProfileError

PART = 4 << 20
LARGEST_EVENT = 64 << 20
LARGEST_HEAD = 64 << 20
_START = re.compile(rb'"traceEvents"\s*:\s*\[')
_TOKEN = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"|[]["{}]', re.S)
_GUESSES = 4


class EventStream:
    """Iterate for lists of events. Afterwards `about` has what the file says of itself, `skipped` how many events cannot
    be parsed, and `truncated` whether the file ends in the middle.
    """

    def __init__(self, file: BufferedIOBase) -> None:
        self._file = file
        self.about: dict[str, Any] = {}
        self.skipped = 0
        self.truncated = False

    def __iter__(self) -> Iterator[list[Any]]:
        rest = self._head()
        while True:
            more = self._read()
            if not more:
                yield from self._last(rest)
                return
            rest += more
            if len(rest) < PART:
                continue
            events, used, ended = self._whole_events(rest)
            yield events
            if ended:
                self._about(rest[used:] + self._file.read(LARGEST_HEAD))
                return
            rest = rest[used:]
            if len(rest) > LARGEST_EVENT:
                raise ProfileError(f"one event is larger than {LARGEST_EVENT >> 20} MB")

    def _read(self) -> bytes:
        """The next part; empty at the end."""
        pieces, left = [], PART
        try:
            while left and (piece := self._file.read1(left)):
                pieces.append(piece)
                left -= len(piece)
        except EOFError:  # of a gz file that ends too early: what came before it counts
            self.truncated = True
        return b"".join(pieces)

    def _head(self) -> bytes:
        """What follows the `[` of the events."""
        head = self._read()
        if head.lstrip(b"\xef\xbb\xbf \t\r\n").startswith(b"["):
            return head[head.index(b"[") + 1 :]
        while (found := _START.search(head)) is None:
            more = self._read()
            if not more or len(head) > LARGEST_HEAD:
                raise ProfileError("no `traceEvents`: this is not a trace of torch.profiler")
            head += more
        self._about(b"{" + head[: found.start()].strip().lstrip(b"{").rstrip(b",") + b"}")
        return head[found.end() :]

    def _about(self, text: bytes) -> None:
        """Keeps the fields around the events; a trace is read without them, too."""
        start = text.find(b"{") if text.startswith(b"{") else -1
        whole = text if start == 0 else b"{" + text.lstrip(b"] \t\r\n").lstrip(b",")
        fields = _parsed(whole)
        if isinstance(fields, dict):
            self.about.update(fields)

    def _whole_events(self, part: bytes) -> tuple[list[Any], int, bool]:
        """The events at the start of `part`, the bytes that they take, and whether the array ends there."""
        end = len(part)
        for _ in range(_GUESSES):
            end = part.rfind(b"},", 0, end)
            if end < 0:
                break
            events = _parsed(b"[" + part[: end + 1].lstrip(b", \t\r\n") + b"]")
            if isinstance(events, list):
                return events, end + 1, False
        return self._counted(part)

    def _last(self, rest: bytes) -> Iterator[list[Any]]:
        end = rest.rfind(b"]")
        events, used, ended = self._counted(rest) if end < 0 else ([], 0, False)
        if end >= 0:
            text = _text(b"[" + rest.lstrip(b", \t\r\n"))
            try:
                events, used = json.JSONDecoder().raw_decode(text)
                self._about(text[used:].encode())
                ended = True
            except (ValueError, RecursionError):
                events, used, ended = self._counted(rest)
                if ended:
                    self._about(rest[used:])
        self.truncated = self.truncated or not ended
        yield events

    def _counted(self, part: bytes) -> tuple[list[Any], int, bool]:
        """As `_whole_events`, by counting braces; an event that does not parse is skipped."""
        events: list[Any] = []
        depth = start = used = 0
        for token in _TOKEN.finditer(part):
            sign = token[0]
            if sign == b'"':  # a string whose end is in the next part
                break
            if sign in (b"{", b"["):
                if not depth:
                    start = token.start()
                depth += 1
            elif sign in (b"}", b"]"):
                if not depth:
                    return events, token.start(), True
                depth -= 1
                if not depth:
                    used = token.end()
                    event = _parsed(part[start:used])
                    if isinstance(event, dict):
                        events.append(event)
                    else:
                        self.skipped += 1
        return events, used, False


def _parsed(text: bytes) -> Any:
    try:
        return json.loads(_text(text))
    except (ValueError, RecursionError):
        return None


def _text(data: bytes) -> str:
    return data.decode("utf-8", "replace")
