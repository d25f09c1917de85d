"""What is recorded of a review for the trials of ranker and adapter, against the fake GitHub."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import select

from fake_github.repos import Repo
from ptopt.model.registry import Registry
from service.database import reading, writing
from service.models import ReviewRow, Version, VersionUse
from tests.model.adapters import make_adapter
from tests.worker.models import Opener
from tests.worker.pulls import FAST, SLOW, job_for, now, run
from worker.job_context import Resources
from worker.model_pool import ModelPool


@pytest.fixture
def opener() -> Opener:
    return Opener()


@pytest.fixture
def modelled(resources: Resources, opener: Opener, tmp_path: Path) -> Iterator[Resources]:
    """With an adapter of a retraining on trial in each repository."""
    registry = Registry(tmp_path / "registry")
    tried = registry.add(make_adapter(tmp_path / "tried", "tried"))
    with writing(resources.engine) as session:
        row = {"state": "canary", "weights": "", "card": {}, "created_at": now(), "changed_at": now()}
        session.add(Version(subject="adapter", hash=tried, **row))
    given = {"model_registry": registry.folder, "model_challenger_share": 1.0}
    made = Resources(resources.settings.model_copy(update=given))
    made.model = ModelPool(made.settings, opener=opener, learned=made._adapters)
    yield made
    made.close()


def uses(resources: Resources) -> list[tuple[str, str, bool]]:
    with reading(resources.engine) as session:
        found = session.scalars(select(VersionUse).order_by(VersionUse.id))
        return [(use.subject, use.version, use.failed) for use in found]


def tried(resources: Resources) -> str:
    with reading(resources.engine) as session:
        return session.scalars(select(Version.hash)).one()


def test_the_adapter_on_trial_judges_and_its_use_is_recorded(modelled: Resources, repo: Repo) -> None:
    first, second = (repo.pull(files={f"{n}.py": SLOW}, author="dev") for n in "ab")
    run(modelled, job_for(modelled, first))  # makes the rows of the repository
    run(modelled, job_for(modelled, second))
    with reading(modelled.engine) as session:
        assert set(session.scalars(select(ReviewRow.adapter))) == {tried(modelled)}
    assert uses(modelled)[-2:] == [("ranker", "", False), ("adapter", tried(modelled), False)]


def test_a_model_that_is_away_is_a_failure_of_the_adapter_alone(
    modelled: Resources, opener: Opener, repo: Repo
) -> None:
    opener.fail[tried(modelled)] = RuntimeError("broken")
    for name in "ab":
        pull = repo.pull(files={f"{name}.py": SLOW}, author="dev")
        assert run(modelled, job_for(modelled, pull)).state == "done"
    assert uses(modelled)[-2:] == [("ranker", "", False), ("adapter", tried(modelled), True)]


def test_without_a_registry_there_is_no_adapter_to_record(resources: Resources, repo: Repo) -> None:
    for name in "ab":
        run(resources, job_for(resources, repo.pull(files={f"{name}.py": FAST}, author="dev")))
    assert {subject for subject, _, _ in uses(resources)} == {"ranker"}
