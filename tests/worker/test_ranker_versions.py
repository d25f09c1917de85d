"""Which ranker reviews a pull request: the version of its repository, followed without a restart, and what is recorded."""

from __future__ import annotations

import json
from hashlib import sha256
from pathlib import Path

import pytest
from sqlalchemy import select, update

from fake_github import FakeGitHub, Pull
from fake_github.repos import Repo
from service import versions
from service.database import reading, writing
from service.models import CommentRow, Repository, ReviewRow, Version, VersionState, VersionUse
from service.settings import Settings
from tests.worker.pulls import FAST, SLOW, job_for, now, run
from worker.isolation import Isolation
from worker.job_context import Resources
from worker.ranker_versions import RankerVersions

STATED = (Path(__file__).parents[1] / "stated_confidence.json").read_text()
SILENT = json.dumps(json.loads(STATED) | {"threshold": 0.999})


@pytest.fixture
def settings(settings: Settings) -> Settings:
    return settings.model_copy(update={"ranker_canary_share": 1.0})


def version(resources: Resources, weights: str, state: VersionState = VersionState.CANARY) -> str:
    hash_ = sha256(weights.encode()).hexdigest()
    with writing(resources.engine) as session:
        row = {"state": state.value, "weights": weights, "card": {}, "created_at": now(), "changed_at": now()}
        session.add(Version(subject="ranker", hash=hash_, **row))
    return hash_


def reviewed(resources: Resources, pull: Pull) -> int:
    """Review the head; how many comments there are now."""
    job = run(resources, job_for(resources, pull))
    assert job.state == "done", job.error
    return len(pull.review_comments)


def used(resources: Resources) -> list[tuple[str, bool]]:
    with reading(resources.engine) as session:
        return [(u.version, u.failed) for u in session.scalars(select(VersionUse).order_by(VersionUse.id))]


def test_a_version_is_followed_and_taken_back_without_a_restart(resources: Resources, repo: Repo) -> None:
    first, second, third = (repo.pull(files={f"{n}.py": SLOW}, author="dev") for n in "abc")
    assert reviewed(resources, first) == 1
    silent = version(resources, SILENT)
    assert reviewed(resources, second) == 0
    with writing(resources.engine) as session:
        assert versions.roll_back(session, "ranker", now(), {}) == silent
    assert reviewed(resources, third) == 1
    with reading(resources.engine) as session:
        reviews = session.scalars(select(ReviewRow).order_by(ReviewRow.id)).all()
    assert [review.ranker for review in reviews] == ["", silent, ""]
    assert [ranker for ranker, _ in used(resources)][-2:] == [silent, ""]
    assert not any(failed for _, failed in used(resources))


def test_children_rank_with_it_too(resources: Resources, repo: Repo) -> None:
    """What a child leaves out never comes back: both sides must know the same weights."""
    strict = version(resources, json.dumps(json.loads(STATED) | {"least_stated": 0.999}))
    assert isinstance(resources.isolation, Isolation)
    assert reviewed(resources, repo.pull(files={"a.py": SLOW}, author="dev")) == 0
    with reading(resources.engine) as session:
        assert session.scalars(select(ReviewRow.ranker)).all() == [strict]


def test_the_canary_is_for_its_share_alone(resources: Resources, repo: Repo) -> None:
    active, canary = version(resources, STATED, VersionState.ACTIVE), version(resources, SILENT)
    for share, wanted in ((0.0, active), (1.0, canary)):
        assert RankerVersions(resources.engine, share).of(repo.id).hash == wanted


@pytest.mark.parametrize("weights", ["{}", "[]", "no JSON", SILENT.replace('"format": 3', '"format": 4')])
def test_a_version_that_cannot_be_read_stops_no_review_and_counts_as_failed(
    resources: Resources, repo: Repo, weights: str
) -> None:
    assert reviewed(resources, repo.pull(files={"a.py": FAST}, author="dev")) == 0
    broken = version(resources, weights)
    assert reviewed(resources, repo.pull(files={"b.py": SLOW}, author="dev")) == 1
    assert used(resources)[-1] == (broken, True)


def test_weights_that_were_tampered_with_do_not_rank(resources: Resources, repo: Repo) -> None:
    silent = version(resources, SILENT)
    with writing(resources.engine) as session:
        session.execute(update(Version).values(weights=STATED))
    choice = resources.rankers.of(repo.id)
    assert (choice.hash, choice.loaded, choice.unreadable) == (silent, None, True)


def test_features_are_kept_only_where_the_base_branch_opts_in(
    resources: Resources, github: FakeGitHub
) -> None:
    opted_in = github.repository("octo/open", {"train.py": FAST, ".ptopt.toml": b"learn = true\n"})
    shared = github.repository("octo/.github", {".ptopt.toml": b"learn = true\n"})
    others = github.repository("octo/others", {"train.py": FAST})
    for each in (opted_in, others):
        each.permission("dev", "write")
    # The head of a pull request opts nobody in.
    assert reviewed(resources, opted_in.pull(files={"a.py": SLOW}, author="dev")) == 1
    asks = {"a.py": SLOW, ".ptopt.toml": b"learn = true\n"}
    assert reviewed(resources, others.pull(files=asks, author="dev")) == 1
    with reading(resources.engine) as session:
        kept = dict(session.execute(select(CommentRow.repository_id, CommentRow.features)).all())
        learn = dict(session.execute(select(Repository.id, Repository.learn)).all())
    assert kept[opted_in.id]["rule:item-every-step"] == 1.0 and kept[others.id] == {}
    assert learn == {opted_in.id: True, others.id: False} and shared.id not in learn


def test_whoever_opts_out_is_forgotten(resources: Resources, github: FakeGitHub) -> None:
    repo = github.repository("octo/open", {"train.py": FAST, ".ptopt.toml": b"learn = true\n"})
    repo.permission("dev", "write")
    assert reviewed(resources, repo.pull(files={"a.py": SLOW}, author="dev")) == 1
    repo.commit("main", {".ptopt.toml": b"learn = false\n"})
    assert reviewed(resources, repo.pull(files={"b.py": FAST}, author="dev")) == 0
    with reading(resources.engine) as session:
        assert session.scalars(select(CommentRow.features)).all() == [{}]
        assert session.scalars(select(Repository.learn)).all() == [False]
