"""Fixtures for all tests."""

from __future__ import annotations

import gc
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from fake_github import default_checks
from fake_github.conformance import check
from fake_github.fixture import fake_github  # noqa: F401
from ptopt.ranker.model import ENVIRONMENT, default_ranker
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


# The same examples on each run and each machine, however slow it is. For new ones:
# `pytest --hypothesis-profile=default`.
settings.register_profile(
    "same", derandomize=True, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("same")

# What a test expects of a review does not depend on what the ranker has learned: here, and in programs that tests start, it
# takes the confidence that the rules state. Not a fixture, since some modules review their samples when they are imported.
os.environ[ENVIRONMENT] = str(Path(__file__).with_name("stated_confidence.json"))


@pytest.fixture
def learned_ranker(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The weights that ptopt carries, in this test."""
    monkeypatch.delenv(ENVIRONMENT)
    default_ranker.cache_clear()
    yield
    default_ranker.cache_clear()


def pytest_make_parametrize_id(val: object, argname: str) -> str | None:
    """Bytes and long or unprintable texts have no part in a test's id: they may differ from run to run."""
    if isinstance(val, bytes) or (
        isinstance(val, str) and (len(val) > 60 or not (val.isascii() and val.isprintable()))
    ):
        return argname
    return None


def pytest_collection_finish() -> None:
    """What was collected stays to the end: the garbage collector need not look through it again and again."""
    gc.collect()
    gc.freeze()


_SERVERS = {"fake_github", "github", "postgres_server", "redis_server", "serve", "served", "world"}
_LONGEST = (  # files that take a minute or more
    "tests/model/backends/test_vllm.py",
    "tests/faults/test_battery.py",
    "tests/benchmarks/training/test_ablation.py",
    "tests/model/test_service.py",
    "tests/model/test_hostile.py",
    "tests/training/recipes/test_resume.py",
    "tests/training/evaluation/test_evaluate.py",
    "tests/training/recipes/test_distributed.py",
)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Whoever takes a server from a fixture is slow; the longest files go first, so that no worker ends with one."""
    for item in items:
        given = getattr(item, "callspec", None)
        parameters = given.params.values() if given else ()
        if "postgresql" in parameters or _SERVERS.intersection(getattr(item, "fixturenames", ())):
            item.add_marker(pytest.mark.slow)
    rank = {name: place for place, name in enumerate(_LONGEST)}
    items.sort(key=lambda item: rank.get(item.nodeid.partition("::")[0], len(rank)))
