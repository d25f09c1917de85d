"""Simulated repositories in the service's database, for the demo: comments with what the ranker weighed, and answers.

What is commented are judged comments of `benchmarks/quality/data`; each is answered as its verdict says, or as `wanted` does.
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta, timezone
from typing import Any

from sqlalchemy import Engine, MetaData, create_engine, insert, select, update

from training.ranker.rows import Row

_TABLES = (
    "installations",
    "repositories",
    "reviews",
    "comments",
    "signals",
    "version_uses",
    "versions",
)
_NOISE = 0.05  # answers that say the opposite


class Simulated:
    """The database of a service that nobody uses."""

    def __init__(self, url: str, seed: int = 0) -> None:
        self._engine: Engine = create_engine(url)
        metadata = MetaData()
        metadata.reflect(self._engine, only=_TABLES)
        self._tables = metadata.tables
        self._chance = random.Random(seed)  # noqa: S311
        self._number = 0
        self._repositories: dict[str, int] = {}

    def close(self) -> None:
        self._engine.dispose()

    def answer(
        self, rows: Sequence[Row], wanted: Callable[[Row], bool], *, ranker: str = "", learn: bool = True
    ) -> int:
        """Post a comment of each row, reviewed with this version, and let somebody answer; how many."""
        now = datetime.now(timezone.utc)
        with self._engine.begin() as connection:
            for row in rows:
                repository = self._repository(connection, row.repo, learn, now)
                self._number += 1
                at = now - timedelta(minutes=len(rows) - self._number % len(rows))
                review = self._insert(
                    connection, "reviews", repository_id=repository, pull=self._number, github_id=self._number,
                    head_sha=hashlib.sha1(str(self._number).encode()).hexdigest(), ptopt_version="demo",  # noqa: S324
                    files_reviewed=1, findings=1, model="", adapter="", prompt_version="", schema_version="",
                    model_note="", ranker=ranker, received_at=at, posted_at=at,
                )  # fmt: skip
                comment = self._insert(
                    connection, "comments", review_id=review, repository_id=repository, pull=self._number,
                    github_id=self._number, rule=row.rule[:16], fingerprint=str(self._number), origin="rule",
                    confidence=0.5, score=0.5, explored=False, author="", safety="", path_hash="", suggestion={},
                    features=dict(row.features), posted_at=at,
                )  # fmt: skip
                good = wanted(row) != (self._chance.random() < _NOISE)
                self._insert(
                    connection, "signals", comment_id=comment, kind="reaction", value="+1" if good else "-1",
                    actor=f"dev-{self._number % 40}-{repository}", actor_writes=True, source=f"r{self._number}",
                    note="", created_at=at,
                )  # fmt: skip
                self._insert(
                    connection, "version_uses", subject="ranker", version=ranker, repository_id=repository, failed=False, seconds=1.0,
                    at=at,
                )  # fmt: skip
        return len(rows)

    def days_pass(self, days: float) -> None:
        """Let the canary be so much older."""
        versions = self._tables["versions"]
        older = datetime.now(timezone.utc) - timedelta(days=days)
        with self._engine.begin() as connection:
            connection.execute(update(versions).where(versions.c.state == "canary").values(changed_at=older))

    def version(self, state: str) -> str:
        versions = self._tables["versions"]
        with self._engine.connect() as connection:
            return str(connection.scalar(select(versions.c.hash).where(versions.c.state == state)) or "")

    def _repository(self, connection: Any, name: str, learn: bool, now: datetime) -> int:
        if name not in self._repositories:
            number = self._repositories[name] = len(self._repositories) + 1
            self._insert(
                connection,
                "installations",
                id=number,
                account=f"demo-{number}",
                suspended=False,
                created_at=now,
            )
            self._insert(
                connection, "repositories", id=number, installation_id=number, full_name=f"demo-{number}/code",
                private=False, learn=learn,
            )  # fmt: skip
        return self._repositories[name]

    def _insert(self, connection: Any, table: str, **values: Any) -> int:
        key = connection.execute(insert(self._tables[table]).values(values)).inserted_primary_key
        return int(key[0])
