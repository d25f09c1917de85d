"""A database with people who answer, on SQLite and on PostgreSQL."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import Engine

from tests.training.retrain.people import World


@pytest.fixture
def world(tmp_path: Path, database_url: str, engine: Engine) -> Iterator[World]:
    made = World(tmp_path, database_url, engine)
    yield made
    made.close()
