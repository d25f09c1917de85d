"""Labelled real commits: all findings that the rules could report there, and which of them the labels confirm.

A folder holds `labels.jsonl` (see `benchmarks.quality`) and for each case `cases/NAME/change.diff` and `cases/NAME/tree/`.
Nothing in it is run.
"""

from __future__ import annotations

import dataclasses
import json
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from ptopt.change import ChangedFile
from ptopt.config import Config
from ptopt.findings import Finding
from ptopt.inputs import change_from_patch, project_files
from ptopt.model.prompt import possible_rules
from ptopt.model.region import Candidate, Region, regions_of
from ptopt.project.facts import FACT_FILES, ProjectFacts, read_facts
from ptopt.ranker.model import threshold
from ptopt.review import review_change
from ptopt.rules import find_rule, rules
from ptopt.source.file import SourceFile
from ptopt.syntax import ParseError
from training.evaluation.judges import LabelledRegion
from training.evaluation.labels import finds, fits, wanted
from training.progress import Progress

Label = Literal["problem", "clean", "whole"]
_DEFAULT = Config()
_EVERYTHING = _DEFAULT.model_copy(
    update={"select": tuple(rule.id for rule in rules()), "min_confidence": 0.0, "budget": 50, "skip": ()}
)


@dataclass(frozen=True, slots=True)
class Remark:
    """A finding of any rule and any confidence that could be posted.

    `truth` is True when the label confirms it, False on a commit or a file that was labelled clean, and None where it is
    unknown: a labelled problem does not rule out others. `allowed`: the rule is on by default, and the file is one
    that is reviewed by default.
    """

    case: str
    repository: str
    label: Label
    finding: Finding
    allowed: bool
    truth: bool | None
    region: Region | None  # None for notebooks

    @property
    def shown(self) -> bool:
        """Do the default settings show it, without a judge?"""
        return self.allowed and self.finding.confidence >= threshold(_DEFAULT.min_confidence)


@dataclass(frozen=True, slots=True)
class Pool:
    """`remarks` is what a judge ranks. `words` is code with the trigger words of a rule and without a finding."""

    remarks: tuple[Remark, ...]
    words: tuple[LabelledRegion, ...]  # only where the truth is known; `project` is the repository
    wanted: int  # labelled problems of the commits
    commits: dict[str, int]  # by label

    def labelled_regions(self) -> list[LabelledRegion]:
        """The region of each remark that has one, in order; an unknown truth counts as wrong."""
        return [
            LabelledRegion(r.region, {r.finding.name: bool(r.truth)}, r.repository, r.label)
            for r in self.remarks
            if r.region is not None
        ]


def read_pool(folder: Path, limit: int | None = None, progress: Progress | None = None) -> Pool:
    """Review all cases with everything on. Raises FileNotFoundError for a folder without `labels.jsonl`."""
    place = folder / "labels.jsonl"
    if not place.is_file():
        raise FileNotFoundError(f"{folder} holds no labels.jsonl, so these are no cases")
    cases: list[dict[str, Any]] = [
        json.loads(line) for line in place.read_text(encoding="utf-8").splitlines()
    ][:limit]
    remarks: list[Remark] = []
    words: list[LabelledRegion] = []
    commits: defaultdict[str, int] = defaultdict(int)
    for number, case in enumerate(cases, 1):
        commits[case["label"]] += 1
        root = folder / "cases" / case["name"]
        change = change_from_patch((root / "change.diff").read_bytes(), root / "tree")
        facts = read_facts(project_files(root / "tree", FACT_FILES))
        review = review_change(change, config=_EVERYTHING, facts=facts)
        found = [*review.findings, *review.over_limit]
        for file in change.files:
            regions = _regions(file, facts, [f for f in found if f.path == file.path])
            remarks += _remarks(case, file.path, found, regions)
            words += _words(case, file.path, regions)
        if progress is not None:
            progress("reading cases", number, len(cases))
    problems = sum(len(wanted(case)) for case in cases if case["label"] == "problem")
    return Pool(tuple(remarks), tuple(words), problems, dict(commits))


def _regions(file: ChangedFile, facts: ProjectFacts, found: Sequence[Finding]) -> list[Region]:
    if file.head is None or not file.path.endswith(".py"):
        return []
    try:
        source = SourceFile.parse(file.path, file.head, facts)
    except ParseError:
        return []
    return regions_of(source, file.added, [Candidate(f.name, tuple(f.span.lines())) for f in found])


def _remarks(
    case: dict[str, Any], path: str, found: Sequence[Finding], regions: Sequence[Region]
) -> Iterator[Remark]:
    for finding in found:
        if finding.path != path:
            continue
        region = next((r for r in regions if r.start <= finding.span.start <= r.end), None)
        if region is not None:
            own = tuple(c for c in region.candidates if c.rule == finding.name)
            region = dataclasses.replace(region, candidates=own) if own else None
        yield Remark(
            case["name"],
            _repository(case),
            case["label"],
            finding,
            _allowed(finding),
            _truth(case, finding),
            region,
        )


def _allowed(finding: Finding) -> bool:
    rule = find_rule(finding.name)
    return (
        rule is not None
        and _DEFAULT.enabled(*rule.keys(), rule.default, finding.path)
        and _DEFAULT.why_skipped(finding.path) is None
    )


def _truth(case: dict[str, Any], finding: Finding) -> bool | None:
    if finding.path == case["path"] and any(finds(finding, *problem) for problem in wanted(case)):
        return True
    return False if _is_clean(case) else None


def _is_clean(case: dict[str, Any]) -> bool:
    return case["label"] == "clean" or (case["label"] == "whole" and not case.get("expected"))


def _words(case: dict[str, Any], path: str, regions: Sequence[Region]) -> Iterator[LabelledRegion]:
    """Rules without a finding: wrong on clean commits, right for a rule that fits the label, at its lines; else left out."""
    for region in regions:
        reported = {c.rule for c in region.candidates}
        truth: dict[str, bool] = {}
        for name in possible_rules(region):
            if name not in reported and (known := _truth_of_words(case, path, region, name)) is not None:
                truth[name] = known
        if truth:
            candidates = tuple(Candidate(name, ()) for name in truth)
            yield LabelledRegion(
                dataclasses.replace(region, candidates=candidates), truth, _repository(case), "words"
            )


def _truth_of_words(case: dict[str, Any], path: str, region: Region, name: str) -> bool | None:
    if case["label"] == "clean":
        return False
    if case["label"] != "problem" or case.get("locality") == "file" or path != case["path"]:
        return None
    rule = find_rule(name)
    here = region.start <= case["end"] and case["start"] <= region.end
    return True if here and rule is not None and fits(case["category"], name, rule.family) else None


def _repository(case: dict[str, Any]) -> str:
    return str(case.get("repo") or case["name"])
