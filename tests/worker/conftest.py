"""A stand-in GitHub, and a worker's resources that point at it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from bot.settings import Settings
from tests.standin import StandIn
from tests.standin.repos import Repo
from tests.worker.pulls import FAST, settings_for
from tests.worker.service import Service
from worker.work import Resources


@pytest.fixture
def github() -> Iterator[StandIn]:
    with StandIn() as standin:
        yield standin


@pytest.fixture
def repo(github: StandIn) -> Repo:
    repo = github.repository("octo/models", {"train.py": FAST})
    repo.permission("dev", "write")
    return repo


@pytest.fixture
def settings(github: StandIn, database_url: str) -> Settings:
    return settings_for(github, database_url)


@pytest.fixture
def resources(settings: Settings) -> Iterator[Resources]:
    resources = Resources(settings)
    yield resources
    resources.engine.dispose()


@pytest.fixture
def service(resources: Resources, github: StandIn) -> Service:
    return Service(resources, github)
