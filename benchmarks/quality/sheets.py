"""Comments for readers, and their verdicts back.

    python -m benchmarks.quality sheet --rows FILE --out-dir DIR --readers N [--twice K]
    python -m benchmarks.quality collect --rows FILE --labels FILE ... [--out FILE]
    python -m benchmarks.quality refresh --rows FILE --verdicts FILE ...

`sheet` deals the rows that `comments` wrote to N files sheet-01.jsonl, sheet-02.jsonl, ...; a reader sees what stands in the
code and what was said, not how sure ptopt is or why. K of the rows are in two of the files. A reader answers with JSON
lines: `id`, `verdict` (R, T, W or U), `reason`, and `facts` if they like. `collect` joins the answers with the rows, in the
form of data/verdicts/*.jsonl: of a comment with two answers, the one of the earlier file comes first, the other is `second`.

`refresh` gives judged comments the features that this version computes: FILE is what `comments --each-place` wrote of the same
commits. A comment that is no longer made keeps its verdict, and has no features.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.quality.common import in_random_order, read_rows
from benchmarks.quality.verdicts import VERDICTS, print_verdicts

_SHOWN = ("id", "repo", "sha", "path", "lines", "message", "fix")
_KEPT = ("repo", "sha", "path", "start", "end", "rule", "confidence")


def sheet(arguments: Sequence[str]) -> int:
    """Deal rows to readers."""
    parser = _parser("sheet")
    parser.add_argument("--out-dir", type=Path, required=True)
    parser.add_argument("--readers", type=int, required=True)
    parser.add_argument("--twice", type=int, default=0, help="rows that two readers get")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args(arguments)
    if options.readers < 1 or (options.twice and options.readers < 2):
        parser.error("--readers: at least 1, with --twice at least 2")
    options.out_dir.mkdir(parents=True, exist_ok=True)
    for number, rows in enumerate(
        dealt(list(read_rows([options.rows])), options.readers, options.twice, options.seed), 1
    ):
        with (options.out_dir / f"sheet-{number:02}.jsonl").open("w", encoding="utf-8") as out:
            out.writelines(json.dumps(shown(row)) + "\n" for row in rows)
        print(f"sheet-{number:02}.jsonl: {len(rows)} comments")
    return 0


def dealt(rows: Sequence[dict[str, Any]], readers: int, twice: int, seed: int) -> list[list[dict[str, Any]]]:
    """The rows of each reader: every row once, `twice` random ones with the next reader too."""
    by_id = {row["id"]: row for row in rows}
    ids = in_random_order(by_id, seed)
    hands: list[list[str]] = [[] for _ in range(readers)]
    for number, name in enumerate(ids):
        hands[number % readers].append(name)
    for number, name in enumerate(ids[:twice]):
        hands[(number + 1) % readers].append(name)
    # Shuffled again, so that nobody can tell which ones are read twice.
    return [[by_id[name] for name in in_random_order(hand, seed + 1)] for hand in hands]


def shown(row: dict[str, Any]) -> dict[str, Any]:
    """What a reader may see of a row."""
    spans = [(row["start"], row["end"]), *map(tuple, row.get("also", ()))]
    lines = ", ".join(str(start) if start == end else f"{start}-{end}" for start, end in spans)
    whole = {**row, "lines": lines}
    return {name: whole[name] for name in _SHOWN if whole.get(name)}


def collect(arguments: Sequence[str]) -> int:
    """Join answers with rows."""
    parser = _parser("collect")
    parser.add_argument("--labels", type=Path, nargs="+", required=True)
    parser.add_argument("--out", type=Path, help="where to write (default: standard output)")
    options = parser.parse_args(arguments)
    rows = {row["id"]: row for row in read_rows([options.rows])}
    answers: defaultdict[str, list[dict[str, Any]]] = defaultdict(list)
    for file in options.labels:
        for answer in read_rows([file]):
            name = str(answer.get("id"))
            if name not in rows:
                parser.error(f"{file}: no comment has the id {name}")
            if answer.get("verdict") not in tuple(VERDICTS) or not answer.get("reason"):
                parser.error(f"{file}: {name}: an answer needs a verdict (R, T, W or U) and a reason")
            answers[name].append(answer)
    if too_many := [name for name, given in answers.items() if len(given) > 2]:
        parser.error(f"more than two answers: {', '.join(too_many)}")
    judged = [judged_row(row, answers[name]) for name, row in rows.items() if name in answers]
    with options.out.open("w", encoding="utf-8") if options.out else sys.stdout as out:
        out.writelines(json.dumps(row, ensure_ascii=False) + "\n" for row in judged)
    if options.out:
        print_verdicts(judged)
    if missing := len(rows) - len(judged):
        print(f"{missing} comments have no verdict yet", file=sys.stderr)
    return 0


def refresh(arguments: Sequence[str]) -> int:
    """Renew the features of judged comments."""
    parser = _parser("refresh")
    parser.add_argument("--verdicts", type=Path, nargs="+", required=True, help="rewritten in place")
    options = parser.parse_args(arguments)
    made = {_place(row): row for row in read_rows([options.rows])}
    for file in options.verdicts:
        judged = list(read_rows([file]))
        for row in judged:
            now = made.get(_place(row))
            row["features"] = now["features"] if now else {}
        with file.open("w", encoding="utf-8") as out:
            out.writelines(json.dumps(row, ensure_ascii=False) + "\n" for row in judged)
        print(f"{file.name}: {sum(bool(row['features']) for row in judged)} of {len(judged)} are still made")
    return 0


def _place(row: dict[str, Any]) -> tuple[Any, ...]:
    return tuple(row[name] for name in ("repo", "sha", "path", "rule", "start", "end"))


def judged_row(row: dict[str, Any], answers: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """A line of data/verdicts/*.jsonl."""
    first, *others = [
        {name: answer[name] for name in ("verdict", "reason", "facts") if answer.get(name)}
        for answer in answers
    ]
    kept = {name: row[name] for name in _KEPT} | first | {"features": row.get("features", {})}
    kept["confidence"] = kept["features"].get(
        "stated confidence", kept["confidence"]
    )  # not what the ranker makes of it
    return kept | ({"second": others[0]} if others else {})


def _parser(name: str) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog=f"python -m benchmarks.quality {name}",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--rows", type=Path, required=True, help="what `comments` wrote")
    return parser
