"""Comments that people judged, as samples of a judge, with the code and the facts that it would be shown in a review.

The verdicts (`benchmarks/quality/data/verdicts`) hold no code: it is read from git clones on this machine. What the rules say
right and useful is a yes; what is true but trivial, or wrong, is a no. The parts are kept apart as there: *work* is for
training, *calibrate* for validation, and *judge*, which the result is measured on, gives no samples at all.
"""

from __future__ import annotations

import ast
import hashlib
import json
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ptopt.model.region import Candidate, Region, regions_of
from ptopt.rules import find_rule
from ptopt.source.file import SourceFile
from ptopt.syntax import ParseError
from training.dataset import licences
from training.dataset.regions import context_of
from training.dataset.rows import JUDGED, Positive, Sample, difficulty
from training.dataset.views import judge_regions
from training.progress import Progress
from training.sources.base import SourceError
from training.sources.git import Clone, clone_of

SPLIT_OF_PART: Mapping[str, str] = {"work": "train", "calibrate": "validation"}
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9-]{0,99}/(?!\.{1,2}\Z)[A-Za-z0-9._-]{1,100}")
_SHA = re.compile(r"[0-9a-f]{40}")

NO_CLONE = "there is no clone of the repository"
NO_FILE = "the commit or the file is not in the clone"
NO_CODE = "the lines are no code, or no rule is called so any more"
UNDECIDED = "undecided, dated, or two readers disagree"
ALONE = "the function cannot be read without the file around it"
CONFLICT = "comments of one rule in one function, judged differently"


@dataclass(slots=True)
class FromClones:
    """What was read, and how many rows were left out, by reason."""

    samples: list[Sample] = field(default_factory=list)
    texts: list[str] = field(default_factory=list)
    left_out: Counter[str] = field(default_factory=Counter)


def judged_samples(
    files: Sequence[Path], clones: Path, opted_in: Collection[str] = (), progress: Progress = lambda *_: None
) -> FromClones:
    """One sample for each function with judged comments. The files are named by their part.

    Raises ValueError for another part than those of `SPLIT_OF_PART`, and for a line that is no verdict.
    """
    result = FromClones()
    rows: list[dict[str, Any]] = []
    for file in files:
        split = SPLIT_OF_PART.get(file.stem)
        if split is None:
            known = ", ".join(f"{part}.jsonl" for part in SPLIT_OF_PART)
            raise ValueError(f"{file}: no part to train on; the file is named by its part: {known}")
        for row in verdict_rows(file):
            if split == "validation" and _belongs_to_judge(row["repo"]):
                raise ValueError(f"{file}: {row['repo']} is of the part judge, which nothing is trained on")
            if answer_of(row) is None:
                result.left_out[UNDECIDED] += 1
            else:
                rows.append({**row, "split": split})

    def read(clone: Clone, several: Sequence[dict[str, Any]]) -> None:
        licence = clone.licence() or licences.UNKNOWN
        verdict = licences.gate(licence, opted_in)
        if not verdict.train:
            result.left_out[verdict.reason] += len(several)
            return
        by_region: defaultdict[tuple[str, str, int], list[dict[str, Any]]] = defaultdict(list)
        found: dict[tuple[str, str, int], tuple[SourceFile, Region]] = {}
        for row, source, region in located(clone, several, result.left_out):
            key = (row["sha"], row["path"], region.start)
            by_region[key].append(row)
            found[key] = (source, region)
        for key, own in by_region.items():
            sample = judged_sample(own, *found[key], licence, result.left_out)
            if sample is not None:
                result.samples.append(sample)

    each_clone(rows, clones, read, result.left_out, progress)
    return result


def held_out_texts(files: Sequence[Path], clones: Path, progress: Progress = lambda *_: None) -> FromClones:
    """The functions that the labels and verdicts in these files speak of, before and after the commit: for `--against`."""
    result = FromClones()
    rows = [
        {**row, "sha": sha}
        for file in files
        for row in verdict_rows(file)
        for sha in dict.fromkeys((row["sha"], row.get("parent") or row["sha"]))
    ]

    def read(clone: Clone, several: Sequence[dict[str, Any]]) -> None:
        for _, _, region in located(clone, several, result.left_out):
            result.texts.append(_text(region))

    each_clone(rows, clones, read, result.left_out, progress)
    result.texts = sorted(set(result.texts))
    return result


# -- reading -----------------------------------------------------------------------------------------------


def verdict_rows(file: Path) -> Iterator[dict[str, Any]]:
    for number, line in enumerate(file.read_text(encoding="utf-8").splitlines(), 1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
            good = _NAME.fullmatch(row["repo"]) and _SHA.fullmatch(row["sha"]) and "\n" not in row["path"]
            if not (good and isinstance(row["start"], int) and isinstance(row["end"], int)):
                raise ValueError("repo, sha, path, start and end are needed")
        except (ValueError, KeyError, TypeError) as error:
            raise ValueError(
                f"{file}, line {number}: no label of a place in a repository ({error!r})"
            ) from None
        yield row


def _belongs_to_judge(repository: str) -> bool:
    """By the hash that the parts are made with; *work* also has repositories that belong nowhere else."""
    return int(hashlib.sha256(repository.encode()).hexdigest(), 16) % 10 >= 7


def answer_of(row: Mapping[str, Any]) -> bool | None:
    """Would a maintainer act on the comment? None where the readers do not say."""
    if row.get("dated") or row.get("verdict") not in ("R", "T", "W"):
        return None
    useful = row["verdict"] == "R"
    second = row.get("second")
    return None if second is not None and (second["verdict"] == "R") != useful else useful


def each_clone(
    rows: Iterable[dict[str, Any]],
    clones: Path,
    read: Callable[[Clone, Sequence[dict[str, Any]]], None],
    left_out: Counter[str],
    progress: Progress = lambda *_: None,
) -> None:
    """`read` with each clone and the rows of its repository."""
    by_repository: defaultdict[str, list[dict[str, Any]]] = defaultdict(list)
    for row in rows:
        by_repository[row["repo"]].append(row)
    for number, (repository, several) in enumerate(sorted(by_repository.items()), 1):
        place = clone_of(repository, clones)
        if place is None:
            left_out[NO_CLONE] += len(several)
        else:
            try:
                with Clone(place) as clone:
                    read(clone, several)
            except SourceError as error:
                left_out[f"the clone cannot be read: {error}"] += len(several)
        progress("reading clones", number, len(by_repository))


def located(
    clone: Clone, rows: Sequence[dict[str, Any]], left_out: Counter[str]
) -> Iterator[tuple[dict[str, Any], SourceFile, Region]]:
    """Each row with the function that holds its first line."""
    parsed: dict[tuple[str, str], SourceFile | None] = {}
    for row in rows:
        key = (row["sha"], row["path"])
        if key not in parsed:
            data = clone.blob(f"{row['sha']}:{row['path']}") if row["path"].endswith(".py") else None
            try:
                parsed[key] = None if data is None else SourceFile.parse(row["path"], data)
            except ParseError:
                parsed[key] = None
        source = parsed[key]
        if source is None:
            left_out[NO_FILE] += 1
            continue
        lines = tuple(range(row["start"], min(row["end"], source.text.count("\n") + 1) + 1))
        asked = [Candidate(str(row.get("rule", "")), lines)]
        region = next((r for r in regions_of(source, None, asked) if r.candidates), None)
        if region is None or ("rule" in row and find_rule(row["rule"]) is None):
            left_out[NO_CODE] += 1
            continue
        yield row, source, region


# -- samples -----------------------------------------------------------------------------------------------


def _text(region: Region) -> str:
    return "".join(f"{line.text}\n" for line in region.lines)


def judged_sample(
    rows: Sequence[dict[str, Any]], source: SourceFile, region: Region, licence: str, left_out: Counter[str]
) -> Sample | None:
    """The sample of judged comments on one function: of rows with `rule` (by name), lines and verdict."""
    answers: defaultdict[str, set[bool]] = defaultdict(set)
    lines: defaultdict[str, set[int]] = defaultdict(set)
    for row in rows:
        answers[row["rule"]].add(bool(answer_of(row)))
        lines[row["rule"]].update(
            range(row["start"] - region.start + 1, min(row["end"], region.end) - region.start + 2)
        )
    left_out[CONFLICT] += sum(len(answers[row["rule"]]) > 1 for row in rows)
    yes = sorted(rule for rule, said in answers.items() if said == {True})
    no = sorted(rule for rule, said in answers.items() if said == {False})
    context = _context(source, region)
    if not (yes or no) or context is None:
        return None
    first, text = rows[0], _text(region)
    positives = tuple(_positive(rule, sorted(lines[rule])) for rule in yes)
    known = {
        f"{key} of {row['rule']}": str(value)
        for row in rows
        for key, value in (*row.get("facts", {}).items(), ("verdict", row["verdict"]))
    }
    sample = Sample(
        text=text,
        context=context,
        path=first["path"],
        project=first["repo"],
        licence=licence,
        source="verdicts",
        provenance=f"{first['repo']}@{first['sha']}:{first['path']}::{region.symbol}",
        kind=JUDGED,
        main_rule=(yes or no)[0],
        positives=positives,
        negatives=tuple(no),
        difficulty=difficulty(text, JUDGED, positives),
        group=hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:24],
        facts=region.facts,
        attributes={
            "split": first["split"],
            **{f"lines of {rule}": " ".join(map(str, sorted(lines[rule]))) for rule in no},
            **dict(sorted(known.items())),
        },
    )
    if sum(len(asked.candidates) for asked in judge_regions(sample)) < len(yes) + len(no):
        left_out[ALONE] += len(rows)
        return None
    return sample


def _positive(rule: str, lines: Sequence[int]) -> Positive:
    known = find_rule(rule)
    message = known.summary() if known is not None else rule
    return Positive(rule, lines[0], lines[-1], message, known.when_wrong if known is not None else "")


def _context(source: SourceFile, region: Region) -> str | None:
    """What makes the function a file again; None where it would not be the same function there."""
    node = next(
        (
            n
            for n in source.index.of_type(ast.FunctionDef, ast.AsyncFunctionDef)
            if min([n.lineno, *(d.lineno for d in n.decorator_list)]) == region.start
            and n.end_lineno == region.end
        ),
        None,
    )
    if node is None:
        return ""
    owner = source.index.class_of(node)
    return context_of(source.tree, node, owner if region.indent == "    " else None)
