"""A retraining by real workers on Valkey, against the fake GitHub: killed at work, refused, rolled back."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest
from sqlalchemy import Engine, select, update

from fake_github import FakeGitHub
from fake_github.repos import Repo
from service.database import reading, writing
from service.dispatch import publish_due
from service.models import Retraining, ReviewRow
from service.settings import Settings
from tests.training.retrain.people import World, judged
from tests.worker.processes import kill, process, wait_for, worker
from tests.worker.pulls import SLOW, job_for, now, settings_for
from worker.app import make_app
from worker.job_context import Resources
from worker.periodic_tasks import look_at_canary, retrain

pytestmark = pytest.mark.slow
WORKER = (*worker(), "-Q", "training,review")


@pytest.fixture
def world(
    tmp_path: Path, database_url: str, engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> Iterator[World]:
    made = World(tmp_path, database_url, engine)
    monkeypatch.setenv("PTOPT_RETRAIN_WORK", str(made.work))
    monkeypatch.setenv("PTOPT_RETRAIN_GOLD", str(made.gold))
    yield made
    made.close()


@pytest.fixture
def settings(world: World, github: FakeGitHub, redis_url: str) -> Settings:
    return settings_for(
        github, world.url, broker_url=redis_url, retrain_folder=world.folder, retrain_labels=50,
        ranker_canary_share=1.0, log_format="console",
    )  # fmt: skip


def ranked_by(resources: Resources, app: object, repo: Repo) -> str:
    """The version that ranks a new pull request, reviewed by the worker."""
    pull = repo.pull(files={"train.py": SLOW}, author="dev")
    job_for(resources, pull)
    publish_due(resources.engine, app, now(), 4)
    of_pull = select(ReviewRow.ranker).where(ReviewRow.head_sha == pull.head_sha)

    def found() -> list[str]:
        with reading(resources.engine) as session:
            return list(session.scalars(of_pull))

    wait_for(found)
    return found()[0]


def test_it_goes_on_after_a_kill_and_harm_is_taken_back(world: World, settings: Settings, repo: Repo) -> None:
    resources, champion = Resources(settings), world.active()
    app = make_app(settings, resources=resources)
    world.answer()
    assert retrain(resources, app, now()) == "300 comments were answered"
    with process(settings, *WORKER) as first:
        wait_for(lambda: "dataset" in [event.kind for event in world.events()], 120)
        kill(first)
    (run,) = world.runs()
    assert run.state == "running" and world.versions() == {champion: "active"}
    dataset = (world.folder / "ranker-1" / "rows.jsonl").read_bytes()
    assert retrain(resources, app, now()) == "", "nobody knows yet that it is dead"
    with writing(world.engine) as session:  # a minute later
        session.execute(update(Retraining).values(lease_until=now() - timedelta(seconds=1)))
    assert retrain(resources, app, now()) == "300 comments were answered"
    with process(settings, *WORKER):
        wait_for(lambda: world.runs()[0].state == "done", 120)
        (run,) = world.runs()
        assert world.versions() == {champion: "active", run.result: "canary"}
        kinds = [event.kind for event in world.events()]
        assert kinds == ["started", "dataset", "fitted", "evaluated", "canary"]
        assert (world.folder / "ranker-1" / "rows.jsonl").read_bytes() == dataset
        assert ranked_by(resources, app, repo) == run.result

        world.answer(60, lambda row: True, ranker=champion, seed=4)
        world.answer(60, lambda row: False, ranker=run.result, seed=5)
        world.people.days_pass(1)
        look_at_canary(resources, now())
        assert world.versions() == {champion: "active", run.result: "rolled back"}
        assert ranked_by(resources, app, repo) == champion

        # Elsewhere, everybody votes the opposite of what readers say.
        world.people.answer(judged(600, 6, "others"), lambda row: not row.useful)
        with writing(world.engine) as session:  # a day later
            session.execute(update(Retraining).values(created_at=now() - timedelta(days=1)))
        assert retrain(resources, app, now()).endswith("comments were answered")
        wait_for(lambda: [each.state for each in world.runs()] == ["done", "done"], 120)
    worse = world.runs()[1].result
    assert world.versions() == {champion: "active", run.result: "rolled back", worse: "refused"}
    assert [event.kind for event in world.events()][-2:] == ["evaluated", "refused"]
    resources.close()
