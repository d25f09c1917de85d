"""Where deliveries become jobs. What was accepted is in the database, and every job there is run.

A delivery's GUID and its jobs are stored in one transaction. `Inbox` puts all that wait into the same one, so the
price of a commit is shared; each waits for that commit before it is answered.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from functools import cache
from typing import Any

import structlog
from sqlalchemy import (
    JSON,
    ColumnElement,
    Connection,
    Engine,
    Executable,
    Select,
    and_,
    bindparam,
    cast,
    func,
    literal,
    literal_column,
    select,
    true,
)
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.exc import InterfaceError, OperationalError

from service.jobs import Kind, NewJob, dump
from service.models import Base, DeliveryRow, Job, JobState

_GATHER = 0.01  # seconds at most to wait for others to share a commit with
_log = structlog.get_logger(__name__)
_KEY = ("repository_id", "pull", "head_sha", "kind", "subject")
_RENEWED = ("installation_id", "repository", "payload", "actor", "delivery", "due_at", "created_at")


@dataclass(frozen=True, slots=True)
class Arrival:
    """A verified delivery and the jobs that it requests."""

    guid: str
    event: str
    action: str
    installation_id: int | None
    jobs: Sequence[NewJob]
    at: datetime


def accept(
    engine: Engine,
    guid: str,
    event: str,
    action: str,
    installation_id: int | None,
    jobs: Sequence[NewJob],
    now: datetime,
) -> bool:
    """Store the delivery and its jobs; False when the GUID was known, and nothing was stored."""
    with engine.begin() as connection:
        return store(connection, [Arrival(guid, event, action, installation_id, jobs, now)])[0]


def store(connection: Connection, arrivals: Sequence[Arrival]) -> list[bool]:
    """Store arrivals in the order given; for each, whether its GUID was new."""
    time = _TIME[connection.dialect.name]
    # In the order of the keys: two transactions that hold several never wait for each other in a circle.
    rows = [
        {
            "guid": one.guid,
            "event": one.event,
            "action": one.action,
            "installation_id": one.installation_id,
            "received_at": time(one.at),
        }
        for one in sorted({one.guid: one for one in reversed(arrivals)}.values(), key=lambda one: one.guid)
    ]
    new = set(connection.scalars(_claim(connection.dialect.name), {"rows": rows}))
    answers = []
    jobs: list[dict[str, Any]] = []
    for one in arrivals:
        answers.append(one.guid in new)
        new.discard(one.guid)  # the second of one batch is a redelivery
        if answers[-1]:
            jobs += [_row(job, one.guid, one.at, time) for job in one.jobs]
    _add(connection, jobs)
    return answers


def add(connection: Connection, jobs: Iterable[NewJob], now: datetime) -> None:
    """Store jobs that no delivery requests."""
    time = _TIME[connection.dialect.name]
    _add(connection, [_row(job, "", now, time) for job in jobs])


def _add(connection: Connection, rows: list[dict[str, Any]]) -> None:
    if not rows:
        return
    # Of one key only the first: PostgreSQL refuses to look twice at a row within one statement.
    unique = {_key(row): row for row in reversed(rows)}
    connection.execute(_enqueue(connection.dialect.name), {"rows": [unique[key] for key in sorted(unique)]})


def _key(row: Mapping[str, Any]) -> tuple[Any, ...]:
    return tuple(row[name] for name in _KEY)


def _row(job: NewJob, guid: str, now: datetime, time: Callable[[datetime], str]) -> dict[str, Any]:
    return {
        "kind": job.kind.value,
        "installation_id": job.installation_id,
        "repository_id": job.repository_id,
        "repository": job.repository,
        "pull": job.pull,
        "head_sha": job.head_sha,
        "subject": job.subject,
        "payload": dump(job.payload),
        "actor": job.actor,
        "delivery": guid,
        "due_at": time(now + timedelta(seconds=job.delay)),
        "created_at": time(now),
    }


# All rows of a statement are one parameter, a JSON text that the database takes apart. So the statement is the same for
# any number of rows, and the database's work, unlike SQLAlchemy's for each row, is done without Python's lock.


def _source(dialect: str, table: type[Base], names: Sequence[str]) -> Select[Any]:
    """The columns `names` of the rows in the parameter `rows`."""
    rows = bindparam("rows", type_=JSON)
    if dialect == "postgresql":
        record: ColumnElement[Any] = literal_column(f"NULL::{table.__tablename__}")
        found = func.json_populate_recordset(record, cast(rows, JSON)).table_valued(*names)
        return select(*(found.c[name] for name in names))
    each = func.json_each(rows).table_valued("value")
    # Without a WHERE, SQLite would take the ON of ON CONFLICT for one of a join.
    return select(*(func.json_extract(each.c.value, f"$.{name}") for name in names)).where(true())


@cache
def _claim(dialect: str) -> Executable:
    names = ("guid", "event", "action", "installation_id", "received_at")
    statement = _INSERT[dialect](DeliveryRow).from_select(names, _source(dialect, DeliveryRow, names))
    return statement.on_conflict_do_nothing().returning(DeliveryRow.guid)


@cache
def _enqueue(dialect: str) -> Executable:
    names = (*_KEY, *_RENEWED)
    fresh = {"state": JobState.QUEUED.value, "attempts": 0, "deferrals": 0, "error": "", "owner": ""}
    rows = _source(dialect, Job, names).add_columns(*map(literal, fresh.values()))
    statement = _INSERT[dialect](Job).from_select((*names, *fresh), rows, include_defaults=False)
    renewed = (*_RENEWED, "state", "attempts", "deferrals", "error", "published_at", "finished_at")
    # A push back to an earlier head, a draft that becomes ready: the superseded review is wanted after all.
    return statement.on_conflict_do_update(
        index_elements=_KEY,
        set_={name: statement.excluded[name] for name in renewed},
        where=and_(Job.kind == Kind.REVIEW.value, Job.state == JobState.SUPERSEDED.value),
    )


def _sqlite_time(at: datetime) -> str:
    return at.astimezone(timezone.utc).replace(tzinfo=None).isoformat(" ", "microseconds")


# As SQLAlchemy writes them.
_TIME: Mapping[str, Callable[[datetime], str]] = {"sqlite": _sqlite_time, "postgresql": datetime.isoformat}
_INSERT: Mapping[str, Callable[..., sqlite.Insert | postgresql.Insert]] = {
    "sqlite": sqlite.insert,
    "postgresql": postgresql.insert,
}


class Inbox:
    """`accept` for an event loop. One thread writes; what arrives during a commit shares the next one.

    `on_due` is called in that thread after new jobs were stored that are due at once.
    """

    def __init__(self, engine: Engine, *, on_due: Callable[[], object] | None = None) -> None:
        self._engine = engine
        self._on_due = on_due
        self._waiting: list[tuple[Arrival, asyncio.AbstractEventLoop, asyncio.Future[bool]]] = []
        self._changed = threading.Condition()
        self._gathering: asyncio.AbstractEventLoop | None = None
        self._closed = False
        self._thread = threading.Thread(target=self._write, name="inbox", daemon=True)
        self._thread.start()

    async def accept(
        self, guid: str, event: str, action: str, installation_id: int | None, jobs: Sequence[NewJob]
    ) -> bool:
        """As the function `accept`. When this returns, the transaction is committed.

        Raises what the database raised; then nothing of this delivery was stored.
        """
        loop = asyncio.get_running_loop()
        future: asyncio.Future[bool] = loop.create_future()
        arrival = Arrival(guid, event, action, installation_id, jobs, datetime.now(timezone.utc))
        with self._changed:
            if self._closed:
                raise RuntimeError("the inbox is closed")
            self._waiting.append((arrival, loop, future))
        if self._gathering is not loop:
            self._gathering = loop
            loop.call_soon(self._gather, loop, loop.time() + _GATHER, 0, True)
        return await future

    def _gather(self, loop: asyncio.AbstractEventLoop, end: float, before: int, grew: bool) -> None:
        """Wake the thread when the loop went round twice and nothing came. Alone, that is at once."""
        waiting = len(self._waiting)
        if (grew or waiting > before) and loop.time() < end:
            loop.call_soon(self._gather, loop, end, waiting, waiting > before)
            return
        self._gathering = None
        with self._changed:
            self._changed.notify()

    def alive(self) -> bool:
        return self._thread.is_alive()

    def close(self) -> None:
        """Store what still waits, then stop."""
        with self._changed:
            self._closed = True
            self._changed.notify()
        self._thread.join()

    def _write(self) -> None:
        while True:
            with self._changed:
                while not self._waiting and not self._closed:
                    self._changed.wait()
                batch, self._waiting = self._waiting, []
            if not batch:
                return
            arrivals = [arrival for arrival, _, _ in batch]
            results = self._store(arrivals)
            loops: dict[asyncio.AbstractEventLoop, list[tuple[asyncio.Future[bool], bool | Exception]]] = {}
            for (_, loop, future), result in zip(batch, results, strict=True):
                loops.setdefault(loop, []).append((future, result))
            for loop, answers in loops.items():
                if not loop.is_closed():
                    loop.call_soon_threadsafe(_answer, answers)
            if self._on_due and any(
                new is True and any(job.delay <= 0 for job in one.jobs)
                for one, new in zip(arrivals, results, strict=True)
            ):
                self._on_due()

    def _store(self, arrivals: Sequence[Arrival]) -> list[bool | Exception]:
        try:
            with self._engine.begin() as connection:
                return [*store(connection, arrivals)]
        except (OperationalError, InterfaceError) as error:  # the database is away: for all of them
            return [error for _ in arrivals]
        except Exception as error:
            if len(arrivals) == 1:
                return [error]
            _log.warning("batch refused, storing one by one", size=len(arrivals), error=str(error))
        # One that the database refuses must not take the others with it.
        return [result for one in arrivals for result in self._store([one])]


def _answer(answers: Sequence[tuple[asyncio.Future[bool], bool | Exception]]) -> None:
    for future, result in answers:
        if future.done():  # the client is gone
            continue
        if isinstance(result, Exception):
            future.set_exception(result)
        else:
            future.set_result(result)
