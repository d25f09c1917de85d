"""The ranker cycle: dataset, fit, evaluation, gate, and the registration as a canary.

    <folder>/ranker-<run>/   rows.jsonl   weights.json   evaluation-<champion>.json   card.json

Each step writes its file as a whole and then its event. A process that goes on keeps the steps whose file is what the event says,
and does the others again; the last step is one transaction. So it may be killed anywhere.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Callable, Collection, Sequence
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

SUBJECT = "ranker"
STEPS = ("dataset", "fitted", "evaluated")
FEWEST = 20  # answers to learn from
_SHARE = 0.5  # what feedback may weigh, of what the judged comments weigh


class NothingToLearnError(Exception):
    """The run ends without a candidate; the message is one line."""


@dataclass(frozen=True)
class Options:
    """`work`, `fixes`, `gold`: files of judged comments, see `training.ranker`. `reached` is called at each point of a run."""

    database: str
    folder: Path
    private: Collection[str] = ()
    work: Sequence[Path] = (DATA / "verdicts" / "work.jsonl",)
    fixes: Sequence[Path] = (DATA / "found" / "work.jsonl",)
    gold: Sequence[Path] = (DATA / "verdicts" / "calibrate.jsonl",)
    reached: Callable[[str], None] = field(default=lambda point: None)


@dataclass(frozen=True, slots=True)
class Result:
    state: str  # "canary" | "refused"
    reason: str
    hash: str
    card: dict[str, Any]


def retrain(records: Records, run: Run, options: Options) -> Result:
    """Do what is left of the run. Raises NothingToLearnError, and LostError where another process took it over."""
    folder = options.folder / f"{SUBJECT}-{run.id}"
    folder.mkdir(parents=True, exist_ok=True)
    _forget_older(options.folder, folder)
    steps = _Steps(records, run, folder, options.reached)
    options.reached("claimed")
    dataset = Dataset.of_text(steps.text("dataset", "rows.jsonl", lambda: _dataset(run, options)))
    text = steps.text("fitted", "weights.json", lambda: _fitted(dataset, options))
    active = records.active(SUBJECT)
    weights = active[1] if active is not None else None
    # Another champion than before a kill is another comparison.
    against = active[0] if active is not None else "built-in"
    name = f"evaluation-{against[:12]}.json"
    figures = json.loads(steps.text("evaluated", name, lambda: _evaluated(text, weights, dataset, options)))
    hash_ = _hash(text)
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
    _write(folder / "card.json", json.dumps(card, indent=2) + "\n")
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


def _judged(options: Options) -> list[Row]:
    judged = read(options.work) + read(options.fixes, drawn=False)
    if both := {row.repo for row in judged} & {row.repo for row in read(options.gold)}:
        raise NothingToLearnError(f"{min(both)} is in the gold set: nothing may be learned from it")
    return judged


def _fitted(dataset: Dataset, options: Options) -> tuple[str, dict[str, Any]]:
    judged = _judged(options)
    rows = judged + scaled(dataset.learned, _SHARE * len(judged))
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
        on_gold_alone=train(_judged(options), []) if active is None else None,
    ).figures()
    return json.dumps(found, indent=2, sort_keys=True) + "\n", found


class _Steps:
    """The steps of a run that end in a file."""

    def __init__(self, records: Records, run: Run, folder: Path, reached: Callable[[str], None]) -> None:
        self._records, self._run, self._folder, self._reached = records, run, folder, reached

    def text(self, kind: str, name: str, make: Callable[[], tuple[str, dict[str, Any]]]) -> str:
        """The text of the file, made now unless an earlier process did."""
        path = self._folder / name
        known = self._records.step(self._run, kind)
        if known and path.is_file():
            text = path.read_text(encoding="utf-8")
            if _hash(text) == known:
                self._reached(f"{kind} kept")
                return text
        text, detail = make()
        self._reached(f"{kind} made")
        _write(path, text)
        self._reached(f"{kind} written")
        self._records.note(self._run, kind, _hash(text), detail, then=STEPS[STEPS.index(kind) + 1 :])
        self._reached(f"{kind} noted")
        return text


def _forget_older(folder: Path, current: Path) -> None:
    """What was learned from before goes: some of it may belong to people who have left."""
    for other in folder.glob(f"{SUBJECT}-*"):
        if other != current and other.is_dir():
            shutil.rmtree(other, ignore_errors=True)


def _write(path: Path, text: str) -> None:
    """The whole file, or what was there before, whenever the process ends."""
    part = path.with_name(f".{path.name}.part")
    with part.open("w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    os.replace(part, path)


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
