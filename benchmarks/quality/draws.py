"""What the gates of the ranker are worth on repositories that neither the rules nor the weights had met.

    python -m benchmarks.quality draws [--before 228] [--also FILE ...]

Rows that the ranker learns from flatter it: mistakes that readers found in them were repaired, and are no rows any more. So each draw
of fresh repositories (`data/rounds/`, then `data/unlearned/`) is scored by weights that are fitted again, without the
draw and all later ones. The table counts the comments that would be made above each pair of gates, and how readers judged them, over
all draws; where two read a comment, each has half of the say. `--before` leaves the later draws out, for a choice to be
tested on them. The weights of each draw also learn from the judged comments of `--also`, which are of no draw: are they worth anything?
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.quality.common import read_rows
from benchmarks.quality.parts import TUNED, part_of, read_names
from benchmarks.quality.verdicts import FILES
from training.ranker.fit import LEAST_STATED, LEAST_USEFUL, train
from training.ranker.rows import read_row

_DATA = Path(__file__).parent / "data"
DRAWS = ("rounds", "unlearned")
STATED = (0.45, 0.55, 0.65, 0.75)
USEFUL = (0.4, 0.47, 0.5, 0.55, 0.6)


class Scored(NamedTuple):
    """A judged comment of a fresh repository: what its rule stated, what weights that had not met it give, what readers said."""

    draw: str
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
    parser.add_argument("--also", type=Path, nargs="+", default=[], metavar="FILE", help="more to learn from")
    options = parser.parse_args(arguments)
    draws = {
        file.stem: read_names([file]) for folder in DRAWS for file in sorted((_DATA / folder).glob("*.txt"))
    }
    found = scored(
        draws,
        list(read_rows(FILES)),
        list(read_rows(sorted((_DATA / "found").glob("*.jsonl")))),
        options.before,
        list(read_rows(options.also)),
    )
    columns = f"{'comments':>10}{'useful':>9}{'trivial':>9}{'wrong':>7}"
    print(f"{'rule states':>12}{'P(useful)':>11}{columns}")
    for stated in STATED:
        for useful in USEFUL:
            print(f"{stated:>12}{useful:>11}{_counts(_made(found, stated, useful))}")
    print(f"\n{f'draw, from {LEAST_STATED} and {LEAST_USEFUL}':>23}{columns}")
    for draw in sorted({one.draw for one in found}):
        of_draw = [one for one in found if one.draw == draw]
        print(f"{draw:>23}{_counts(_made(of_draw, LEAST_STATED, LEAST_USEFUL))}")
    return 0


def _made(found: Sequence[Scored], stated: float, useful: float) -> list[Scored]:
    return [one for one in found if one.right and one.stated >= stated and one.useful >= useful]


def _counts(made: Sequence[Scored]) -> str:
    useful, trivial, wrong = _shares(made)
    return f"{len(made):>10}{useful:>9.0%}{trivial:>9.0%}{wrong:>7.0%}"


def scored(
    draws: Mapping[str, frozenset[str]],
    judged: Sequence[Mapping[str, Any]],
    found: Sequence[Mapping[str, Any]],
    before: str = "",
    also: Sequence[Mapping[str, Any]] = (),
) -> list[Scored]:
    """The comments of the draws, or of those before `before`, each by weights fitted without its draw and later ones; of a
    repository in `also`, without what `also` says of it."""
    by_repository = {repo: draw for draw, repos in draws.items() for repo in repos}

    def draw_of(row: Mapping[str, Any]) -> str:
        """A row names its draw where a repository is in more than one; "" before the first."""
        return str(row.get("draw", by_repository.get(row["repo"], "")))

    tuned = read_names([TUNED])
    learned = [row for row in judged if part_of(row["repo"], tuned) != "judge"]
    known = [
        (draw_of(row), read)
        for rows, drawn in ((learned, True), (found, False))
        for row in rows
        if (read := read_row(row, drawn)) is not None
    ]
    more = [read for row in also if (read := read_row(row)) is not None]
    scored = []
    for draw in sorted({*draws, *map(draw_of, judged)} - {""}):
        if before and draw >= before:
            break
        of_draw = {row["repo"] for row in judged if draw_of(row) == draw}
        apart = [row for row in more if row.repo not in of_draw]
        ranker = train([*(row for its_draw, row in known if its_draw < draw), *apart], [])
        for row in judged:
            read = read_row(row)
            if read is None or draw_of(row) != draw:
                continue
            features = read.features
            truth = ranker.truth(features)
            scored.append(
                Scored(
                    draw,
                    features.get("stated confidence", 0.0),
                    truth is None or truth >= ranker.least_right,
                    ranker.worth(features),
                    (row["verdict"], *([row["second"]["verdict"]] if "second" in row else [])),
                )
            )
    return scored


def _shares(made: Sequence[Scored]) -> tuple[float, float, float]:
    """Useful, trivial and wrong, of all that readers said."""
    said = dict.fromkeys("RTWU", 0.0)
    for one in made:
        for verdict in one.verdicts:
            said[verdict] += 1 / len(one.verdicts)
    number = max(len(made), 1)
    return said["R"] / number, said["T"] / number, said["W"] / number
