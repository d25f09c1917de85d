"""Where pulled documents are kept: one SQLite file. A page and its cursor are one transaction."""

from __future__ import annotations

import json
import sqlite3
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from training.sources.base import Cursor, Document, Page, QuotaError, Source

_SCHEMA = """
CREATE TABLE IF NOT EXISTS documents (
    source TEXT NOT NULL, id TEXT NOT NULL, licence TEXT NOT NULL, train INTEGER NOT NULL, fetched_at TEXT NOT NULL,
    body TEXT NOT NULL, PRIMARY KEY (source, id)
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS cursors (source TEXT PRIMARY KEY, cursor TEXT NOT NULL) WITHOUT ROWID;
"""


class Store:
    """Documents by source and id (a newer one replaces an older one), and where each source goes on."""

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self._database = sqlite3.connect(path, isolation_level=None)
        self._database.executescript("PRAGMA journal_mode=WAL; PRAGMA busy_timeout=10000;" + _SCHEMA)

    def __enter__(self) -> Store:
        return self

    def __exit__(self, *_: object) -> None:
        self._database.close()

    def save(self, source: str, page: Page) -> None:
        rows = [(source, d.id, d.licence, d.train, d.fetched_at, d.to_json()) for d in page.documents]
        self._database.execute("BEGIN IMMEDIATE")
        try:
            self._database.executemany("INSERT OR REPLACE INTO documents VALUES (?, ?, ?, ?, ?, ?)", rows)
            self._database.execute(
                "INSERT OR REPLACE INTO cursors VALUES (?, ?)",
                (source, json.dumps(page.cursor, sort_keys=True)),
            )
            self._database.execute("COMMIT")
        except BaseException:
            self._database.execute("ROLLBACK")
            raise

    def cursor(self, source: str) -> Cursor | None:
        row = self._database.execute("SELECT cursor FROM cursors WHERE source = ?", (source,)).fetchone()
        return json.loads(row[0]) if row else None

    def forget(self, source: str) -> None:
        """The next pull of this source starts anew; its documents stay."""
        self._database.execute("DELETE FROM cursors WHERE source = ?", (source,))

    def documents(self, source: str | None = None, *, train: bool | None = None) -> Iterator[Document]:
        """In order of source and id."""
        rows = self._database.execute(
            "SELECT body FROM documents WHERE (?1 IS NULL OR source = ?1) AND (?2 IS NULL OR train = ?2) "
            "ORDER BY source, id",
            (source, train),
        )
        for (body,) in rows:
            yield Document.from_json(body)

    def counts(self) -> dict[str, Counter[str]]:
        """source -> "documents", "trainable", and documents by licence."""
        found: dict[str, Counter[str]] = {}
        for source, licence, train, number in self._database.execute(
            "SELECT source, licence, train, count(*) FROM documents GROUP BY 1, 2, 3 ORDER BY 1, 2"
        ):
            of_source = found.setdefault(source, Counter())
            of_source["documents"] += number
            of_source["trainable"] += number if train else 0
            of_source[licence] += number
        return found


@dataclass(frozen=True, slots=True)
class Pulled:
    """What a pull brought, and why it stopped short of the end or the limit, if it did."""

    documents: int
    stopped: str = ""


def pull(source: Source, store: Store, limit: int, on_page: Callable[[Page], None] | None = None) -> Pulled:
    """Pull up to about `limit` documents, going on where the last pull ended. Raises SourceError; pages are kept."""
    number = 0
    try:
        for page in source.pull(store.cursor(source.name), limit):
            store.save(source.name, page)
            number += len(page.documents)
            if on_page:
                on_page(page)
    except QuotaError as reason:
        return Pulled(number, str(reason))
    return Pulled(number)
