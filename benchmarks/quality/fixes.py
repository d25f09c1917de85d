"""Review labelled commits of local clones, and print how many of the problems are found, and what is said of clean ones.

    python -m benchmarks.quality fixes --clones DIR [--cases FILE ...] [--part work|calibrate|judge] [...]

A clone lies in DIR/OWNER+NAME (or /repo in it). Cases whose commits or files are not there are counted as not available.
--all-rules --min-confidence 0 counts every candidate of every rule, each place for itself and without a budget: the upper bound
of what can be found.
Totals are of all cases that are reviewed; single cases are shown of the part "work" only. Changes that were built once
are kept in a cache.
"""

from __future__ import annotations

import argparse
import json
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.quality.baselines import NOTE, RULES, Tool, ToolError
from benchmarks.quality.changes import (
    Cache,
    Material,
    NotAvailableError,
    case_material,
    config_of,
    default_cache,
    find_clones,
    label_of,
    open_clone,
)
from benchmarks.quality.common import in_processes, read_rows
from benchmarks.quality.model import (
    RULES_ALONE,
    UNANSWERED,
    ModelOptions,
    add_model_options,
    is_unanswered,
    model_options,
)  # fmt: skip
from benchmarks.quality.parts import PARTS, TUNED, part_of, read_names
from benchmarks.quality.score import Outcome, outcome, tool_outcome
from benchmarks.quality.summary import print_case, print_summary
from ptopt.config import Config
from ptopt.findings import Review
from training.evaluation.labels import finds, wanted
from training.sources.base import SourceError

_DATA = Path(__file__).parent / "data"
_MADE_FROM = (
    "repo", "sha", "parent", "path", "start", "end", "lines", "intro_sha", "intro_path", "intro_start", "intro_end",
    "intro_kind", "intro_share",
)  # fmt: skip


@dataclass(frozen=True)
class Work:
    """The cases of one repository, and how they are reviewed."""

    folder: Path | None
    cases: list[dict[str, Any]]
    cache: Path
    config: Config
    one_per_cause: bool = True
    model: ModelOptions = RULES_ALONE
    hide_fix: bool = False


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.quality fixes",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--cases",
        type=Path,
        nargs="+",
        default=[_DATA / "fixes.jsonl", _DATA / "clean.jsonl"],
        help="JSON lines with labelled commits (default: those of this benchmark)",
    )
    add_common_options(parser)
    parser.add_argument(
        "--rows",
        type=Path,
        help="write each finding of a labelled problem (R) or in a clean commit (T) here, as judged comments",
    )
    parser.add_argument(
        "--hide-fix",
        action="store_true",
        help="show a fix that is read backwards without the lines it removes: they are the answer",
    )
    parser.add_argument("--tool", choices=sorted(RULES), help="score this tool instead of ptopt")
    parser.add_argument("--verbose", "-v", action="store_true", help="show each case; needs --part work")
    options = parser.parse_args(arguments)
    check_common_options(parser, options)
    if options.verbose and options.part != "work":
        parser.error("--verbose shows single cases, which only --part work may")
    tuned = read_names(options.tuned)
    cases = [
        case for case in read_rows(options.cases) if options.part in (None, part_of(case["repo"], tuned))
    ]
    folders = find_clones(options.clones)
    by_repository: defaultdict[str, list[dict[str, Any]]] = defaultdict(list)
    for case in cases:
        by_repository[case["repo"]].append(case)
    work = [
        Work(
            folders.get(repo),
            theirs,
            options.cache,
            review_options(options),
            not options.all_rules,
            model_options(options),
            options.hide_fix,
        )
        for repo, theirs in by_repository.items()
    ]
    outcomes: list[Outcome] = []
    judged: list[dict[str, Any]] = []
    missing: Counter[str] = Counter()
    try:
        results = (
            [(*score_tool(Tool(options.tool, Cache(options.cache), options.jobs), work), [])]
            if options.tool
            else in_processes(score, work, options.jobs)
        )
        for some, reasons, rows in results:
            outcomes += some
            judged += rows
            missing.update(reasons)
    except ToolError as error:
        parser.error(str(error))
    outcomes.sort(key=lambda one: one.name)
    if options.rows is not None:
        options.rows.write_text("".join(f"{json.dumps(row)}\n" for row in judged), encoding="utf-8")
    if options.verbose:
        for one in outcomes:
            print_case(one)
    if options.tool:
        print(f"{options.tool}: {NOTE}")
    print_summary(outcomes, families=not options.tool, cases=options.part == "work")
    print_missing(missing)
    return 0


def add_common_options(parser: argparse.ArgumentParser) -> None:
    """Options of the commands that review commits of clones."""
    parser.add_argument("--clones", type=Path, required=True, help="folder with git clones, bare or not")
    parser.add_argument(
        "--part", choices=PARTS, help="only repositories of this part (default: all; see parts.py)"
    )
    parser.add_argument(
        "--tuned",
        type=Path,
        nargs="+",
        default=[TUNED],
        help="names of repositories, or JSON lines with a `repo`, that are always in the part work",
    )
    parser.add_argument("--min-confidence", type=float, help="default: that of ptopt")
    parser.add_argument(
        "--all-rules",
        action="store_true",
        help="rules that are off by default too, and any number of comments",
    )
    parser.add_argument("--budget", type=int, help="comments on one change (default: ptopt's, or no limit)")
    parser.add_argument(
        "--all-paths", action="store_true", help="review tests, examples, demos and benchmarks too"
    )
    parser.add_argument("--cache", type=Path, default=default_cache(), help="default: %(default)s")
    parser.add_argument("--jobs", type=int, default=1, help="processes")
    add_model_options(parser)


def check_common_options(parser: argparse.ArgumentParser, options: argparse.Namespace) -> None:
    if not options.clones.is_dir():
        parser.error(f"{options.clones}: no such folder")


def review_options(options: argparse.Namespace) -> Config:
    return config_of(
        min_confidence=options.min_confidence,
        all_rules=options.all_rules,
        budget=options.budget,
        all_paths=options.all_paths,
    )


def materials(work: Work) -> Iterator[tuple[dict[str, Any], Material | NotAvailableError]]:
    """Each case with its change, from the cache or else from the clone, which is opened only then."""
    cache = Cache(work.cache)
    clone = None
    try:
        for case in work.cases:
            key = [label_of(case), *(case.get(name) for name in _MADE_FROM)]
            if kept := cache.material(key):
                yield case, kept
                continue
            try:
                if work.folder is None:
                    raise NotAvailableError("no clone")
                clone = clone or open_clone(work.folder)
                material = case_material(clone, case)
            except (NotAvailableError, SourceError) as error:
                yield case, NotAvailableError(str(error))
                continue
            cache.put_material(key, material)
            yield case, material
    finally:
        if clone is not None:
            clone.__exit__()


def labelled(case: Mapping[str, Any], material: Material) -> dict[str, Any]:
    """The case as a line of labels.jsonl: its place is that in the change."""
    return {
        "category": case.get("use", ""),
        **case,
        "name": case["id"],
        "label": label_of(case),
        "mode": material.mode,
        "path": material.path,
        "start": material.start,
        "end": material.end,
    }


def score(work: Work) -> tuple[list[Outcome], list[str], list[dict[str, Any]]]:
    """What was found, why cases are not available, and the findings that the labels judge."""
    outcomes, missing = [], []
    judged: list[dict[str, Any]] = []
    for case, material in materials(work):
        if isinstance(material, NotAvailableError):
            missing.append(_why(work))
        else:
            one = labelled(case, material)
            material = material.without_removed() if work.hide_fix else material
            advisor = work.model.advisor()
            review = material.review(work.config, one_per_cause=work.one_per_cause, advisor=advisor)
            if is_unanswered(review):
                missing.append(UNANSWERED)
                continue
            outcomes.append(outcome(one, review))
            judged += judged_rows(one, review)
    return outcomes, missing, judged


def judged_rows(case: dict[str, Any], review: Review) -> Iterator[dict[str, Any]]:
    """Findings that a label judges: R where people removed the problem, T in a commit that was read and found clean."""
    clean = case["label"] == "clean"
    for finding in review.findings:
        if clean or (
            finding.path == case["path"] and any(finds(finding, *problem) for problem in wanted(case))
        ):
            yield {
                "repo": case["repo"],
                "rule": finding.name,
                "verdict": "T" if clean else "R",
                "features": dict(finding.features),
            }


def score_tool(tool: Tool, work: Sequence[Work]) -> tuple[list[Outcome], list[str]]:
    """The same for another tool, over all repositories."""
    available: list[tuple[dict[str, Any], Material]] = []
    missing = []
    for one in work:
        for case, material in materials(one):
            if isinstance(material, NotAvailableError):
                missing.append(_why(one))
            else:
                available.append((labelled(case, material), material))
    config = work[0].config if work else Config()
    reports = tool.reports([material for _, material in available], config)
    return [tool_outcome(case, said) for (case, _), said in zip(available, reports, strict=True)], missing


def _why(work: Work) -> str:
    return "no clone" if work.folder is None else "not in the clone"


def print_missing(missing: Mapping[str, int]) -> None:
    for reason, number in sorted(missing.items()):
        print(f"not available           {number} ({reason})")
