"""Run ptopt over labelled commits and print recall, share of clean commits commented, comments per case.

    python -m benchmarks.quality COMMAND [...]

    fixes     score ptopt, or another tool, on labelled commits of local clones
    comments  review random commits, and write the comments down for readers
    mine      candidates for new cases
    audit     audit the heads of local clones, with the answers of a model
    applied   apply the fixes that are offered on such commits, and check them
    sheet     deal comments to readers
    collect   join their verdicts with the comments
    calibrate set the threshold of what a general model finds in a change as a whole
    experts   compare with what readers would have said of random commits
    refresh   renew the features of judged comments
    draws     what the gates of the ranker are worth on draws of fresh repositories
    verdicts  what readers said of comments, and their agreement
    FOLDER [--all-paths] [--min-confidence X] [-v]    score ptopt on cases that lie in a folder

FOLDER holds `labels.jsonl` (a case a line: name, label, path, start, end, category, difficulty, locality, expected)
and for each case `cases/NAME/change.diff` and `cases/NAME/tree/`, the head files.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path

from benchmarks.quality import applied, audits, calibrate, comments, experts, fixes, mine, sheets, verdicts
from benchmarks.quality.changes import config_of
from benchmarks.quality.score import outcome
from benchmarks.quality.summary import print_case, print_summary
from ptopt.inputs import change_from_patch, project_files
from ptopt.project.facts import FACT_FILES, read_facts
from ptopt.review import review_change


def _draws(arguments: Sequence[str]) -> int:
    from benchmarks.quality import draws  # needs scikit-learn, which the other commands do without

    return draws.main(arguments)


COMMANDS = {
    "collect": sheets.collect,
    "refresh": sheets.refresh,
    "sheet": sheets.sheet,
    "applied": applied.main,
    "audit": audits.main,
    "calibrate": calibrate.main,
    "comments": comments.main,
    "draws": _draws,
    "experts": experts.main,
    "fixes": fixes.main,
    "mine": mine.main,
    "verdicts": verdicts.main,
}


def main() -> None:
    if command := COMMANDS.get("".join(sys.argv[1:2])):
        sys.exit(command(sys.argv[2:]))
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.quality",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("folder", type=Path)
    parser.add_argument(
        "--all-paths", action="store_true", help="review tests, examples, demos and benchmarks too"
    )
    parser.add_argument("--min-confidence", type=float, default=None)
    parser.add_argument("-v", "--verbose", action="store_true", help="print what was said of each case")
    options = parser.parse_args()
    config = config_of(
        min_confidence=options.min_confidence, all_rules=False, budget=None, all_paths=options.all_paths
    )
    outcomes = []
    for line in (options.folder / "labels.jsonl").read_text(encoding="utf-8").splitlines():
        case = json.loads(line)
        root = options.folder / "cases" / case["name"]
        change = change_from_patch((root / "change.diff").read_bytes(), root / "tree")
        facts = read_facts(project_files(root / "tree", FACT_FILES))
        one = outcome(case, review_change(change, config=config, facts=facts))
        outcomes.append(one)
        if options.verbose:
            print_case(one)
    print_summary(outcomes)


if __name__ == "__main__":
    main()
