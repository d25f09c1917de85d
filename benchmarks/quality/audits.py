"""Audit the heads of local clones as `ptopt audit` does, with a model that checks the tables, or with its recorded answers.

    python -m benchmarks.quality audit --clones DIR REPO ... [--answers FILE] [--ask DIR] --out FILE.json
    python -m benchmarks.quality audit --clones DIR --readings FILE ... [--part work]

The first writes a JSON object: OWNER/NAME -> `sha` and `audit`, as the schema of the command has it. With `--ask DIR` each prompt
without a recorded answer lies there as a file (`prompt`, `system`, `user`, `schema`); put `{"prompt": ..., "answer": {...}}`, one
a line, into the file of --answers and run it again: tables and findings are asked first, then a second look at each row that would
change. The second says of how many rows that readers called wrong (W, T) the lines that their reasons name stand in the prompt.
Git objects are read; nothing is checked out or run.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import sys
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.quality.changes import find_clones, open_clone
from benchmarks.quality.common import read_rows
from benchmarks.quality.model import ModelOptions, add_model_options, model_options
from benchmarks.quality.parts import PARTS, TUNED, part_of, read_names
from ptopt.audit.context import Contexts
from ptopt.audit.run import audit_of
from ptopt.audit.scripts import training_scripts
from ptopt.config import Config
from ptopt.inputs.folders import printable, walked
from ptopt.inputs.whole import MOST_BYTES, is_read
from ptopt.model.audit_rows import Sheet
from ptopt.model.interface import ChatPrompt, ModelUnavailableError
from ptopt.model.region import estimate
from ptopt.model_audit import MOST_SCRIPTS, ModelReader, sheet_of
from ptopt.project.facts import FACT_FILES, ProjectFacts, read_facts
from ptopt.project.surroundings import with_surroundings
from ptopt.report.audit.json import as_data
from ptopt.report.text import one_line
from training.sources.base import SourceError

_NAMED = re.compile(r"([\w./-]*\.(?:py|sh|ya?ml|md|txt|toml|json|ipynb|in))[: ]((?:\d+(?:-\d+)?(?:,\s?)?)+)")
_BESIDE = 1  # lines: a reader may name the line above the one that is shown


@dataclass(frozen=True)
class Head:
    """The files of a clone's HEAD that an audit reads."""

    name: str
    sha: str
    files: dict[str, bytes]
    facts: ProjectFacts


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.quality audit",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("repositories", nargs="*", metavar="REPO", help="OWNER/NAME")
    parser.add_argument("--clones", type=Path, required=True)
    parser.add_argument(
        "--scripts", type=int, default=MOST_SCRIPTS, help="of a repository; default: %(default)s"
    )
    parser.add_argument("--out", type=Path, help="write the audits here")
    parser.add_argument("--readings", type=Path, nargs="+", help="JSON lines of what readers said of rows")
    parser.add_argument("--part", choices=PARTS, help="of --readings: only repositories of this part")
    add_model_options(parser)
    options = parser.parse_args(arguments)
    folders = find_clones(options.clones)
    if options.readings:
        _print_shown(options.readings, options.part, folders)
        return 0
    missing = [name for name in options.repositories if name not in folders]
    if not options.repositories or missing:
        parser.error(f"not in the clones: {', '.join(missing)}" if missing else "name a repository")
    audits = {}
    for name in options.repositories:
        try:
            head = head_of(name, folders[name])
            audits[name] = {"sha": head.sha, "audit": _audited(head, model_options(options), options.scripts)}
        except (SourceError, ModelUnavailableError) as error:
            print(f"{name}: {one_line(str(error))}", file=sys.stderr)
    if options.out:
        options.out.write_text(json.dumps(audits, indent=1) + "\n", encoding="utf-8")
    return 0 if len(audits) == len(options.repositories) else 1


def head_of(name: str, folder: Path) -> Head:
    """Raises SourceError."""
    with open_clone(folder) as clone:
        sha = clone.head
        files: dict[str, bytes] = {}
        left = MOST_BYTES
        listed = sorted(clone.files(sha) or ())
        reached = set(walked([path for path, _ in listed]))
        for path, blob in listed:
            if path != printable(path) or not ((is_read(path) and path in reached) or path in FACT_FILES):
                continue
            data = clone.blob(blob)
            if data is not None and len(data) <= left:
                left -= len(data)
                files[path] = data
    facts = read_facts({path: data for path, data in files.items() if path in FACT_FILES})
    return Head(name, sha, files, facts)


def _audited(head: Head, model: ModelOptions, most: int) -> dict[str, Any]:
    """The audit as plain values; what it took is printed."""
    tokens: list[int] = []

    def count(prompt: ChatPrompt) -> None:
        tokens.append(estimate(prompt.system) + estimate(prompt.user))

    advisor = model.advisor(count)
    reader = None if advisor is None else ModelReader(advisor, most)
    try:
        found = audit_of(head.name.rpartition("/")[2], head.files, Config(), head.facts, reader=reader)
    finally:
        if advisor is not None:
            advisor.close()
    said = found.model
    shown = "" if said is None else (
        f"; {said.agreed} rows confirmed, {said.changed} changed, {said.refused} refused, {said.refuted} of {said.findings} findings "
        f"refuted, {said.invalid} answers unusable; {len(tokens)} prompts, about {sum(tokens):,} tokens{said.note and ': ' + said.note}"
    )  # fmt: skip
    print(f"{head.name}: {len(found.entries)} scripts{one_line(shown)}")
    return as_data(found)


# -- what readers named ----------------------------------------------------------------------------------------


def _print_shown(readings: Sequence[Path], part: str | None, folders: Mapping[str, Path]) -> None:
    tuned = read_names([TUNED])
    rows: defaultdict[str, list[dict[str, Any]]] = defaultdict(list)
    for row in read_rows(readings):
        if (
            row["verdict"] in ("W", "T")
            and part in (None, part_of(row["repo"], tuned))
            and row["repo"] in folders
        ):
            rows[row["repo"]].append(row)
    totals: Counter[str] = Counter()
    for name, some in sorted(rows.items()):
        for asked, named in _named(head_of(name, folders[name]), some):
            totals.update(lines=len(named), shown=sum(named.values()), rows=1, whole=all(named.values()))
            for place in (place for place, shown in named.items() if not shown):
                print(f"{name} {asked['script']}, {asked['rule']}: {place} is not shown")
    print(f"{totals['shown']} of {totals['lines']} lines that readers name are shown; all of them for {totals['whole']} of {totals['rows']} rows")  # fmt: skip


def _named(
    head: Head, rows: Sequence[Mapping[str, Any]]
) -> Iterator[tuple[Mapping[str, Any], dict[str, bool]]]:
    """Each row whose reason names lines of the repository, with these and whether the prompt shows them."""
    known = with_surroundings(head.facts, head.files)
    entries = {entry.path: entry for entry in training_scripts(head.files, known).entries}
    contexts = Contexts(head.files, known)
    sheets: dict[str, Sheet] = {}
    for row in rows:
        script = row["script"]
        if script not in entries:
            continue
        if script not in sheets:
            sheets[script] = sheet_of(entries[script], contexts.of(entries[script]))
        named: dict[str, bool] = {}
        for match in _NAMED.finditer(row["reason"]):
            ending = "/" + os.path.normpath(match[1]).lstrip("./")
            paths = [path for path in head.files if f"/{path}".endswith(ending)]
            for number in map(int, re.findall(r"\d+", match[2]) if paths else ()):
                near = range(number - _BESIDE, number + _BESIDE + 1)
                shown = sheets[script].shown
                named[f"{match[1]}:{number}"] = any(shown.has(path, at) for path in paths for at in near)
        if named:
            yield row, named
