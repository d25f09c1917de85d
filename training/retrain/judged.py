"""Whether a retrained adapter is better: its calibration, and the comparison with what is in use.

What counts is the confidence that a review would give: the ranker's, and the judge's log-odds on top. The ranker in use has
learned from what is measured here; one that was fitted to the comments which the adapter learned from stands in for it, on both sides.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ptopt.model.calibration import Calibration
from ptopt.ranker.model import Ranker
from training.feedback.adapter_rows import Dataset, Example, Part, part_of
from training.feedback.ranker_rows import scaled
from training.ranker.fit import train
from training.ranker.rows import Row
from training.retrain.gate import Evaluation, Scored, compare
from training.retrain.ranker import SHARE
from training.retrain.steps import NothingToLearnError, Reached

MEASURED: tuple[Part, ...] = ("gold", "held out")
Scores = NDArray[np.float64]


def evaluate(
    dataset: Dataset,
    judged_rows: Sequence[Row],
    adapter: Path,
    champion: Path | None,
    threads: int | None,
    reached: Reached,
) -> tuple[str, dict[str, Any]]:
    """The figures and the calibration of the adapter as JSON, and as an event has them. `champion` None: the rules alone."""
    ranker = _stand_in(dataset, judged_rows)
    shown: dict[Part, list[Example]] = {part: dataset.of(part) for part in (*MEASURED, "validation")}
    ranked = {part: _ranked(ranker, examples) for part, examples in shown.items()}
    judged = log_odds(adapter, shown, threads)
    reached("evaluated judged")
    calibration = _fitted(shown["validation"], ranked["validation"], judged["validation"])
    theirs = Calibration.off()
    if champion is not None:
        theirs = Calibration.from_json((champion / "calibration.json").read_text(encoding="utf-8"))
    by_champion = {part: ranked[part] for part in MEASURED}
    if champion is not None and theirs.judge is not None:
        other = log_odds(champion, {part: shown[part] for part in MEASURED}, threads)
        by_champion = {part: confidence(theirs, shown[part], ranked[part], other[part]) for part in MEASURED}
    scored = {
        part: Scored(
            np.array([example.useful for example in shown[part]], dtype=np.bool_),
            confidence(calibration, shown[part], ranked[part], judged[part]),
            by_champion[part],
            [example.repository for example in shown[part]],
            [example.pull for example in shown[part]],
        )
        for part in MEASURED
    }
    figures = _decided(compare(scored["gold"], scored["held out"]), calibration)
    return json.dumps(figures, indent=2, sort_keys=True) + "\n", figures


def _decided(evaluation: Evaluation, calibration: Calibration) -> dict[str, Any]:
    figures = evaluation.figures() | {"calibration": asdict(calibration)}
    if calibration.judge is None and not figures["refused"]:
        figures["refused"] = "what it says does not go with what people say: it has no calibration"
    return figures


def log_odds(
    adapter: Path, parts: dict[Part, list[Example]], threads: int | None = None
) -> dict[Part, Scores]:
    """What a judge with this adapter says of each example. Raises ModelUnavailableError."""
    from ptopt.model.advisor import Advisor
    from ptopt.model.backends.loading import read_adapter
    from ptopt.model.backends.open import open_backend
    from training.evaluation import judges

    given: dict[str, Any] = {} if threads is None else {"threads": threads}
    advisor = Advisor(
        open_backend(str(adapter), **given),
        Calibration.off(),
        judge_tokens=read_adapter(adapter).judge_tokens,
    )
    try:
        return {
            part: judges.log_odds(advisor, [example.region() for example in examples])
            for part, examples in parts.items()
        }
    finally:
        advisor.close()


def confidence(
    calibration: Calibration, examples: Sequence[Example], ranked: Scores, judged: Scores
) -> Scores:
    """P(useful) of each example in a review with a judge of this calibration."""
    return np.array(
        [
            calibration.confidence(example.rule, prior, said)
            for example, prior, said in zip(examples, ranked.tolist(), judged.tolist(), strict=True)
        ],
        dtype=np.float64,
    )


def _stand_in(dataset: Dataset, judged_rows: Sequence[Row]) -> Ranker:
    """Fitted to what the adapter was trained on, and to what readers judged elsewhere."""
    rows = [row for row in judged_rows if part_of(row.repo) == "train"]
    if not rows:
        raise NothingToLearnError("there are no judged comments to fit a ranker to")
    answers = [example.row() for example in dataset.of("train") if not example.judged]
    return train([*rows, *scaled(answers, SHARE * len(rows))], [])


def _ranked(ranker: Ranker, examples: Sequence[Example]) -> Scores:
    return np.array([ranker.useful.probability(example.features) for example in examples], dtype=np.float64)


def _fitted(examples: Sequence[Example], ranked: Scores, judged: Scores) -> Calibration:
    """On comments that neither the adapter nor the ranker has seen. Off where a higher score means a lower probability."""
    from training.evaluation.calibrate import fit_on_cases

    found = fit_on_cases([example.useful for example in examples], ranked, judged) if examples else None
    if found is None or found.of_log_odds <= 0:
        return Calibration.off()
    return Calibration(judge=found, measured_on=f"{len(examples)} comments of a retraining")
