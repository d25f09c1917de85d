"""The cycle of the ranker: dataset, fit, gate, canary; a worse candidate is refused, a harmful one taken back."""

from __future__ import annotations

import json
from datetime import datetime, timezone

import pytest

from feedback import rollout
from ptopt.ranker.model import read
from service import versions
from service.database import reading, writing
from service.models import Version
from tests.training.retrain.people import DISLIKED, World
from training.retrain import ranker
from training.retrain.ranker import Options
from training.retrain.records import LostError, Records, Run
from training.retrain.steps import NothingToLearnError, Result


def options(world: World) -> Options:
    return Options(world.url, world.folder, work=(world.work,), fixes=(), gold=(world.gold,))


def retrained(world: World) -> Result:
    records = Records(world.url)
    run = records.claim("ranker", "of the test", 60)
    assert isinstance(run, Run)
    try:
        with records.kept(run, 60):
            return ranker.retrain(records, run, options(world))
    finally:
        records.close()


def test_what_people_say_becomes_a_canary_and_then_active(world: World) -> None:
    champion = world.active()
    world.answer()
    result = retrained(world)
    assert (result.state, result.card["parent"]) == ("canary", champion), result.reason
    assert world.versions() == {champion: "active", result.hash: "canary"}
    kinds = [(event.kind, event.hash) for event in world.events()]
    assert [kind for kind, _ in kinds] == ["started", "dataset", "fitted", "evaluated", "canary"]
    assert kinds[2][1] == kinds[4][1] == result.hash
    (run,) = world.runs()
    assert (run.state, run.result, run.owner != "") == ("done", result.hash, True)
    with reading(world.engine) as session:
        card = session.get_one(Version, result.hash).card
        made = read(versions.weights(session, result.hash))
    figures = card["evaluation"]
    assert figures["feedback"]["gain"]["low"] > 0 and figures["gold"]["auc"]["gain"]["low"] > -0.02
    assert card["dataset"]["hash"] == kinds[1][1] and card["dataset"]["held out"] >= 20
    often = {"often:step": 1.0, "stated confidence": 0.7}
    assert made.useful.probability(often | {DISLIKED: 1.0}) + 0.2 < made.useful.probability(often)
    # People like what it shows: the scheduler promotes it.
    world.answer(80, lambda row: True, ranker=champion, seed=4)
    world.answer(80, lambda row: True, ranker=result.hash, seed=5)
    world.people.days_pass(2)
    with writing(world.engine) as session:
        decision = rollout.watch(session, "ranker", datetime.now(timezone.utc))
    assert decision is not None and decision.move == "promote", decision
    assert world.versions() == {champion: "retired", result.hash: "active"}


def test_a_harmful_one_is_rolled_back(world: World) -> None:
    champion = world.active()
    world.answer()
    result = retrained(world)
    world.answer(60, lambda row: True, ranker=champion, seed=4)
    world.answer(60, lambda row: False, ranker=result.hash, seed=5)
    world.people.days_pass(1)
    with writing(world.engine) as session:
        decision = rollout.watch(session, "ranker", datetime.now(timezone.utc))
    assert decision is not None and decision.move == "roll back"
    assert world.versions() == {champion: "active", result.hash: "rolled back"}
    assert [event.kind for event in world.events()][-2:] == ["canary", "rolled back"]


def test_one_that_is_worse_on_gold_is_refused(world: World) -> None:
    """Everybody votes the opposite of what readers say: better on feedback, and wrong."""
    champion = world.active()
    world.answer(600, lambda row: not row.useful)
    result = retrained(world)
    assert result.state == "refused" and "gold" in result.reason
    assert world.versions() == {champion: "active", result.hash: "refused"}
    assert [event.kind for event in world.events()][-1] == "refused"
    assert world.runs()[0].state == "done"


def test_one_that_is_no_better_is_refused(world: World) -> None:
    champion = world.active()
    world.answer(200, lambda row: row.useful)
    result = retrained(world)
    assert result.state == "refused" and "held-out feedback" in result.reason
    assert world.versions()[champion] == "active"


def test_the_same_once_more_is_refused(world: World) -> None:
    world.active()
    world.answer()
    first = retrained(world)
    with writing(world.engine) as session:
        versions.roll_back(session, "ranker", datetime.now(timezone.utc), {})
    again = retrained(world)
    assert (again.hash, again.state) == (first.hash, "refused")
    assert again.reason == "the same weights are there already: rolled back"
    assert world.versions()[first.hash] == "rolled back"


def test_without_answers_there_is_nothing_to_learn(world: World) -> None:
    world.answer(100, learn=False)
    with pytest.raises(NothingToLearnError, match="0 answers to learn from"):
        retrained(world)


def test_datasets_of_earlier_runs_are_deleted(world: World) -> None:
    world.active()
    world.answer()
    retrained(world)
    retrained(world)
    assert [folder.name for folder in world.folder.iterdir()] == ["ranker-2"]
    card = json.loads((world.folder / "ranker-2" / "card.json").read_text())
    assert card["retraining"] == 2
    assert "demo" not in (world.folder / "ranker-2" / "rows.jsonl").read_text(), "no name of a repository"


def test_two_processes_are_one_run(world: World) -> None:
    one, other = Records(world.url), Records(world.url)
    run = one.claim("ranker", "first", 60)
    assert isinstance(run, Run)
    assert isinstance(other.claim("ranker", "second", 60), datetime)
    one.close()
    other.close()
    assert len(world.runs()) == 1


def test_a_process_that_was_thought_dead_writes_nothing_more(world: World) -> None:
    world.active()
    world.answer()
    slow, quick = Records(world.url), Records(world.url)
    old = slow.claim("ranker", "first", 0.0)
    new = quick.claim("ranker", "second", 60)
    assert isinstance(old, Run) and isinstance(new, Run) and (old.id, new.attempts) == (new.id, 2)
    assert new.reason == "first"
    with pytest.raises(LostError):
        slow.note(old, "dataset", "h", {}, then=())
    with pytest.raises(LostError):
        slow.register(old, "h" * 64, "{}", {}, "")
    slow.close()
    quick.close()
    assert [event.kind for event in world.events()] == ["started"]


def test_a_run_that_breaks_off_each_time_is_given_up(world: World) -> None:
    records = Records(world.url)
    for _ in range(5):
        assert isinstance(records.claim("ranker", "again", 0.0), Run)
    run = records.claim("ranker", "anew", 60)
    records.close()
    assert isinstance(run, Run) and (run.id, run.attempts) == (2, 1)
    assert [found.state for found in world.runs()] == ["failed", "running"]
