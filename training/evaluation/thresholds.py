"""Whether what a model says by itself may be shown: from which probability its findings, and whether its sentences.

Fitted on the validation split, and kept only where the test split, whose projects it has not seen either, agrees.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from scipy.stats import binomtest

from ptopt.model.calibration import Calibration
from training.evaluation.study import TUNED, Study
from training.evaluation.synthetic import OwnFinding

PRECISION = 0.75  # of the findings that are shown, as the lower end of the interval
SUPPORTED = 0.9  # of the sentences, likewise
LEAST = 20  # cases that a decision needs


def at_least(right: int, number: int) -> float:
    """A share that is reached with a probability of 95 % (Wilson's interval); 0 of too few cases."""
    if number < LEAST:
        return 0.0
    return float(binomtest(right, number).proportion_ci(0.9, "wilson").low)


def fit_threshold(confidences: Sequence[float], right: Sequence[bool]) -> float | None:
    """The lowest confidence from which so many findings are right that `PRECISION` is reached; None where there is none."""
    found = None
    ranked = sorted(zip(confidences, right, strict=True), reverse=True)
    correct = 0
    for number, (confidence, good) in enumerate(ranked, 1):
        correct += good
        last_of_equals = number == len(ranked) or ranked[number][0] < confidence
        if last_of_equals and at_least(correct, number) >= PRECISION:
            found = confidence
    return found


def with_own_words(calibration: Calibration, found: Study) -> tuple[Calibration, str]:
    """The calibration with the thresholds of findings and sentences, and what was decided about these, in words."""
    said, held = found.advised.get(TUNED), found.advised_held_out
    if said is None or held is None:
        return calibration, ""
    threshold = fit_threshold(
        [_confidence(calibration, own) for own in held.own], [own.right for own in held.own]
    )
    shown = [
        own.right for own in said.own if threshold is not None and _confidence(calibration, own) >= threshold
    ]
    advises = at_least(sum(shown), len(shown)) >= PRECISION
    supported, number = said.supported, said.explained
    explains = min(at_least(held.supported, held.explained), at_least(supported, number)) >= SUPPORTED
    words = [
        f"Its own findings are {'shown' if advises else 'not shown'}: "
        + (
            f"no threshold reaches a precision of {PRECISION:.0%} on the {len(held.own)} of the validation split."
            if threshold is None
            else f"from {threshold:.2f}, {sum(shown)} of {len(shown)} of the test split are right."
        ),
        f"Its sentences are {'shown' if explains else 'not shown'}: {supported} of {number} speak of the code only.",
    ]
    fitted = dataclasses.replace(
        calibration, advise_threshold=threshold if advises else None, explain=explains
    )
    return fitted, " ".join(words)


def _confidence(calibration: Calibration, own: OwnFinding) -> float:
    return calibration.own_confidence(own.rule, own.log_odds)
