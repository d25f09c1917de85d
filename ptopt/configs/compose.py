"""From a stream of events to a tree of values. No recursion, and aliases share what they name: nothing is expanded."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from ptopt.configs.values import Entry, Mapping, Node, Plain, Scalar, Sequence

MOST_DEPTH = 64
MOST_VALUES = 50_000  # with each alias counted as what it stands for
_MERGE = "<<"


class RefusedError(ValueError):
    """The text is no configuration that can be read: the reason, and the offset where it shows."""

    def __init__(self, reason: str, offset: int | None = None) -> None:
        super().__init__(reason)
        self.reason = reason
        self.offset = offset


@dataclass(frozen=True, slots=True)
class Event:
    """`kind` is one of "[", "{", "end", "scalar", "alias"."""

    kind: str
    start: int
    end: int
    value: Plain = None
    text: str = ""
    anchor: str | None = None
    flow: bool = False


@dataclass(slots=True)
class _Open:
    """A list or mapping of which the end has not come yet."""

    event: Event
    nodes: list[Node] = field(default_factory=list)
    size: int = 1


def compose(events: Iterable[Event]) -> tuple[Node, ...]:
    """The documents of the stream, in order. Raises RefusedError."""
    roots: list[Node] = []
    stack: list[_Open] = []
    anchors: dict[str, Node | None] = {}  # None: what it names is still open
    total = 0
    for event in events:
        node: Node
        if event.kind in "[{":
            if len(stack) >= MOST_DEPTH:
                raise RefusedError(f"nested more than {MOST_DEPTH} levels deep", event.start)
            if event.anchor is not None:
                anchors[event.anchor] = None
            stack.append(_Open(event))
            continue
        if event.kind == "end":
            opened = stack.pop()
            node = _closed(opened, event.end)
            event = opened.event
        elif event.kind == "alias":
            known = anchors.get(event.text, _MERGE)
            if known is None or isinstance(known, str):
                raise RefusedError(
                    "an alias names " + ("nothing" if known else "the value it is part of"), event.start
                )
            node = known
        else:
            node = Scalar(event.start, event.end, event.value, event.text)
        if event.anchor is not None:
            anchors[event.anchor] = node
        if stack:
            stack[-1].nodes.append(node)
            stack[-1].size += node.size
            size = stack[-1].size
        else:
            roots.append(node)
            total += node.size
            size = total
        if size > MOST_VALUES:
            raise RefusedError(f"more than {MOST_VALUES:,} values, those of aliases counted", event.start)
    return tuple(roots)


def _closed(opened: _Open, end: int) -> Node:
    event, nodes = opened.event, opened.nodes
    if event.kind == "[":
        return Sequence(event.start, end, tuple(nodes), opened.size)
    entries: dict[str, Entry] = {}
    merged: list[Entry] = []
    for key, value in zip(nodes[::2], nodes[1::2], strict=True):
        if not isinstance(key, Scalar):
            raise RefusedError(
                "a key is a list or a mapping, as in a template that is not filled in", key.start
            )
        if key.text == _MERGE:
            merged += _merged(value)
        elif key.text in entries:
            raise RefusedError(f"the key {key.text[:40]} occurs twice", key.start)
        else:
            entries[key.text] = Entry(key, value)
    for entry in merged:  # what is written here wins, then what is merged first
        entries.setdefault(entry.key.text, entry)
    return Mapping(event.start, end, tuple(entries.values()), opened.size, event.flow)


def _merged(value: Node) -> list[Entry]:
    sources = value.items if isinstance(value, Sequence) else (value,)
    found = []
    for source in sources:
        if not isinstance(source, Mapping):
            raise RefusedError("what is merged with << is no mapping", source.start)
        found += [Entry(entry.key, entry.value, merged=True) for entry in source.entries]
    return found
