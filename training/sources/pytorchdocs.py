"""PyTorch's documentation: the pages on performance, found through the inventory that Sphinx publishes (BSD-3-Clause)."""

from __future__ import annotations

import re
import zlib
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

from training.dataset import licences
from training.sources.base import Block, Cursor, Document, Page, UnusableError
from training.sources.html import extract
from training.sources.http import HttpClient
from training.sources.throttle import timestamp

SITES = ("https://docs.pytorch.org/docs/stable", "https://docs.pytorch.org/tutorials")
LICENCE = "BSD-3-Clause"  # of pytorch/pytorch and pytorch/tutorials, which the pages are built from
TOPICS = (
    r"tuning_guide|performance|amp|autocast|notes/(?:cuda|multiprocessing|gradcheck|autograd|broadcasting|numerical)|pin_?mem|"
    r"^data$|dataload|checkpoint|compile|dynamo|inductor|optim|channels_last|memory|profiler|foreach|benchmark|"
    r"scaled_dot_product|flash|flex|fsdp|ddp|distributed|cudagraph|inference|quantiz|zeroing|usb_|gpu|cuda"
)
_MAX_INVENTORY = 20_000_000  # bytes, inflated
_ENTRY = re.compile(r"(?P<name>.+?)\s+(?P<kind>[\w.\-]+:[\w.\-]+)\s+-?\d+\s+(?P<uri>\S*)\s+.*")


@dataclass(frozen=True, slots=True)
class Entry:
    """One object of an inventory; `uri` is relative to the site."""

    name: str
    kind: str  # "std:doc", "py:function", …
    uri: str


def read_inventory(data: bytes) -> tuple[str, list[Entry]]:
    """Version of the project, and its entries, from an `objects.inv` (version 2). Raises UnusableError."""
    head = data.split(b"\n", 4)
    if len(head) != 5 or not head[0].startswith(b"# Sphinx inventory version 2"):
        raise UnusableError("not a Sphinx inventory of version 2")
    version = head[2].decode("utf-8", "replace").removeprefix("# Version:").strip()
    inflater = zlib.decompressobj()
    try:
        text = inflater.decompress(head[4], _MAX_INVENTORY)
    except zlib.error as error:
        raise UnusableError(f"an inventory that does not inflate: {error}") from None
    if inflater.unconsumed_tail:
        raise UnusableError(f"an inventory that inflates to more than {_MAX_INVENTORY / 1e6:g} MB")
    entries = []
    for line in text.decode("utf-8", "replace").split("\n"):
        if match := _ENTRY.fullmatch(line):
            uri = match["uri"]
            entries.append(
                Entry(match["name"], match["kind"], uri[:-1] + match["name"] if uri.endswith("$") else uri)
            )
    return version, entries


class PyTorchDocs:
    """One document per page whose name matches `topics`. The cursor names the last page read of each site."""

    name = "docs"

    def __init__(
        self,
        client: HttpClient,
        *,
        sites: Sequence[str] = SITES,
        topics: str = TOPICS,
        opted_in: Collection[str] = (),
    ) -> None:
        self._client = client
        self._sites = sites
        self._topics = re.compile(topics)
        self._verdict = licences.gate(LICENCE, opted_in)

    def pull(self, cursor: Cursor | None, limit: int) -> Iterator[Page]:
        done: dict[str, str] = dict(cursor or {})
        number = 0
        for site in self._sites:
            version, entries = read_inventory(self._client.get(f"{site}/objects.inv").body)
            pages = sorted(
                {
                    e.uri.partition("#")[0]
                    for e in entries
                    if e.kind == "std:doc" and self._topics.search(e.name)
                }
            )
            for page in pages:
                if number >= limit:
                    return
                if page <= done.get(site, ""):
                    continue
                try:
                    found = [self._document(site, page, version)]
                    notes: tuple[str, ...] = ()
                except UnusableError as error:
                    found, notes = [], (str(error),)
                number += len(found)
                done[site] = page
                yield Page(tuple(found), dict(done), notes)

    def _document(self, site: str, page: str, version: str) -> Document:
        url = f"{site}/{page}"
        read = extract(self._client.get(url).text, only="article")
        return Document(
            source=self.name,
            id=url,
            url=url,
            project="pytorch",
            text=f"{read.title}\n\n{read.text}" if read.title else read.text,
            blocks=tuple(Block(code, "page", url=url) for code in read.code),
            licence=LICENCE,
            train=self._verdict.train,
            fetched_at=timestamp(self._client.clock),
            provenance=url,
            author="PyTorch contributors",
            raw={"version": version},
        )
