"""Fixtures for all tests."""

from __future__ import annotations

import functools
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
from tests.browser import page  # noqa: F401
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
os.environ["COLUMNS"] = "80"  # what the command prints is as wide wherever the tests run


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
_LONGEST = (  # files that keep a worker for half a minute or more, the longest first
    "tests/model/backends/test_vllm.py",
    "tests/faults/test_battery.py",
    "tests/benchmarks/training/test_ablation.py",
    "tests/model/test_service.py",
    "tests/model/test_hostile.py",
    "tests/training/recipes/test_resume.py",
    "tests/training/evaluation/test_evaluate.py",
    "tests/training/recipes/test_distributed.py",
    "tests/benchmarks/test_service.py",
    "tests/rules/test_linear.py",
    "tests/training/retrain/test_demo.py",
    "tests/training/retrain/test_cycle.py",
    "tests/helm/test_chart.py",
    "tests/training/retrain/test_killed.py",
    "tests/benchmarks/test_learning.py",
    "tests/embedded/test_embedded.py",
    "tests/training/dataset/test_build.py",
    "tests/worker/test_applied_suggestions.py",
    "tests/bot/test_action.py",
    "tests/model/test_registry.py",
    "tests/security/test_action.py",
    "tests/worker/test_processes.py",
    "tests/worker/test_retraining_killed.py",
    "tests/test_ids.py",
)
_MODEL = "mark.model"


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """`-m model` reads the files alone that have such tests: a tenth of all."""
    if config.option.markexpr != "model" or not collection_path.name.startswith("test_"):
        return None
    return True if collection_path.is_file() and _MODEL not in _text(collection_path) else None


@functools.cache
def _text(path: Path) -> str:
    return path.read_text(encoding="utf-8")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Whoever takes a server from a fixture is slow; the longest files go first, so that no worker ends with one."""
    for item in items:
        given = getattr(item, "callspec", None)
        parameters = given.params.values() if given else ()
        if "postgresql" in parameters or _SERVERS.intersection(getattr(item, "fixturenames", ())):
            item.add_marker(pytest.mark.slow)
        if item.get_closest_marker("model") and _MODEL not in _text(item.path):
            raise pytest.UsageError(f"{item.nodeid}: `-m model` finds it only where its file says {_MODEL}")
    rank = {name: place for place, name in enumerate(_LONGEST)}
    items.sort(key=lambda item: rank.get(item.nodeid.partition("::")[0], len(rank)))
