"""The interface of a judge, model or baseline: log-odds for the candidates of a region."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from ptopt.model.region import Region
from training.progress import Progress

_AT_ONCE = 16  # regions between two steps of the progress bar


class Judge(Protocol):
    """Rates each candidate of each region."""

    def judge(self, regions: Sequence[Region]) -> Sequence[Mapping[str, float]]:
        """Log-odds by rule name, for each region."""
        ...


@dataclass(frozen=True, slots=True)
class LabelledRegion:
    """A region, and for each of its candidates whether the code has the problem; `kind` is that of the sample."""

    region: Region
    truth: Mapping[str, bool]
    project: str
    kind: str = ""

    @property
    def rules(self) -> list[str]:
        return [c.rule for c in self.region.candidates if c.rule in self.truth]


@dataclass(frozen=True, slots=True)
class Targets:
    """The candidates of many regions, one a row: label, rule, project and kind of sample."""

    truth: NDArray[np.bool_]
    rules: tuple[str, ...]
    projects: tuple[str, ...]
    kinds: tuple[str, ...]

    @classmethod
    def of(cls, labelled: Sequence[LabelledRegion]) -> Targets:
        rows = [(a.truth[rule], rule, a.project, a.kind) for a in labelled for rule in a.rules]
        truth, rules, projects, kinds = zip(*rows, strict=True) if rows else ((), (), (), ())
        return cls(np.array(truth, bool), rules, projects, kinds)


def log_odds(
    judge: Judge, labelled: Sequence[LabelledRegion], stage: str = "", progress: Progress | None = None
) -> NDArray[np.float64]:
    """The log-odds of every candidate, in the order of `Targets.of(labelled)`."""
    scores: list[float] = []
    for at in range(0, len(labelled), _AT_ONCE):
        part = labelled[at : at + _AT_ONCE]
        for one, answer in zip(part, judge.judge([a.region for a in part]), strict=True):
            scores += [answer[rule] for rule in one.rules]
        if progress is not None:
            progress(stage, at + len(part), len(labelled))
    return np.array(scores, float)
