"""Judged comments, as rows: verdict and features."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

RIGHT, TRIVIAL, WRONG = "RTW"

# Of a row of a labelled fix: most of these are useful, unlike comments on random commits, and with the weight of a comment
# they put comments of repositories left out into a worse order.
FOUND_WEIGHT = 0.3


@dataclass(frozen=True, slots=True)
class Row:
    """A comment that somebody judged: R right and useful, T true but trivial, W wrong."""

    repo: str
    rule: str
    verdict: str
    features: Mapping[str, float]
    text: str  # its message, "" where that is not kept
    drawn: bool = True  # of a random commit; else of a labelled fix, where most comments are useful
    # By a reader; else by what people did about it, which tells useful comments from others, and not right from wrong ones.
    judged: bool = True
    weight: float = 1.0

    @property
    def useful(self) -> bool:
        return self.verdict == RIGHT

    @property
    def right(self) -> bool:
        return self.verdict != WRONG


def read_row(row: Mapping[str, Any], drawn: bool = True) -> Row | None:
    """A line of a file as a row; None where it says nothing to a ranker: without features, or left out as `read` says."""
    verdict, features = row["verdict"], row.get("features")
    if verdict not in (RIGHT, TRIVIAL, WRONG) or not features or row.get("dated"):
        return None
    known = {str(k): float(v) for k, v in features.items()}
    message, weight = row.get("message", ""), 1.0 if drawn else FOUND_WEIGHT
    return Row(row["repo"], row["rule"], verdict, known, message, drawn, weight=weight)


def read(files: Iterable[Path], drawn: bool = True) -> list[Row]:
    """The decided rows that have features; `drawn`: are they of random commits? Raises ValueError for a line that is no row.

    Left out: U, undecidable, and `dated` rows, whose verdict is about a year in which the advised API did not exist.
    """
    rows = []
    for path in files:
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
            if not line.strip():
                continue
            try:
                row = read_row(json.loads(line), drawn)
                if row is not None:
                    rows.append(row)
            except (KeyError, TypeError, ValueError, AttributeError) as error:
                raise ValueError(f"{path}, line {number}: not a judged comment ({error!r})") from error
    return rows


def by_repository(rows: Sequence[Row], folds: int) -> list[int]:
    """The fold of each row, all rows of a repository in one, the folds about equally large."""
    sizes: dict[str, int] = {}
    for row in rows:
        sizes[row.repo] = sizes.get(row.repo, 0) + 1
    loads = [0] * folds
    fold_of: dict[str, int] = {}
    for repo in sorted(sizes, key=lambda name: (-sizes[name], name)):
        smallest = min(range(folds), key=lambda fold: (loads[fold], fold))
        fold_of[repo] = smallest
        loads[smallest] += sizes[repo]
    return [fold_of[row.repo] for row in rows]
