"""Fixtures for all tests."""

from __future__ import annotations

from tests.services import (  # noqa: F401 (pytest finds fixtures by name)
    database_url,
    empty_database_url,
    empty_postgres_url,
    engine,
    postgres_server,
    postgres_url,
    redis_server,
    redis_url,
    sqlite_template,
    sqlite_url,
)
from tests.standin import default_checks
from tests.standin.conformance import check
from tests.standin.fixture import github_standin  # noqa: F401

default_checks[:] = [check]  # every stand-in of every test is held against GitHub's own descriptions
