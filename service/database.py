"""The one place that opens the database: SQLite for one process, PostgreSQL for many. The same code on both."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, Engine, create_engine, event, inspect, make_url, text
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.exc import ArgumentError
from sqlalchemy.orm import Session

_MIGRATIONS = Path(__file__).parent / "migrations"
_EXPECTED = "it must be sqlite:///FILE or postgresql+psycopg://USER:PASSWORD@HOST/NAME"
_UPGRADE_LOCK = 0x70746F7074  # "ptopt": two processes that start together must not both migrate
_SQLITE_WAIT = 10  # seconds for whoever writes


class DatabaseError(Exception):
    """The database cannot be used as it is. The text says what to do."""


def engine(url: str) -> Engine:
    """An engine for `sqlite:///FILE` or `postgresql+psycopg://…`; it must not cross a fork.

    On SQLite every transaction takes the write lock at its start, so that none fails half-way because another
    wrote in between; those of `reading` do not. Error texts leave out what was to be stored.
    Raises DatabaseError for another kind of URL.
    """
    try:
        parsed = make_url(url)
    except ArgumentError:
        raise DatabaseError(f"not a database URL: {_EXPECTED}") from None
    if parsed.drivername in ("postgres", "postgresql"):
        parsed = parsed.set(drivername="postgresql+psycopg")
    if parsed.drivername == "postgresql+psycopg":
        # A worker has several jobs at once, each with a thread that renews its lease.
        return create_engine(parsed, pool_pre_ping=True, hide_parameters=True, pool_size=10, max_overflow=20)
    if parsed.drivername != "sqlite" or not parsed.database or parsed.database == ":memory:":
        raise DatabaseError(f"{_EXPECTED}, not {parsed.render_as_string(hide_password=True)}")
    made = create_engine(parsed, hide_parameters=True)
    event.listen(made, "connect", _prepare_sqlite)
    event.listen(made, "begin", _begin_sqlite)
    return made


def _prepare_sqlite(connection: sqlite3.Connection, _record: object) -> None:
    connection.isolation_level = None  # we say BEGIN ourselves
    connection.execute(f"PRAGMA busy_timeout={_SQLITE_WAIT * 1000}")
    _write_ahead(connection)
    # FULL: what we answered 202 for survives a power failure, too. The inbox shares the price of its commits.
    for pragma in ("foreign_keys=ON", "synchronous=FULL", "secure_delete=ON"):
        connection.execute(f"PRAGMA {pragma}")


def _write_ahead(connection: sqlite3.Connection) -> None:
    """Switch the file to WAL. Two that do it to a new file at once get "locked" at once: there SQLite does not wait."""
    deadline = time.monotonic() + _SQLITE_WAIT
    while True:
        try:
            connection.execute("PRAGMA journal_mode=WAL")
            return
        except sqlite3.OperationalError as error:
            if "locked" not in str(error) or time.monotonic() > deadline:
                raise
        time.sleep(0.01)


def _begin_sqlite(connection: Connection) -> None:
    reads = connection.get_execution_options().get("ptopt_reads", False)
    connection.exec_driver_sql("BEGIN" if reads else "BEGIN IMMEDIATE")


@contextmanager
def writing(engine: Engine) -> Iterator[Session]:
    """A session that commits at the end, or rolls back."""
    with Session(engine) as session, session.begin():
        yield session


@contextmanager
def reading(engine: Engine) -> Iterator[Session]:
    """A session that only reads: on SQLite it does not wait for writers."""
    with Session(engine.execution_options(ptopt_reads=True)) as session:
        yield session


def insert(engine: Engine | Connection | Session, table: Any) -> sqlite.Insert | postgresql.Insert:
    """`INSERT` in the dialect of the engine, which both call `on_conflict_do_nothing` and `…_update`."""
    bind = engine.get_bind() if isinstance(engine, Session) else engine
    return postgresql.insert(table) if bind.dialect.name == "postgresql" else sqlite.insert(table)


def upgrade(url: str, revision: str = "head") -> None:
    """Bring the database to the newest schema, or this one; an empty one is filled. Safe when several processes do it at once."""
    # Here alone: a server migrates nothing, and has 9 MB of memory for something else.
    from alembic import command
    from alembic.config import Config

    made = engine(url)
    try:
        with made.begin() as connection:
            if connection.dialect.name == "postgresql":
                connection.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": _UPGRADE_LOCK})
            config = Config()
            config.set_main_option("script_location", str(_MIGRATIONS).replace("%", "%%"))
            config.attributes["connection"] = connection
            command.upgrade(config, revision)
    finally:
        made.dispose()


def newest_revision() -> str:
    """Of the schema. The files of the migrations begin with their numbers."""
    return max(file.name[:4] for file in (_MIGRATIONS / "versions").glob("[0-9]*.py"))


def check(engine: Engine) -> None:
    """Raise DatabaseError unless the schema is the newest."""
    file = str(engine.url.database)
    if engine.dialect.name == "sqlite" and not file.startswith("file:") and not Path(file).exists():
        # Asking would make an empty one.
        raise DatabaseError(
            f"there is no file {file} yet: `python -m embedded` makes it when it starts first, `python -m service upgrade` "
            "at once; PTOPT_DATABASE_URL names another"
        )
    wanted = newest_revision()
    with engine.execution_options(ptopt_reads=True).connect() as connection:
        migrated = inspect(connection).has_table("alembic_version")
        found = connection.scalar(text("SELECT version_num FROM alembic_version")) if migrated else None
    if found != wanted:
        raise DatabaseError(
            f"the database has schema {found or 'none'}, this version needs {wanted}: run `python -m service upgrade`"
        )
