"""Review random commits of local clones, and write down all comments, for readers to judge.

    python -m benchmarks.quality comments --clones DIR --part work --commits 400 --per-repo 20 --seed 1 --out FILE [...]
    python -m benchmarks.quality comments --clones DIR --commits-from FILE --out FILE [...]    the same commits again
    python -m benchmarks.quality comments --clones DIR --heads 60 --commits 10000 --out FILE [...]    files of each newest commit

A commit adds 3 to 600 lines of Python, torch is imported in a file that it changes, and it is no merge. Each line of FILE is one
comment with what decided it (`features`), its place, and its fix as a diff. The commits that were drawn are written beside it
(FILE with the ending .commits.jsonl), those without a comment too. --most-per-rule and --most-per-repo (of one rule in one
repository) take a random part of the comments; what is printed counts all of them. Without --all-rules, and at the default
confidence, the comments are those that a pull request would get.
"""

from __future__ import annotations

import argparse
import difflib
import json
import sys
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from hashlib import sha256
from itertools import islice
from pathlib import Path
from typing import Any

from benchmarks.quality.changes import (
    Cache,
    Material,
    NotAvailableError,
    commit_material,
    find_clones,
    head_material,
    open_clone,
    random_commits,
)
from benchmarks.quality.common import in_processes, in_random_order, read_rows
from benchmarks.quality.fixes import (
    add_common_options,
    check_common_options,
    print_missing,
    review_options,
)
from benchmarks.quality.mine import known_commits
from benchmarks.quality.model import RULES_ALONE, UNANSWERED, ModelOptions, is_unanswered, model_options
from benchmarks.quality.parts import part_of, read_names
from benchmarks.quality.score import REGRESSIONS
from benchmarks.quality.summary import share
from ptopt.config import Config
from ptopt.findings import Finding
from ptopt.report.text import one_line
from ptopt.source.decode import decode_python
from ptopt.verify import apply_edits, with_line_ends_of
from training.sources.base import SourceError
from training.sources.git import Clone

LEAST_LINES = 3
MOST_LINES = 600


@dataclass(frozen=True)
class Draw:
    """What is drawn from one repository."""

    repo: str
    folder: Path
    cache: Path
    known: frozenset[str]
    seed: int
    most: int
    since: str  # YYYY-MM-DD, or ""
    files: int = 0  # of the newest commit, in place of commits


@dataclass(frozen=True)
class Work:
    """The commits of one repository, and how they are reviewed."""

    repo: str
    folder: Path | None
    cache: Path
    shas: list[str]
    config: Config
    one_per_cause: bool
    model: ModelOptions = RULES_ALONE
    files: int = 0  # of each commit, as they stand there, in place of its change


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.quality comments",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add_common_options(parser)
    parser.add_argument("--commits", type=int, default=400, help="how many to draw (default: %(default)s)")
    parser.add_argument(
        "--per-repo", type=int, default=20, help="at most so many of a repository (default: %(default)s)"
    )
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--since", default="", metavar="YYYY-MM-DD", help="draw only commits since that day")
    parser.add_argument("--repositories", type=Path, nargs="+", help="draw only from those that FILE names")
    parser.add_argument(
        "--exclude", type=Path, nargs="+", default=[], help="JSON lines whose commits are not drawn"
    )
    parser.add_argument("--commits-from", type=Path, help="JSON lines of `repo` and `sha`: draw nothing")
    parser.add_argument("--most-per-rule", type=int, help="write at most so many comments of a rule")
    parser.add_argument("--most-per-repo", type=int, help="write at most so many of a rule and repository")
    parser.add_argument(
        "--heads",
        type=int,
        metavar="N",
        help="no changes: up to N files of the newest commit of each repository, or of those of --commits-from, as if they were new",
    )
    parser.add_argument("--each-place", action="store_true", help="a row for each place, not one for a cause")
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args(arguments)
    check_common_options(parser, options)
    folders = find_clones(options.clones)
    tuned = read_names(options.tuned)

    def wanted(repo: str) -> bool:
        return options.part in (None, part_of(repo, tuned))

    if options.commits_from:
        drawn = [
            (row["repo"], row["sha"]) for row in read_rows([options.commits_from]) if wanted(row["repo"])
        ]
    else:
        allowed = read_names(options.repositories) if options.repositories else folders.keys()
        known = known_commits(options.exclude)
        draws = [
            Draw(
                repo,
                folder,
                options.cache,
                known,
                options.seed,
                options.per_repo,
                options.since,
                options.heads or 0,
            )
            for repo, folder in sorted(folders.items())
            if wanted(repo) and repo in allowed
        ]
        found = [commit for commits in in_processes(draw, draws, options.jobs) for commit in commits]
        drawn = sorted(in_random_order(found, options.seed)[: options.commits])
        with options.out.with_suffix(".commits.jsonl").open("w", encoding="utf-8") as out:
            for repo, sha in drawn:
                out.write(json.dumps({"repo": repo, "sha": sha}) + "\n")
    by_repository: defaultdict[str, list[str]] = defaultdict(list)
    for repo, sha in drawn:
        by_repository[repo].append(sha)
    work = [
        Work(
            repo,
            folders.get(repo),
            options.cache,
            shas,
            review_options(options),
            not options.each_place,
            model_options(options),
            options.heads or 0,
        )
        for repo, shas in by_repository.items()
    ]
    rows: list[dict[str, Any]] = []
    missing: Counter[str] = Counter()
    for some, reasons in in_processes(comments, work, options.jobs):
        rows += some
        missing.update(reasons)
    chosen = sample(rows, options.most_per_rule, options.most_per_repo, options.seed)
    with options.out.open("w", encoding="utf-8") as out:
        for row in chosen:
            out.write(json.dumps(row) + "\n")
    _print(rows, len(drawn) - missing.total(), len(chosen))
    print_missing(missing)
    return 0


def sample(
    rows: Sequence[dict[str, Any]], per_rule: int | None, per_repository: int | None, seed: int
) -> list[dict[str, Any]]:
    """At most so many random rows of a rule, and of a rule and repository, in the order of the rows."""
    of_rule: Counter[str] = Counter()
    of_both: Counter[tuple[str, str]] = Counter()
    chosen = set()
    places = {row["id"]: number for number, row in enumerate(rows)}
    for number in map(places.__getitem__, in_random_order(places, seed)):
        rule, repo = rows[number]["rule"], rows[number]["repo"]
        if per_rule is not None and of_rule[rule] >= per_rule:
            continue
        if per_repository is not None and of_both[rule, repo] >= per_repository:
            continue
        of_rule[rule] += 1
        of_both[rule, repo] += 1
        chosen.add(number)
    return [rows[number] for number in sorted(chosen)]


def draw(wanted: Draw) -> list[tuple[str, str]]:
    """Random commits of a repository, with its name; their changes are in the cache afterwards."""
    cache = Cache(wanted.cache)
    drawn = []
    try:
        with open_clone(wanted.folder) as clone:
            if wanted.files:
                return [_drawn_head(clone, wanted, cache)]
            found = random_commits(
                clone, wanted.repo, wanted.known, wanted.seed, LEAST_LINES, MOST_LINES, wanted.since
            )
            for material in islice(found, wanted.most):
                cache.put_material(_key(wanted.repo, material.commit), material)
                drawn.append((wanted.repo, material.commit))
    except (NotAvailableError, SourceError) as error:
        print(f"{wanted.repo}: only {len(drawn)} commits: {one_line(str(error))}", file=sys.stderr)
    return drawn


def _drawn_head(clone: Clone, wanted: Draw, cache: Cache) -> tuple[str, str]:
    material = head_material(clone, wanted.repo, clone.head, wanted.files)
    cache.put_material(_key(wanted.repo, clone.head, wanted.files), material)
    return wanted.repo, clone.head


def comments(work: Work) -> tuple[list[dict[str, Any]], list[str]]:
    """A row for each comment on the commits, and why commits are not available."""
    rows, missing = [], []
    for sha, material in materials(work):
        if material is None:
            missing.append("not in the clones")
            continue
        advisor = work.model.advisor()
        review = material.review(work.config, one_per_cause=work.one_per_cause, advisor=advisor)
        if is_unanswered(review):
            missing.append(UNANSWERED)
            continue
        files = {file["path"]: file for file in material.files}
        for finding in review.findings:
            file = files[finding.path]
            row = row_of(work.repo, sha, finding, file["head"].encode("latin-1"))
            rows.append(row | {"on_added_lines": _on_added_lines(finding, frozenset(file["added"]))})
    return rows, missing


def _on_added_lines(finding: Finding, added: frozenset[int]) -> bool:
    """Did the change add a line of each place that the comment lists?"""
    return all(not added.isdisjoint(place.span.lines()) for place in finding.places())


def row_of(repo: str, sha: str, finding: Finding, head: bytes) -> dict[str, Any]:
    """A comment as a line of JSON; `id` is the same for the same comment."""
    place = [repo, sha, finding.path, finding.span.start, finding.span.end, finding.fingerprint]
    return {
        "id": sha256(json.dumps(place).encode()).hexdigest()[:12],
        "repo": repo,
        "sha": sha,
        "path": finding.path,
        "start": finding.span.start,
        "end": finding.span.end,
        "also": [[also.span.start, also.span.end] for also in finding.also],
        "rule": finding.name,
        "rule_id": finding.rule,
        "family": finding.family,
        "message": f"{finding.message} {finding.explanation}".rstrip(),
        "when_wrong": finding.when_wrong,
        "evidence": [[evidence.line, evidence.note] for evidence in finding.evidence],
        "confidence": finding.confidence,
        "has_fix": finding.fix is not None,
        "fix": _fix_as_diff(finding, head),
        "features": dict(getattr(finding, "features", ())),
    }


def _fix_as_diff(finding: Finding, head: bytes) -> str:
    if finding.fix is None:
        return ""
    text, _ = decode_python(head)
    after = apply_edits(text, with_line_ends_of(text, finding.fix.edits))
    lines = difflib.unified_diff(
        text.splitlines(), after.splitlines(), finding.path, finding.path, lineterm=""
    )
    return "\n".join(lines)


def materials(work: Work) -> Iterator[tuple[str, Material | None]]:
    """The commits in turn, None for one that the clone lacks."""
    cache = Cache(work.cache)
    clone = None
    try:
        for sha in work.shas:
            key = _key(work.repo, sha, work.files)
            material = cache.material(key)
            if material is None and work.folder is not None:
                try:
                    clone = clone or open_clone(work.folder)
                    if work.files:
                        material = head_material(clone, work.repo, sha, work.files)
                    else:
                        parent = next(clone.read([sha])).parent
                        material = commit_material(clone, work.repo, sha, parent)
                    cache.put_material(key, material)
                except (NotAvailableError, SourceError):
                    material = None
            yield sha, material
    finally:
        if clone is not None:
            clone.__exit__()


def _key(repo: str, sha: str, files: int = 0) -> list[object]:
    return ["head", repo, sha, files] if files else ["commit", repo, sha]


def _print(rows: Sequence[dict[str, Any]], reviewed: int, written: int) -> None:
    commented = len({(row["repo"], row["sha"]) for row in rows})
    print(f"commits reviewed        {reviewed}")
    print(f"commits with a comment  {share(commented, reviewed)}")
    print(f"comments                {len(rows)}, written {written}")
    old = sum(not row["on_added_lines"] and row["family"] != REGRESSIONS for row in rows)
    print(f"  not on an added line  {old} (without those on lines that were taken out)")
    for rule, number in Counter(row["rule"] for row in rows).most_common():
        repositories = len({row["repo"] for row in rows if row["rule"] == rule})
        print(f"  {rule:40} {number:4} in {repositories} repositories")
