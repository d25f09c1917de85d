"""The ranker cycle: dataset, fit, evaluation, gate, and the registration as a canary.

    <folder>/ranker-<run>/   rows.jsonl   weights.json   evaluation-<champion>.json   card.json

It may be killed anywhere: see `training.retrain.steps`; the last step is one transaction.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ptopt.ranker.model import default_ranker
from ptopt.ranker.model import read as read_ranker
from training.feedback.evaluations import DATA
from training.feedback.ranker_rows import Dataset, build, scaled
from training.ranker.fit import as_text, train
from training.ranker.rows import Row, read
from training.retrain.gate import evaluate
from training.retrain.records import Records, Run
from training.retrain.steps import NothingToLearnError, Reached, Result, Steps, hash_of, write

SUBJECT = "ranker"
FEWEST = 20  # answers to learn from
SHARE = 0.5  # what feedback may weigh, of what the judged comments weigh


@dataclass(frozen=True)
class Options:
    """`work`, `fixes`, `gold`: files of judged comments, see `training.ranker`. `reached` is called at each point of a run."""

    database: str
    folder: Path
    private: Collection[str] = ()
    work: Sequence[Path] = (DATA / "verdicts" / "work.jsonl",)
    fixes: Sequence[Path] = (DATA / "found" / "work.jsonl",)
    gold: Sequence[Path] = (DATA / "verdicts" / "calibrate.jsonl",)
    reached: Reached = field(default=lambda point: None)


def retrain(records: Records, run: Run, options: Options) -> Result:
    """Do what is left of the run. Raises NothingToLearnError, and LostError where another process took it over."""
    steps = Steps(records, run, options.folder, options.reached)
    dataset = Dataset.of_text(steps.text("dataset", "rows.jsonl", lambda: _dataset(run, options)))
    text = steps.text("fitted", "weights.json", lambda: _fitted(dataset, options))
    active = records.active(SUBJECT)
    weights = active[1] if active is not None else None
    # Another champion than before a kill is another comparison.
    against = active[0] if active is not None else "built-in"
    name = f"evaluation-{against[:12]}.json"
    figures = json.loads(steps.text("evaluated", name, lambda: _evaluated(text, weights, dataset, options)))
    hash_ = hash_of(text)
    card = {
        "name": f"ranker-{hash_[:12]}", "made by": "python -m training retrain", "retraining": run.id,
        "reason": run.reason, "parent": against,
        "dataset": {
            "hash": records.step(run, "dataset"), "learned": len(dataset.learned), "held out": len(dataset.held_out),
            "repositories": len({answer.repository for answer in dataset.answers}),
            "good": sum(answer.good for answer in dataset.answers),
        },
        "evaluation": figures,
    }  # fmt: skip
    write(steps.folder / "card.json", json.dumps(card, indent=2) + "\n")
    options.reached("registering")
    state, reason = records.register(run, hash_, text, card, figures["refused"])
    options.reached("registered")
    return Result(state, reason, hash_, card)


def _dataset(run: Run, options: Options) -> tuple[str, dict[str, Any]]:
    made = build(options.database, private=options.private, until=run.created_at)
    if len(made.learned) < FEWEST:
        why = "; ".join(f"{number} left out: {reason}" for reason, number in made.left_out.items())
        raise NothingToLearnError(
            f"{len(made.learned)} answers to learn from, fewer than {FEWEST}{f' ({why})' if why else ''}"
        )
    detail = {
        "learned": len(made.learned),
        "held out": len(made.held_out),
        "left out": dict(made.left_out),
    }
    return made.text(), detail


def judged_rows(work: Sequence[Path], fixes: Sequence[Path], gold: Sequence[Path]) -> list[Row]:
    """What readers judged. Raises NothingToLearnError where the gold set has one of the repositories."""
    judged = read(work) + read(fixes, drawn=False)
    if both := {row.repo for row in judged} & {row.repo for row in read(gold)}:
        raise NothingToLearnError(f"{min(both)} is in the gold set: nothing may be learned from it")
    return judged


def _fitted(dataset: Dataset, options: Options) -> tuple[str, dict[str, Any]]:
    judged = judged_rows(options.work, options.fixes, options.gold)
    rows = judged + scaled([answer.row() for answer in dataset.learned], SHARE * len(judged))
    origin = f"{len(judged)} judged comments and {len(dataset.learned)} that people answered"
    fitted = train(rows, [])
    return as_text(fitted, origin), {"origin": origin, "threshold": fitted.threshold}


def _evaluated(
    text: str, active: str | None, dataset: Dataset, options: Options
) -> tuple[str, dict[str, Any]]:
    """`active`: the weights in use, None for those that ptopt carries, which have seen the gold set."""
    held_out = dataset.held_out
    found = evaluate(
        read_ranker(text),
        read_ranker(active) if active is not None else default_ranker(),
        read(options.gold),
        [answer.row() for answer in held_out],
        [answer.pull for answer in held_out],
        on_gold_alone=train(judged_rows(options.work, options.fixes, options.gold), [])
        if active is None
        else None,
    ).figures()
    return json.dumps(found, indent=2, sort_keys=True) + "\n", found
