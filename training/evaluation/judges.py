"""What every judge answers, be it a model or a baseline: log-odds for the candidates of a region."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from ptopt.model.region import Region

Progress = Callable[[str, int, int], None]  # stage, done, total
_AT_ONCE = 16  # regions between two steps of the progress bar


class Judge(Protocol):
    """Says of each candidate of each region how likely it is right."""

    def judge(self, regions: Sequence[Region]) -> Sequence[Mapping[str, float]]:
        """Log-odds by rule name, for each region."""
        ...


@dataclass(frozen=True, slots=True)
class Asked:
    """A region, and for each of its candidates whether the code has the problem; `kind` is that of the sample."""

    region: Region
    truth: Mapping[str, bool]
    project: str
    kind: str = ""

    @property
    def rules(self) -> list[str]:
        return [c.rule for c in self.region.candidates if c.rule in self.truth]


@dataclass(frozen=True, slots=True)
class Answers:
    """The questions of many regions, one a row: their truths and whose they are."""

    truth: NDArray[np.bool_]
    rules: tuple[str, ...]
    projects: tuple[str, ...]
    kinds: tuple[str, ...]

    @classmethod
    def of(cls, asked: Sequence[Asked]) -> Answers:
        rows = [(a.truth[rule], rule, a.project, a.kind) for a in asked for rule in a.rules]
        truth, rules, projects, kinds = zip(*rows, strict=True) if rows else ((), (), (), ())
        return cls(np.array(truth, bool), rules, projects, kinds)


def log_odds(
    judge: Judge, asked: Sequence[Asked], stage: str = "", progress: Progress | None = None
) -> NDArray[np.float64]:
    """What the judge says of every question, in the order of `Answers.of(asked)`."""
    said: list[float] = []
    for at in range(0, len(asked), _AT_ONCE):
        part = asked[at : at + _AT_ONCE]
        for one, answer in zip(part, judge.judge([a.region for a in part]), strict=True):
            said += [answer[rule] for rule in one.rules]
        if progress is not None:
            progress(stage, at + len(part), len(asked))
    return np.array(said, float)
