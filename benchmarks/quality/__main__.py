"""Run ptopt over labelled commits and print recall, share of clean commits commented, comments per case.

    python -m benchmarks.quality FOLDER [--all-paths] [--min-confidence X] [-v]
    python -m benchmarks.quality mine --clones DIR [...]    candidates for new cases: see mine.py
    python -m benchmarks.quality verdicts [FILE]            what readers said of comments, and their agreement

FOLDER holds `labels.jsonl` (a case a line: name, label, path, start, end, category, difficulty, locality, expected)
and for each case `cases/NAME/change.diff` and `cases/NAME/tree/`, the head files.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from benchmarks.quality import mine, verdicts
from benchmarks.quality.score import Outcome, outcome, table
from ptopt.config import Config
from ptopt.inputs import change_from_patch, project_files
from ptopt.project.facts import FACT_FILES, read_facts
from ptopt.review import review_change


def main() -> None:
    if sys.argv[1:2] == ["mine"]:
        sys.exit(mine.main(sys.argv[2:]))
    if sys.argv[1:2] == ["verdicts"]:
        sys.exit(verdicts.main(sys.argv[2:]))
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path)
    parser.add_argument(
        "--all-paths", action="store_true", help="review tests, examples, demos and benchmarks too"
    )
    parser.add_argument("--min-confidence", type=float, default=None)
    parser.add_argument("-v", "--verbose", action="store_true", help="print what was said of each case")
    options = parser.parse_args()
    update: dict[str, object] = {"skip": ()} if options.all_paths else {}
    if options.min_confidence is not None:
        update["min_confidence"] = options.min_confidence
    config = Config().model_copy(update=update)
    outcomes = []
    for line in (options.folder / "labels.jsonl").read_text(encoding="utf-8").splitlines():
        case = json.loads(line)
        root = options.folder / "cases" / case["name"]
        change = change_from_patch((root / "change.diff").read_bytes(), root / "tree")
        facts = read_facts(project_files(root / "tree", FACT_FILES))
        one = outcome(case, review_change(change, config=config, facts=facts))
        outcomes.append(one)
        if options.verbose:
            _show(one)
    _summary(outcomes)


def _show(one: Outcome) -> None:
    verdict = (
        f"found {one.found}/{one.wanted}" if one.wanted else "clean" if not one.comments else "COMMENTED"
    )
    print(f"{one.name} {one.label} {one.category} {one.difficulty}: {verdict}")
    for said in one.said:
        print(f"    {said}")


def _summary(outcomes: list[Outcome]) -> None:
    problems = [o for o in outcomes if o.label == "problem"]
    clean = [o for o in outcomes if o.label == "clean"]
    for title, key in (("category", "category"), ("difficulty", "difficulty")):
        print(f"\nrecall by {title}")
        for value, found, wanted in table(outcomes, key):
            print(f"  {value or '-':34} {found:3}/{wanted:<3} {found / wanted:5.0%}")
    found, wanted = sum(o.found for o in problems), sum(o.wanted for o in problems)
    print(f"\nproblems found        {found}/{wanted} {_share(found, wanted)}")
    commented = [o for o in clean if o.comments]
    print(f"clean commits commented {len(commented)}/{len(clean)} {_share(len(commented), len(clean))}")
    for one in commented:
        print(f"    {one.name} {one.category}: {'; '.join(one.said)}")
    print(f"comments per case     {_mean(problems):.2f} (problems), {_mean(clean):.2f} (clean)")
    for one in outcomes:
        if one.label == "whole":
            goal = f"found {one.found}/{one.wanted}" if one.wanted else "should be silent"
            print(f"whole file {one.name}: {one.comments} comments, {goal}")


def _share(part: int, whole: int) -> str:
    return f"({part / whole:.1%})" if whole else ""


def _mean(outcomes: list[Outcome]) -> float:
    return sum(o.comments for o in outcomes) / len(outcomes) if outcomes else 0.0


if __name__ == "__main__":
    main()
