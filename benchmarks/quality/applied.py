"""Apply the fixes that are offered on random commits, and check what they leave.

    python -m benchmarks.quality applied --clones DIR --part work --commits-from FILE [--most 300] [--seed 1] [--out FILE]

FILE is the one that `comments` writes beside its comments (FILE.commits.jsonl). Each fix of a comment is applied to the
head file alone. Counted are those whose result parses, in which the rule sees fewer problems, and of which ruff reports no
import or local name that has become unused or undefined (F401, F811, F821, F841). With --out, each is written as a diff,
one JSON object a line, for readers.
"""

from __future__ import annotations

import argparse
import ast
import json
import shutil
import subprocess
import sys
import tempfile
import warnings
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.quality.changes import find_clones
from benchmarks.quality.comments import Work, materials, row_of
from benchmarks.quality.common import in_processes, in_random_order, read_rows
from benchmarks.quality.fixes import add_common_options, check_common_options, print_missing, review_options
from benchmarks.quality.parts import part_of, read_names
from ptopt.change import whole_file
from ptopt.config import Config
from ptopt.findings import Finding
from ptopt.project.facts import ProjectFacts, read_facts
from ptopt.review import review_files
from ptopt.source.decode import decode_python
from ptopt.verify import apply_edits, with_line_ends_of

_STALE = "F401,F811,F821,F841"


@dataclass(frozen=True)
class Applied:
    """A comment, and its file before and after its fix."""

    row: dict[str, Any]
    before: str
    after: str
    parses: bool
    gone: bool


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.quality applied",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add_common_options(parser)
    parser.add_argument("--commits-from", type=Path, required=True, help="JSON lines of `repo` and `sha`")
    parser.add_argument("--most", type=int, default=300, help="fixes that are taken (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, help="write each fix here")
    options = parser.parse_args(arguments)
    check_common_options(parser, options)
    folders = find_clones(options.clones)
    tuned = read_names(options.tuned)
    by_repository: defaultdict[str, list[str]] = defaultdict(list)
    for row in read_rows([options.commits_from]):
        if options.part in (None, part_of(row["repo"], tuned)):
            by_repository[row["repo"]].append(row["sha"])
    work = [
        Work(repo, folders.get(repo), options.cache, shas, review_options(options), True)
        for repo, shas in by_repository.items()
    ]
    found: dict[str, Applied] = {}
    missing: Counter[str] = Counter()
    for some, reasons in in_processes(applied, work, options.jobs):
        found |= {one.row["id"]: one for one in some}
        missing.update(reasons)
    chosen = [found[id_] for id_ in in_random_order(sorted(found), options.seed)[: options.most]]
    stale = unused(chosen)
    if options.out is not None:
        with options.out.open("w", encoding="utf-8") as out:
            for one, names in zip(chosen, stale, strict=True):
                result = {"parses": one.parses, "gone": one.gone, "stale": names}
                out.write(json.dumps(one.row | result) + "\n")
    print(f"comments with a fix     {len(found)}, taken {len(chosen)}")
    print(f"  parse                 {sum(one.parses for one in chosen)}")
    print(f"  the rule is gone      {sum(one.gone for one in chosen)}")
    print(f"  nothing stale         {sum(not names for names in stale)}")
    for rule, number in Counter(one.row["rule"] for one in chosen).most_common():
        print(f"    {rule:38} {number:4}")
    print_missing(missing)
    return 0


def applied(work: Work) -> tuple[list[Applied], list[str]]:
    """The comments of a repository's commits that have a fix, each applied; and why commits are not available."""
    results, missing = [], []
    for sha, material in materials(work):
        if material is None:
            missing.append("not in the clones")
            continue
        heads = {file["path"]: file["head"].encode("latin-1") for file in material.files}
        facts = read_facts({name: text.encode("latin-1") for name, text in material.facts.items()})
        around = {**heads, **material.change().around}
        for finding in material.review(work.config).findings:
            if finding.fix is not None:
                head = heads[finding.path]
                row = row_of(work.repo, sha, finding, head)
                results.append(_applied(row, finding, head, _Context(work.config, facts, around)))
    return results, missing


@dataclass(frozen=True)
class _Context:
    """With what a file is reviewed."""

    config: Config
    facts: ProjectFacts
    around: Mapping[str, bytes]


def _applied(row: dict[str, Any], finding: Finding, head: bytes, context: _Context) -> Applied:
    assert finding.fix is not None
    before, _ = decode_python(head)
    after = apply_edits(before, with_line_ends_of(before, finding.fix.edits))
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            ast.parse(after)
    except SyntaxError:
        return Applied(row, before, after, parses=False, gone=False)
    counts = [_seen(finding, text, context) for text in (before, after)]
    return Applied(row, before, after, parses=True, gone=counts[1] < counts[0])


def _seen(finding: Finding, text: str, context: _Context) -> int:
    """How many problems the rule whose fix it is sees in the file."""
    only = context.config.model_copy(
        update={"select": (finding.fix_rule or finding.rule,), "min_confidence": 0.0}
    )
    file = whole_file(finding.path, text.encode())
    review = review_files(
        [file],
        config=only,
        facts=context.facts,
        limit_to_change=False,
        one_per_cause=False,
        around=context.around,
    )
    return len(review.findings)


def unused(fixes: Sequence[Applied]) -> list[list[str]]:
    """What ruff says of each file after the fix that it does not say of it before."""
    with tempfile.TemporaryDirectory() as folder:
        for number, fix in enumerate(fixes):
            for when, text in (("before", fix.before), ("after", fix.after)):
                (Path(folder) / f"{when}_{number}.py").write_text(text, "utf-8")
        said = _ruff(folder)
    return [
        sorted((said[f"after_{number}"] - said[f"before_{number}"]).elements())
        for number in range(len(fixes))
    ]


def _ruff(folder: str) -> defaultdict[str, Counter[str]]:
    """File name without its ending -> the messages, without lines."""
    path = shutil.which("ruff", path=str(Path(sys.executable).parent)) or shutil.which("ruff") or "ruff"
    done = subprocess.run(
        [path, "check", "--isolated", "--no-cache", "--exit-zero", "--select", _STALE]
        + ["--output-format", "json", folder],
        capture_output=True,
        encoding="utf-8",
        check=True,
    )
    said: defaultdict[str, Counter[str]] = defaultdict(Counter)
    for report in _reports(done.stdout):
        said[Path(report["filename"]).stem][f"{report['code']} {report['message']}"] += 1
    return said


def _reports(output: str) -> Iterator[dict[str, Any]]:
    yield from json.loads(output or "[]")
