"""What a retraining writes to the service's database: the run, the events of its steps, and what it made.

`training` does not import `service`: the tables are read as the database describes them. Every write is guarded by the lease
of the run, so that a process which was thought dead writes nothing more.
"""

from __future__ import annotations

import threading
import uuid
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from typing import Any

from sqlalchemy import (
    Connection,
    Engine,
    MetaData,
    create_engine,
    delete,
    event,
    insert,
    make_url,
    select,
    update,
)
from sqlalchemy.exc import IntegrityError, InvalidRequestError, SQLAlchemyError

_TABLES = ("retrainings", "learning_events", "versions")
_NOTE = 4_000  # characters of an error that are kept
MOST_ATTEMPTS = 5  # at one step, after which a run is given up
RUNNING, DONE, FAILED = "running", "done", "failed"
CANARY, ACTIVE, RETIRED, REFUSED = "canary", "active", "retired", "refused"


class RecordsError(Exception):
    """The database cannot be used; the message is one line."""


class LostError(Exception):
    """Another process works on the run: this one must not write any more."""


@dataclass(frozen=True, slots=True)
class Run:
    """A retraining that this process works on."""

    id: int
    subject: str
    reason: str
    created_at: datetime
    owner: str
    attempts: int


class Records:
    """The tables of one database. Raises RecordsError where it has none of this version."""

    def __init__(self, url: str) -> None:
        try:
            self.engine = _engine(url)
            metadata = MetaData()
            metadata.reflect(self.engine, only=_TABLES)
        except InvalidRequestError:
            raise RecordsError(
                "the database is not of this version: run `python -m service upgrade`"
            ) from None
        except (SQLAlchemyError, ImportError) as error:
            why = str(error).partition("\n")[0][:300]
            raise RecordsError(f"the service's database cannot be used: {why}") from None
        self._runs, self._events, self._versions = (metadata.tables[name] for name in _TABLES)

    def close(self) -> None:
        self.engine.dispose()

    # -- the run ------------------------------------------------------------------------------------------------

    def running(self, subjects: Iterable[str]) -> list[str]:
        """Those of the subjects of which a run is not over, in this order."""
        runs = self._runs
        with self.engine.connect() as connection:
            found = set(connection.scalars(select(runs.c.subject).where(runs.c.state == RUNNING)))
        return [subject for subject in subjects if subject in found]

    def claim(self, subject: str, reason: str, lease: float) -> Run | datetime:
        """Begin a run, or go on with the one that broke off; while another process works on it, until when it may."""
        owner, now = uuid.uuid4().hex, _now()
        until = now + timedelta(seconds=lease)
        runs = self._runs
        try:
            with self.engine.begin() as connection:
                open_ = (
                    select(runs).where(runs.c.subject == subject, runs.c.state == RUNNING).with_for_update()
                )
                found = connection.execute(open_).one_or_none()
                if found is None:
                    return self._begin(connection, subject, reason, owner, now, until)
                held = _utc(found.lease_until) if found.lease_until is not None else now
                if found.owner and held > now:
                    return held
                again = {"owner": owner, "lease_until": until, "attempts": found.attempts + 1}
                if found.attempts >= MOST_ATTEMPTS:
                    note = f"given up: it broke off {found.attempts} times at the same step"
                    over = {"state": FAILED, "note": note, "finished_at": now}
                    connection.execute(update(runs).where(runs.c.id == found.id).values(over))
                    _log(connection, self._events, found.id, subject, FAILED, "", {"reason": note}, now)
                    return self._begin(connection, subject, reason, owner, now, until)
                connection.execute(update(runs).where(runs.c.id == found.id).values(again))
                return Run(found.id, subject, found.reason, _utc(found.created_at), owner, found.attempts + 1)
        except IntegrityError:  # two began at once
            return until

    def _begin(
        self, connection: Connection, subject: str, reason: str, owner: str, now: datetime, until: datetime
    ) -> Run:
        values = {
            "subject": subject, "state": RUNNING, "reason": reason[:200], "result": "", "note": "", "attempts": 1,
            "owner": owner, "lease_until": until, "created_at": now,
        }  # fmt: skip
        made = connection.execute(insert(self._runs).values(values)).inserted_primary_key
        number = int(made[0]) if made is not None else 0
        _log(connection, self._events, number, subject, "started", "", {"reason": reason}, now)
        return Run(number, subject, reason, now, owner, 1)

    @contextmanager
    def kept(self, run: Run, lease: float) -> Iterator[None]:
        """Within the block the lease is renewed; afterwards the next process need not wait for its end."""
        ended = threading.Event()

        def renew() -> None:
            while not ended.wait(lease / 3):
                try:
                    self._set_lease(run, _now() + timedelta(seconds=lease))
                except SQLAlchemyError:  # the next try may succeed; the lease says how long there is time
                    continue

        thread = threading.Thread(target=renew, name="lease", daemon=True)
        thread.start()
        try:
            yield
        finally:
            ended.set()
            thread.join()
            self._set_lease(run, None)

    def _set_lease(self, run: Run, until: datetime | None) -> None:
        ours = self._runs.c.id == run.id, self._runs.c.owner == run.owner, self._runs.c.state == RUNNING
        with self.engine.begin() as connection:
            connection.execute(update(self._runs).where(*ours).values(lease_until=until))

    def fail(self, run: Run, why: str) -> None:
        """The run is over, and made nothing."""
        with self._ours(run) as connection:
            self._end(connection, run, FAILED, note=why[:_NOTE])
            detail = {"reason": why[:_NOTE]}
            _log(connection, self._events, run.id, run.subject, FAILED, "", detail, _now())

    @contextmanager
    def _ours(self, run: Run) -> Iterator[Connection]:
        """A transaction in which the run is ours until its end. Raises LostError."""
        runs = self._runs
        mine = select(runs.c.id).where(
            runs.c.id == run.id, runs.c.owner == run.owner, runs.c.state == RUNNING
        )
        with self.engine.begin() as connection:
            if connection.scalar(mine.with_for_update()) is None:
                raise LostError
            yield connection

    def _end(self, connection: Connection, run: Run, state: str, *, result: str = "", note: str = "") -> None:
        over = {"state": state, "result": result, "note": note, "finished_at": _now(), "lease_until": None}
        connection.execute(update(self._runs).where(self._runs.c.id == run.id).values(over))

    # -- steps --------------------------------------------------------------------------------------------------

    def step(self, run: Run, kind: str) -> str:
        """The hash that a step ended with; "" before that."""
        events = self._events
        found = select(events.c.hash).where(events.c.retraining_id == run.id, events.c.kind == kind)
        with self.engine.connect() as connection:
            return str(connection.scalar(found) or "")

    def note(
        self, run: Run, kind: str, hash_: str, detail: Mapping[str, Any], *, then: tuple[str, ...]
    ) -> None:
        """A step ended. What `then` names was made from an older result of it, and is forgotten."""
        events = self._events
        with self._ours(run) as connection:
            of_run = events.c.retraining_id == run.id
            connection.execute(delete(events).where(of_run, events.c.kind.in_((kind, *then))))
            _log(connection, events, run.id, run.subject, kind, hash_, detail, _now())
            # It got on: however often a machine is taken away, this is no crash that comes again.
            connection.execute(update(self._runs).where(self._runs.c.id == run.id).values(attempts=1))

    def progressed(self, run: Run) -> None:
        """A long step got further: it may be interrupted as often again."""
        with self._ours(run) as connection:
            connection.execute(update(self._runs).where(self._runs.c.id == run.id).values(attempts=1))

    # -- versions -------------------------------------------------------------------------------------------------

    def active(self, subject: str) -> tuple[str, str] | None:
        """Hash and weights of the active version; None: what the operator chose is in use."""
        versions = self._versions
        found = select(versions.c.hash, versions.c.weights).where(
            versions.c.subject == subject, versions.c.state == ACTIVE
        )
        with self.engine.connect() as connection:
            row = connection.execute(found).one_or_none()
        return None if row is None else (row.hash, row.weights)

    def register(
        self, run: Run, hash_: str, weights: str, card: Mapping[str, Any], refused: str
    ) -> tuple[str, str]:
        """End the run with its one result, in one transaction: a canary, or refused. The state, and why."""
        versions, now = self._versions, _now()
        state, reason = (REFUSED, refused) if refused else (CANARY, "not worse on gold, better on feedback")
        with self._ours(run) as connection:
            of_hash = select(versions.c.state).where(versions.c.hash == hash_).with_for_update()
            known = connection.scalar(of_hash)
            if known is not None:
                state, reason = REFUSED, f"the same weights are there already: {known}"
            else:
                if state == CANARY:
                    self._retire_canary(connection, run, now)
                values = {
                    "hash": hash_, "subject": run.subject, "state": state, "weights": weights, "card": dict(card),
                    "created_at": now, "changed_at": now,
                }  # fmt: skip
                connection.execute(insert(versions).values(values))
            _log(connection, self._events, run.id, run.subject, state, hash_, {"reason": reason}, now)
            self._end(connection, run, DONE, result=hash_)
        return state, reason

    def _retire_canary(self, connection: Connection, run: Run, now: datetime) -> None:
        """What is tried now, if anything: one trial at a time."""
        versions = self._versions
        tried = select(versions.c.hash).where(versions.c.subject == run.subject, versions.c.state == CANARY)
        older = connection.scalar(tried.with_for_update())
        if older is not None:
            retired = {"state": RETIRED, "changed_at": now}
            connection.execute(update(versions).where(versions.c.hash == older).values(retired))
            detail = {"reason": "a newer canary takes its place"}
            _log(connection, self._events, run.id, run.subject, RETIRED, older, detail, now)


def _log(
    connection: Connection, events: Any, run: int, subject: str, kind: str, hash_: str,
    detail: Mapping[str, Any], now: datetime,
) -> None:  # fmt: skip
    values = {
        "retraining_id": run,
        "subject": subject,
        "kind": kind,
        "hash": hash_,
        "detail": dict(detail),
        "at": now,
    }
    connection.execute(insert(events).values(values))


def _engine(url: str) -> Engine:
    parsed = make_url(url)
    if parsed.drivername in ("postgres", "postgresql"):
        parsed = parsed.set(drivername="postgresql+psycopg")
    if parsed.get_backend_name() != "sqlite":
        return create_engine(parsed, pool_pre_ping=True, hide_parameters=True)
    made = create_engine(parsed, hide_parameters=True, connect_args={"timeout": 30, "isolation_level": None})
    # A transaction that read before it writes would fail where another one wrote in between.
    event.listen(made, "begin", lambda connection: connection.exec_driver_sql("BEGIN IMMEDIATE"))
    return made


def _now() -> datetime:
    return datetime.now(timezone.utc)


def _utc(at: datetime) -> datetime:
    return at.replace(tzinfo=timezone.utc) if at.tzinfo is None else at
