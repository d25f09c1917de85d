"""A fake GitHub, and a worker's resources that point at it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from fake_github import FakeGitHub
from fake_github.repos import Repo
from service.settings import Settings
from tests.worker.pulls import FAST, settings_for
from tests.worker.service import Service
from worker.job_context import Resources


@pytest.fixture
def github() -> Iterator[FakeGitHub]:
    with FakeGitHub() as fake:
        yield fake


@pytest.fixture
def repo(github: FakeGitHub) -> Repo:
    repo = github.repository("octo/models", {"train.py": FAST})
    repo.permission("dev", "write")
    return repo


@pytest.fixture
def settings(github: FakeGitHub, database_url: str) -> Settings:
    return settings_for(github, database_url)


@pytest.fixture
def resources(settings: Settings) -> Iterator[Resources]:
    resources = Resources(settings)
    yield resources
    resources.engine.dispose()


@pytest.fixture
def service(resources: Resources, github: FakeGitHub) -> Service:
    return Service(resources, github)
