"""What readers said of comments, and how far two of them agree.

    python -m benchmarks.quality verdicts [FILE ...] [--repositories FILE ...] [--of FILE]

Each line of FILE is one comment that rules made on a random commit, read in its repository: R right and useful, T true but
trivial, W wrong, U undecidable. Where a second reader read it too, without knowing the first one's verdict, `second` holds theirs.
Of a row of an audit's table, `state_right` says whether its state is right, whatever the words beside it.
"""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.quality.common import read_rows
from benchmarks.quality.parts import read_names
from benchmarks.quality.summary import share
from ptopt.findings import CHECKED

FILES = tuple(sorted((Path(__file__).parent / "data" / "verdicts").glob("*.jsonl")))
VERDICTS = "RTWU"


def cohens_kappa(pairs: Sequence[tuple[str, str]]) -> float:
    """Agreement beyond chance of two readers, from 0 (chance) to 1; 1 where both always say the same one thing."""
    number = len(pairs)
    agreed = sum(first == second for first, second in pairs) / number
    firsts, seconds = (Counter(side) for side in zip(*pairs, strict=True))
    by_chance = sum(firsts[verdict] * seconds[verdict] for verdict in firsts) / number**2
    return 1.0 if by_chance == 1 else (agreed - by_chance) / (1 - by_chance)


def main(arguments: Sequence[str]) -> None:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.quality verdicts",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("files", type=Path, nargs="*", default=FILES)
    parser.add_argument(
        "--repositories",
        type=Path,
        nargs="+",
        help="count only those that FILE names, such as data/rounds/221.txt",
    )
    parser.add_argument(
        "--from-probability",
        type=float,
        default=0.0,
        metavar="P",
        help="of what a general model found only where it gave at least P when it doubted itself",
    )
    parser.add_argument(
        "--of",
        type=Path,
        metavar="FILE",
        help="count only comments that FILE has, too: what `comments --out FILE` writes of the same commits",
    )
    options = parser.parse_args(arguments)
    made = {place_of(row) for row in read_rows([options.of])} if options.of else None
    allowed = read_names(options.repositories) if options.repositories else None
    rows = [
        row
        for row in read_rows(options.files)
        if (allowed is None or row["repo"] in allowed)
        and (made is None or place_of(row) in made)
        and row.get("features", {}).get(CHECKED, 1.0) >= options.from_probability
    ]
    print_verdicts(rows)
    if made is not None:
        print(f"comments that nobody read: {len(made - {place_of(row) for row in rows})} of {len(made)}")


def place_of(row: Mapping[str, Any]) -> tuple[str, str, str, int]:
    """Repository, hash, path and first line of a comment."""
    return row["repo"], row["sha"], row["path"], row["start"]


def print_verdicts(rows: Sequence[Mapping[str, Any]]) -> None:
    """Counts by rule, and the agreement of those that read the same comments."""
    print(f"{'rule':<40}" + "".join(f"{verdict:>5}" for verdict in VERDICTS))
    for rule in [*sorted({row["rule"] for row in rows}), "all"]:
        counts = Counter(row["verdict"] for row in rows if rule in (row["rule"], "all"))
        print(f"{rule:<40}" + "".join(f"{counts[verdict]:>5}" for verdict in VERDICTS))
    pairs = [(row["verdict"], row["second"]["verdict"]) for row in rows if "second" in row]
    if pairs:
        for reader, verdicts in zip(("first", "second"), zip(*pairs, strict=True), strict=True):
            counts = Counter(verdicts)
            print(
                f"{f'read twice, {reader} reader':<40}"
                + "".join(f"{counts[verdict]:>5}" for verdict in VERDICTS)
            )
        same = sum(first == second for first, second in pairs)
        print(f"read twice: {len(pairs)}, the same verdict: {same}, Cohen's kappa: {cohens_kappa(pairs):.2f}")
    for reader, read in (("first", rows), ("second", [row.get("second", {}) for row in rows])):
        states = [row["state_right"] for row in read if "state_right" in row]
        if states:
            print(f"{f'state right, {reader} reader':<40}{share(sum(states), len(states))}")
