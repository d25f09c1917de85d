"""A service's database with people who answer, and judged comments of repositories that are not theirs."""

from __future__ import annotations

import functools
import json
import random
from collections.abc import Callable, Sequence
from datetime import datetime, timezone
from hashlib import sha256
from pathlib import Path

from sqlalchemy import Engine, select

from ptopt.ranker.model import Ranker
from service.database import reading, writing
from service.models import LearningEvent, Retraining, Version, VersionState
from training.ranker.fit import as_text, train
from training.ranker.rows import Row
from training.retrain.simulated import Simulated

DISLIKED = "rule:fussy"


def judged(number: int, seed: int, prefix: str, fussy: float = 0.0) -> list[Row]:
    """Comments that are useful where the line runs at each step. Some are of a rule that readers like as much as others."""
    chance = random.Random(seed)
    found = []
    for index in range(number):
        often, rule = chance.random() < 0.5, chance.random() < fussy
        known = {
            "often:step": float(often), DISLIKED: float(rule), "stated confidence": 0.7, "noise": chance.random(),
        }  # fmt: skip
        useful = often if chance.random() < 0.9 else not often
        found.append(
            Row(
                f"{prefix}/{index % (12 if number < 1000 else 60)}",
                "some-rule",
                "R" if useful else "T",
                known,
                "",
            )
        )
    return found


@functools.cache
def seen_the_judged_alone() -> str:
    """The text of a ranker that nobody's answers went into; the same for all tests, since fitting is deterministic."""
    return as_text(train(_judged(), []), "of the tests")


def _judged() -> list[Row]:
    return judged(240, 1, "read/work", fussy=0.2)


def without_the_disliked(row: Row) -> bool:
    """People who want none of that rule, and agree with the readers otherwise."""
    return row.useful and not row.features[DISLIKED]


def write(path: Path, rows: Sequence[Row]) -> Path:
    lines = (
        json.dumps({"repo": r.repo, "rule": r.rule, "verdict": r.verdict, "features": dict(r.features)})
        for r in rows
    )
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


class World:
    """Files of judged comments, and the database."""

    def __init__(self, folder: Path, url: str, engine: Engine) -> None:
        self.url, self.engine, self.folder = url, engine, folder / "retraining"
        self.work = write(folder / "work.jsonl", _judged())
        self.gold = write(folder / "gold.jsonl", judged(1500, 2, "read/gold"))
        self.people = Simulated(url)

    def close(self) -> None:
        self.people.close()

    def answer(
        self, number: int = 300, wanted: Callable[[Row], bool] = without_the_disliked, *, ranker: str = "",
        learn: bool = True, seed: int = 3,
    ) -> None:  # fmt: skip
        self.people.answer(judged(number, seed, "their", fussy=0.5), wanted, ranker=ranker, learn=learn)

    def active(self, fitted: Ranker | None = None) -> str:
        """Let this ranker be the active version; else one that has seen the judged comments alone."""
        text = as_text(fitted, "of the tests") if fitted else seen_the_judged_alone()
        hash_ = sha256(text.encode()).hexdigest()
        now = datetime.now(timezone.utc)
        with writing(self.engine) as session:
            row = {"state": VersionState.ACTIVE.value, "weights": text, "card": {}}
            session.add(Version(subject="ranker", hash=hash_, **row, created_at=now, changed_at=now))
        return hash_

    def versions(self) -> dict[str, str]:
        """State by hash."""
        with reading(self.engine) as session:
            return {row.hash: row.state for row in session.scalars(select(Version))}

    def events(self) -> list[LearningEvent]:
        with reading(self.engine) as session:
            return list(session.scalars(select(LearningEvent).order_by(LearningEvent.id)))

    def runs(self) -> list[Retraining]:
        with reading(self.engine) as session:
            return list(session.scalars(select(Retraining).order_by(Retraining.id)))
