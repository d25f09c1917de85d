"""Fixtures for all tests."""

from __future__ import annotations

import sys

import pytest

from fake_github import default_checks
from fake_github.conformance import check
from fake_github.fixture import fake_github  # noqa: F401
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

default_checks[:] = [check]  # every fake of every test is held against GitHub's own descriptions


@pytest.fixture(autouse=True)
def _strangers_on_old_ports() -> None:
    """Tokens and names are kept for the life of a process, by address; the next fake server may get an old port."""
    auth = sys.modules.get("ptopt.github.auth")
    if auth is not None:
        auth._slugs.clear()
        auth._tokens.clear()
