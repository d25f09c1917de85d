"""What the gates of the ranker are worth on repositories that neither the rules nor the weights had met.

    python -m benchmarks.quality draws [--before 228]

Rows that the ranker learns from flatter it: mistakes that readers found in them were repaired, and are no rows any more. So each draw
of fresh repositories (`data/rounds/`, then `data/unlearned/`) is scored by weights that are fitted again, without the
draw and all later ones. The table counts the comments that would be made above each pair of gates, and how readers judged them, over
all draws; where two read a comment, each has half of the say. `--before` leaves the later draws out, for a choice to be
tested on them.
"""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.quality.common import read_rows
from benchmarks.quality.parts import TUNED, part_of, read_names
from training.ranker.fit import train
from training.ranker.rows import Row, read_row

_DATA = Path(__file__).parent / "data"
DRAWS = ("rounds", "unlearned")
STATED = (0.45, 0.55, 0.65, 0.75, 0.8)
USEFUL = (0.3, 0.4, 0.5, 0.55, 0.6, 0.65)


class Scored(NamedTuple):
    """A judged comment of a fresh repository: what its rule stated, what weights that had not met it give, what readers said."""

    stated: float
    right: bool  # is it likely enough?
    useful: float
    verdicts: tuple[str, ...]


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.quality draws",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--before", default="", metavar="DRAW", help="only draws with a smaller number")
    options = parser.parse_args(arguments)
    draws = {
        file.stem: read_names([file])
        for folder in DRAWS
        for file in sorted((_DATA / folder).glob("*.txt"))
        if not options.before or file.stem < options.before
    }
    found = scored(
        draws,
        list(read_rows(sorted((_DATA / "verdicts").glob("*.jsonl")))),
        list(read_rows(sorted((_DATA / "found").glob("*.jsonl")))),
    )
    print(f"{len(found)} comments of {len(draws)} draws: {', '.join(sorted(draws))}")
    print(f"{'rule states':>12}{'P(useful)':>11}{'comments':>10}{'useful':>9}{'trivial':>9}{'wrong':>7}")
    for stated in STATED:
        for useful in USEFUL:
            made = [one for one in found if one.right and one.stated >= stated and one.useful >= useful]
            shares = "".join(
                f"{share:>{width}.0%}" for share, width in zip(_shares(made), (9, 9, 7), strict=True)
            )
            print(f"{stated:>12}{useful:>11}{len(made):>10}{shares}")
    return 0


def scored(
    draws: Mapping[str, frozenset[str]],
    judged: Sequence[Mapping[str, Any]],
    found: Sequence[Mapping[str, Any]],
) -> list[Scored]:
    """The comments of the draws, each by weights fitted without its draw and later ones."""
    draw_of = {repo: draw for draw, repos in draws.items() for repo in repos}
    tuned = read_names([TUNED])
    learned = [row for row in judged if part_of(row["repo"], tuned) != "judge"]
    scored = []
    for draw in sorted(draws):

        def earlier(rows: Iterable[Mapping[str, Any]], now: str = draw, drawn: bool = True) -> list[Row]:
            kept = (read_row(row, drawn) for row in rows if draw_of.get(row["repo"], "") < now)
            return [row for row in kept if row is not None]

        ranker = train(earlier(learned) + earlier(found, drawn=False), [])
        for row in judged:
            read = read_row(row)
            if read is None or draw_of.get(row["repo"]) != draw:
                continue
            features = read.features
            truth = ranker.truth(features)
            scored.append(
                Scored(
                    features.get("stated confidence", 0.0),
                    truth is None or truth >= ranker.least_right,
                    ranker.worth(features),
                    (row["verdict"], *([row["second"]["verdict"]] if "second" in row else [])),
                )
            )
    return scored


def _shares(made: Sequence[Scored]) -> tuple[float, ...]:
    """Useful, trivial and wrong, of all that readers said."""
    said: Counter[str] = Counter()
    for one in made:
        for verdict in one.verdicts:
            said[verdict] += 1 / len(one.verdicts)
    return tuple(said[verdict] / max(len(made), 1) for verdict in "RTW")
