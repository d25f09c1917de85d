"""The interface of a source of training data, and the documents that it yields."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Literal, Protocol

# A JSON object that says where to go on. Only the source that made it reads it.
Cursor = Mapping[str, Any]

MAX_TEXT = 400_000  # characters of the text, and of a block, of a document

_UNWANTED = re.compile("[\x00-\x08\x0b-\x1f\x7f\ud800-\udfff\u202a-\u202e\u2066-\u2069]")


class SourceError(Exception):
    """A pull cannot go on. The text is for the operator: what is wrong, where, what to do."""


class QuotaError(SourceError):
    """A limit is reached, the host's or ours: what was pulled is kept, and a later pull resumes there."""


class UnusableError(SourceError):
    """One answer cannot be used (too large, not JSON, refused, gone); the pull goes on with the next."""

    def __init__(self, message: str, status: int | None = None) -> None:
        super().__init__(message)
        self.status = status


def clean(text: str, limit: int = MAX_TEXT) -> str:
    """Text without lone surrogates, control and direction characters, with LF line ends, cut to `limit`."""
    text = text[:limit].replace("\r\n", "\n").replace("\r", "\n")
    return _UNWANTED.sub("\N{REPLACEMENT CHARACTER}", text)


Role = Literal["question", "answer", "page", "file", "before", "after", "slow", "fast", "tuned"]
"""What the source knows of a block. "tuned" is code that looks like the problem and is right."""


@dataclass(frozen=True, slots=True)
class Block:
    """One piece of code of a document.

    Blocks that form a pair have the same `pair` number, from 1; 0 is no pair. `licence` and `author` are empty where
    they are the document's.
    """

    code: str
    role: Role
    pair: int = 0
    path: str = ""
    symbol: str = ""  # qualified name of the function or class, where the block is one
    context: str = ""  # what makes such a block a file when it stands above it: imports, the class line
    url: str = ""
    author: str = ""
    licence: str = ""
    rules: tuple[str, ...] = ()  # whose finding a commit removed, or that a teacher wrote the block for


@dataclass(frozen=True, slots=True)
class Document:
    """One thread, page, commit, file or label, with its licence and its attribution.

    `id` is unique within a source. `licence` is an SPDX expression; a `LicenseRef-…` names terms that are not a licence.
    `train` says whether the licence gate lets it into training data.
    """

    source: str  # the source's name
    id: str
    url: str
    project: str
    text: str
    blocks: tuple[Block, ...]
    licence: str
    train: bool
    fetched_at: str  # ISO 8601, UTC
    provenance: str  # where it came from, to the version: url, package==version:path, repository@commit
    author: str = ""
    raw: Mapping[str, Any] = field(default_factory=dict)

    def to_json(self) -> str:
        return json.dumps(asdict(self), sort_keys=True, separators=(",", ":"))

    @classmethod
    def from_json(cls, text: str) -> Document:
        values = json.loads(text)
        blocks = tuple(Block(**{**block, "rules": tuple(block["rules"])}) for block in values["blocks"])
        return cls(**{**values, "blocks": blocks})


@dataclass(frozen=True, slots=True)
class Page:
    """The documents of one step of a pull, and where the next one starts: both are stored in one transaction.

    `notes` name what was left out, and why, for the operator.
    """

    documents: tuple[Document, ...]
    cursor: Cursor
    notes: tuple[str, ...] = ()


class Source(Protocol):
    """A place that training data comes from.

    `pull` goes on from `cursor` (None: from the start), and stops after the page that brings the number of documents to
    `limit`, or at the end. It raises QuotaError when a limit is reached, and SourceError when it cannot go on; pages that it
    yielded before remain good.
    """

    name: str

    def pull(self, cursor: Cursor | None, limit: int) -> Iterator[Page]: ...
