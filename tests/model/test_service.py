"""The service with the real small model: the worker follows the registry without a restart."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from sqlalchemy import select

from embedded.service import Embedded
from fake_github import FakeGitHub, Pull
from fake_github.repos import Repo
from ptopt.model.backends.loading import read_adapter
from ptopt.model.registry import Registry
from ptopt.report.text import MODEL_AWAY
from service.database import reading
from service.models import CommentRow, ReviewRow
from service.settings import Settings
from tests.model.backends.vllm_server import VLLMServer
from tests.worker.processes import wait_for
from tests.worker.pulls import FAST, SLOW, job_for, run, settings_for
from tests.worker.rows import row
from worker.job_context import Resources
from worker.model_loading import Served

pytest.importorskip("torch")
pytestmark = [
    pytest.mark.model,
    pytest.mark.slow,
    pytest.mark.filterwarnings("default"),  # libraries warn of themselves
]

# The model is heard, and a little: what it says is seen in the confidence, and no finding is lost.
_CALIBRATION = {
    "judge": {
        "intercept": 2.0,
        "of_confidence": 0.0,
        "of_log_odds": 0.6,
        "rules": ["item-every-step"],
        "floor": 0.0,
    }
}


@pytest.fixture
def registry(tmp_path: Path) -> Registry:
    return Registry(tmp_path / "registry")


@pytest.fixture
def hashes(registry: Registry, make_adapter: Callable[..., Path], tmp_path: Path) -> list[str]:
    added = []
    for seed in (1, 2):
        folder = tmp_path / f"made-{seed}"
        shutil.copytree(make_adapter(seed, 2.0), folder)
        (folder / "calibration.json").write_text(json.dumps(_CALIBRATION))
        added.append(registry.add(folder))
    return added


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
def settings(github: FakeGitHub, sqlite_url: str, registry: Registry) -> Settings:
    return settings_for(
        github,
        sqlite_url,
        log_format="console",
        model_registry=registry.folder,
        model_seconds=300,
        model_threads=1,
    )


def reviewed(embedded: Embedded, pull: Pull) -> tuple[ReviewRow, float]:
    """The review of the head, and how sure its one comment is."""
    engine = embedded.resources.engine
    job_id = job_for(embedded.resources, pull)
    wait_for(lambda: row(engine, job_id).state == "done", 300)
    with reading(engine) as session:
        review = session.scalars(select(ReviewRow).where(ReviewRow.pull == pull.number)).one()
        comment = session.scalars(select(CommentRow.confidence).where(CommentRow.pull == pull.number)).one()
    return review, comment


def test_the_worker_follows_the_alias(
    settings: Settings, repo: Repo, registry: Registry, hashes: list[str]
) -> None:
    one, two = hashes
    pulls = [repo.pull(files={"train.py": SLOW}, author="dev") for _ in range(3)]
    embedded = Embedded(settings)
    embedded.start()
    serving = embedded.resources.model._state.serving
    try:
        registry.promote(one, "champion")
        first, by_one = reviewed(embedded, pulls[0])
        assert (first.adapter, first.model_note) == (one, "")
        registry.promote(two, "champion")
        wait_for(lambda: serving["champion"].key == two, 300)
        second, by_two = reviewed(embedded, pulls[1])
        assert (second.adapter, second.model_note) == (two, "")
        assert by_one != by_two, "other weights give other answers"
        assert embedded.resources.model._state.held == [serving["champion"]], "the old one is gone"
        registry.rollback("champion")
        wait_for(lambda: serving["champion"].key == one, 300)
        third, again = reviewed(embedded, pulls[2])
        assert (third.adapter, again) == (one, by_one)
        assert all(len(pull.review_comments) == 1 for pull in pulls)
    finally:
        embedded.stop()


@pytest.fixture(scope="module")
def server(base_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[VLLMServer]:
    pytest.importorskip("vllm")
    server = VLLMServer(base_model, tmp_path_factory.mktemp("vllm"))
    try:
        server.wait()
        yield server
    finally:
        server.kill()


def test_a_worker_with_a_vllm_server(
    settings: Settings,
    server: VLLMServer,
    repo: Repo,
    registry: Registry,
    hashes: list[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Loaded, reviewed with, replaced, unloaded; loaded again when it was lost; and the server killed in the end."""
    monkeypatch.setattr(Served, "linger", 0.0)
    monkeypatch.setattr("worker.model_pool._KEEP", 0.5)
    pulls = [repo.pull(files={"train.py": SLOW}, author="dev") for _ in range(4)]
    resources = Resources(settings.model_copy(update={"model_server": server.url}))
    from ptopt.model.backends.openai import OpenAIBackend  # needs httpx

    admin = OpenAIBackend(server.url, "base")
    names = [read_adapter(registry.folder / "adapters" / hash_).served_name for hash_ in hashes]
    state = resources.model._state

    def reviewed_by(pull: Pull) -> tuple[str, str, float]:
        assert run(resources, job_for(resources, pull)).state == "done"
        told = select(ReviewRow.adapter, ReviewRow.model_note, CommentRow.confidence).join_from(
            ReviewRow, CommentRow, CommentRow.review_id == ReviewRow.id
        )
        with reading(resources.engine) as session:
            adapter, note, confidence = session.execute(told.where(ReviewRow.pull == pull.number)).one()
        return adapter, note, confidence

    try:
        registry.promote(hashes[0], "champion")
        first = reviewed_by(pulls[0])
        assert first[:2] == (hashes[0], "")
        registry.promote(hashes[1], "champion")
        wait_for(lambda: state.serving["champion"].key == hashes[1])
        second = reviewed_by(pulls[1])
        assert second[:2] == (hashes[1], "") and second[2] != first[2]
        wait_for(lambda: set(admin.served_models()) == {"base", names[1]})
        admin.unload_adapter(names[1])  # as after a restart of the server
        wait_for(lambda: names[1] in admin.served_models())
        assert reviewed_by(pulls[2]) == second
        server.kill()
        last = reviewed_by(pulls[3])
        assert last[0] == hashes[1] and "model server" in last[1]
        assert MODEL_AWAY in pulls[3].reviews[0].body
    finally:
        admin.close()
        resources.close()
