"""Compare ptopt with what readers would have said of random commits, without any tool.

    python -m benchmarks.quality experts --clones DIR [--reading second] [--part work|calibrate|judge] [--judged FILE] [...]

Four readers read 240 random commits (15 to 350 added lines of code around PyTorch) and wrote down what they would post: grade 3
surely, 2 perhaps, 1 true but trivial (`data/experts`). Two others read 93 commits of repositories that nothing had been made
on (`second`), after rules had been made from what the first had said. Five more read 399 commits of *work* and *calibrate* (`third`). In `fourth`, on commits of fresh repositories, those in which a
first reader had found nothing were read once more by another one, mixed with some others. A remark counts as met where a comment of
ptopt stands within NEAR lines of it in the same file: at the same place, whether or not it says the same. `by default` is what a pull
request would get, `proposed` all that any rule sees.

A reader without a tool overlooks things. With `--judged`, the comments on commits in which none found anything are counted by what
readers who were shown the comments said of them.
"""

from __future__ import annotations

import argparse
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.quality.changes import config_of, find_clones
from benchmarks.quality.comments import Work, materials
from benchmarks.quality.common import in_processes, read_rows
from benchmarks.quality.fixes import add_common_options, check_common_options, print_missing, review_options
from benchmarks.quality.model import UNANSWERED, ModelOptions, is_unanswered, model_options
from benchmarks.quality.parts import part_of, read_names
from benchmarks.quality.summary import share
from benchmarks.quality.verdicts import place_of, print_verdicts
from ptopt.findings import Review

NEAR = 3  # lines: a reader points at a line, a rule at a statement
_DATA = Path(__file__).parent / "data" / "experts"
_GRADES = {3: "would surely post", 2: "would perhaps post", 1: "true but trivial"}

READINGS = ("first", "second", "third", "fourth")

Place = tuple[str, int, int]  # path, first and last line


@dataclass(frozen=True)
class Commit:
    """One commit: the remarks of its readers, and where ptopt comments."""

    repo: str
    sha: str
    remarks: tuple[dict[str, Any], ...]
    by_default: frozenset[Place]
    proposed: frozenset[Place]


@dataclass(frozen=True)
class Reading:
    """The commits of one repository, and what the readers said of them, by commit; None where no reader has read them."""

    work: Work
    remarks: dict[str, list[dict[str, Any]]] | None


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.quality experts",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add_common_options(parser)
    parser.add_argument("--reading", choices=READINGS, default="first", help="default: %(default)s")
    parser.add_argument("--judged", type=Path, metavar="FILE", help="what readers said of the comments")
    options = parser.parse_args(arguments)
    check_common_options(parser, options)
    folders = find_clones(options.clones)
    commits: list[Commit] = []
    missing: Counter[str] = Counter()
    for some, lost, unanswered in in_processes(
        compare, readings(options.reading, folders, options, model_options(options)), options.jobs
    ):
        commits += some
        missing["not in the clones"] += lost
        missing[UNANSWERED] += unanswered
    _print(commits)
    if options.judged is not None:
        print()
        print_verdicts(on_clean(commits, read_rows([options.judged])))
    print_missing(+missing)
    return 0


def readings(
    which: str, folders: Mapping[str, Path], options: argparse.Namespace, model: ModelOptions
) -> list[Reading]:
    """One of READINGS, by repository, as far as the options of the command want it."""
    tuned = read_names(options.tuned)
    suffix = "" if which == "first" else f"-{which}"
    shas: defaultdict[str, list[str]] = defaultdict(list)
    for row in read_rows([_DATA / f"commits{suffix}.jsonl"]):
        if options.part in (None, part_of(row["repo"], tuned)):
            shas[row["repo"]].append(row["sha"])
    remarks: defaultdict[tuple[str, str], list[dict[str, Any]]] = defaultdict(list)
    for row in read_rows([_DATA / f"remarks{suffix}.jsonl"]):
        remarks[row["repo"], row["sha"]].append(row)  # a fork has the same commits
    config = review_options(options)
    return [
        Reading(
            Work(repo, folders.get(repo), options.cache, of_repo, config, True, model),
            {sha: remarks[repo, sha] for sha in of_repo if (repo, sha) in remarks},
        )
        for repo, of_repo in shas.items()
    ]


def unread(
    file: Path, folders: Mapping[str, Path], options: argparse.Namespace, model: ModelOptions
) -> list[Reading]:
    """The commits that FILE names, of any part, by repository."""
    shas: defaultdict[str, list[str]] = defaultdict(list)
    for row in read_rows([file]):
        shas[row["repo"]].append(row["sha"])
    config = review_options(options)
    return [
        Reading(Work(repo, folders.get(repo), options.cache, of_repo, config, True, model), None)
        for repo, of_repo in shas.items()
    ]


def compare(reading: Reading) -> tuple[list[Commit], int, int]:
    """The commits of the repository, how many of them the clone lacks, and of how many the model did not answer."""
    commits, lost, unanswered = [], 0, 0
    everything = config_of(min_confidence=0.0, all_rules=True, budget=None, all_paths=True)
    for sha, material in materials(reading.work):
        if material is None:
            lost += 1
            continue
        remarks = tuple((reading.remarks or {}).get(sha, ()))
        review = material.review(reading.work.config, advisor=reading.work.model.advisor())
        if is_unanswered(review):
            unanswered += 1
            continue
        by_default = _places(review)
        proposed = _places(material.review(everything, one_per_cause=False)) if remarks else frozenset()
        commits.append(Commit(reading.work.repo, sha, remarks, by_default, proposed))
    return commits, lost, unanswered


def _places(review: Review) -> frozenset[Place]:
    return frozenset((f.path, p.span.start, p.span.end) for f in review.findings for p in f.places())


def is_met(remark: dict[str, Any], places: Iterable[Place]) -> bool:
    return any(
        path == remark["path"] and first - NEAR <= remark["line"] <= last + NEAR
        for path, first, last in places
    )


def on_clean(commits: Sequence[Commit], judged: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """The judged comments that ptopt makes on commits without a remark."""
    made = {
        (commit.repo, commit.sha, path, start)
        for commit in commits
        if not commit.remarks
        for path, start, _ in commit.by_default
    }
    return [row for row in judged if place_of(row) in made]


def _print(commits: Sequence[Commit]) -> None:
    worth = sum(any(r["grade"] == 3 for r in c.remarks) for c in commits)
    print(f"commits read                      {len(commits)}")
    print(f"a reader would surely post on     {share(worth, len(commits))}")
    print(
        f"ptopt comments by default on      {share(sum(bool(c.by_default) for c in commits), len(commits))}"
    )
    clean = [commit for commit in commits if not commit.remarks]
    print(
        f"commented, of those without a remark  {share(sum(bool(c.by_default) for c in clean), len(clean))}"
    )
    print(f"\n{'remarks':34}{'by default':>16}{'proposed':>16}")
    for grade, words in _GRADES.items():
        of = [(r, c) for c in commits for r in c.remarks if r["grade"] == grade]
        said = sum(is_met(r, c.by_default) for r, c in of)
        seen = sum(is_met(r, c.proposed) for r, c in of)
        print(f"{words + f' ({len(of)})':34}{share(said, len(of)):>16}{share(seen, len(of)):>16}")
    comments = [(place, c) for c in commits for place in c.by_default]
    named = sum(any(is_met(r, [place]) for r in c.remarks if r["grade"] > 1) for place, c in comments)
    print(
        f"\nplaces that ptopt comments by default: {len(comments)}; a reader would post there, too: {named}"
    )
