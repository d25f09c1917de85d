"""One service for all tests of a file; each test has repositories and people of its own."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from tests.bot.conftest import running_at
from tests.bot.dashboard.world import World
from tests.bot.dashboard.world import world as new_world


@pytest.fixture(scope="module")
def world(sqlite_template: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    path = tmp_path_factory.mktemp("dashboard") / "ptopt.db"
    shutil.copy(sqlite_template, path)
    with new_world(partial(running_at, f"sqlite:///{path}")) as made:
        yield made
