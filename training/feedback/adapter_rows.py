"""A dataset for the adapter: the answers of the ranker's dataset, and judged comments, with the code that they are about.

Which answers count, and which are held out, `ranker_rows` says. The service keeps no code: it is read from clones, where our
rules find the finding again. What is like code of an evaluation set is left out.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, Literal

from ptopt.findings import Finding
from ptopt.model.region import Candidate, regions_of
from ptopt.rules import find_rule
from ptopt.source.file import SourceFile
from training.dataset import dedup, licences
from training.dataset.rows import ACCEPTED, JUDGED, Sample
from training.dataset.synthesis import positive
from training.dataset.verdicts import (
    answer_of,
    each_clone,
    held_out_texts,
    judged_sample,
    located,
    verdict_rows,
)
from training.dataset.views import advise_example, judge_regions
from training.evaluation.judges import LabelledRegion
from training.feedback import ranker_rows
from training.feedback.evaluations import DATA
from training.feedback.ranker_rows import Answer
from training.feedback.rows import replayed
from training.ranker.rows import RIGHT, TRIVIAL, Row
from training.sources.feedback import comments
from training.sources.git import Clone

MEASURED = tuple(
    DATA / name for name in ("verdicts/calibrate.jsonl", "verdicts/judge.jsonl", "fixes.jsonl", "clean.jsonl")
)
CHECKED = 0.25  # of what is learned from: the calibration is fitted on it, the weights are not
LIKE_MEASURED = "its code is like that of an evaluation set"
NEAR = "its code is like that of another comment on the rule"
_TAKEN = ("merged", "applied", "changed")  # kinds of signals that say: the suggestion is in the code
Part = Literal["train", "validation", "held out", "gold"]


@dataclass(frozen=True, slots=True)
class Example:
    """A comment with an answer, and the function it is about. `repository` and `pull` are digests for feedback."""

    part: Part
    repository: str
    pull: str
    rule: str  # its name
    useful: bool
    weight: float
    judged: bool  # by a reader, else by what people did
    features: Mapping[str, float]
    sample: Sample

    def row(self) -> Row:
        """What a ranker learns from it."""
        verdict = RIGHT if self.useful else TRIVIAL
        return Row(
            self.repository, self.rule, verdict, self.features, "", self.judged, self.judged, self.weight
        )

    def region(self) -> LabelledRegion:
        """What a judge is shown."""
        (region,) = judge_regions(self.sample)
        return LabelledRegion(region, {self.rule: self.useful}, self.repository)

    def to_json(self) -> str:
        return json.dumps({**asdict(self), "sample": self.sample.to_json()}, sort_keys=True)

    @classmethod
    def from_json(cls, line: str) -> Example:
        data = json.loads(line)
        return cls(**{**data, "sample": Sample.from_json(data["sample"])})


@dataclass(frozen=True, slots=True)
class Dataset:
    """`against`: hash of the evaluation's texts, "" where no clone has any. `left_out`: how many comments, by reason."""

    examples: tuple[Example, ...]
    against: str
    left_out: Mapping[str, int]

    def of(self, part: Part) -> list[Example]:
        return [example for example in self.examples if example.part == part]

    def text(self) -> str:
        """JSON lines; the same for the same database and clones."""
        head = json.dumps({"against": self.against})
        return "".join(f"{line}\n" for line in (head, *(example.to_json() for example in self.examples)))

    @classmethod
    def of_text(cls, text: str) -> Dataset:
        head, *lines = text.splitlines()
        return cls(tuple(map(Example.from_json, lines)), json.loads(head)["against"], {})


def build(
    database_url: str,
    clones: Path,
    *,
    private: Collection[str] = (),
    until: datetime | None = None,
    work: Sequence[Path] = (),
    gold: Sequence[Path] = (),
    measured: Sequence[Path] = MEASURED,
) -> Dataset:
    """The dataset of what people said until then, and of the verdicts in `work` and `gold`.

    Raises SourceError where the database or git cannot be read.
    """
    answers = ranker_rows.build(database_url, private=private, until=until)
    left_out = Counter(answers.left_out)
    texts = held_out_texts(measured, clones).texts
    evaluation = dedup.Evaluation(texts)
    learned = [
        *_of_feedback(database_url, clones, answers.answers, left_out),
        *_of_verdicts(work, clones, left_out),
    ]
    kept = list(clean(learned, evaluation, left_out))
    read = list(_of_verdicts(gold, clones, left_out, gold=True))
    against = hashlib.sha256("\0".join(texts).encode("utf-8", "replace")).hexdigest() if texts else ""
    return Dataset((*kept, *read), against, dict(sorted((+left_out).items())))


# -- feedback -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Answered:
    comment: Any
    answer: Answer


def _of_feedback(
    url: str, clones: Path, answers: Iterable[Answer], left_out: Counter[str]
) -> Iterator[Example]:
    by_comment = {answer.comment: answer for answer in answers}
    by_head: defaultdict[tuple[str, str], list[_Answered]] = defaultdict(list)
    with closing(comments(url)) as pages:
        for page in pages:
            for comment, _ in page:
                if (answer := by_comment.get(comment.id)) is not None:
                    by_head[comment.full_name, comment.head_sha].append(_Answered(comment, answer))
    for repository in dict.fromkeys(name for name, _ in by_head):
        heads = {sha: several for (name, sha), several in by_head.items() if name == repository}
        for one, (rule, sample) in replayed(repository, heads, clones, _found, left_out):
            yield _answered(one.answer, rule, sample)


def _found(source: SourceFile, finding: Finding) -> tuple[str, Sample] | None:
    """The name of the rule, and the finding as a sample whose suggestion was taken; None where it cannot be shown alone."""
    lines = tuple(finding.span.lines())
    asked = [Candidate(finding.name, lines)]
    region = next((r for r in regions_of(source, None, asked) if r.candidates), None)
    if region is None:
        return None
    row = {
        "repo": "", "sha": "", "path": source.path, "start": lines[0], "end": lines[-1], "rule": finding.name,
        "verdict": RIGHT, "split": "",
    }  # fmt: skip
    sample = judged_sample([row], source, region, licences.UNKNOWN, Counter())
    if sample is None or len(judge_regions(sample)) != 1:
        return None
    edits = finding.fix.edits if finding.fix is not None else ()
    problem = positive(finding, source.text, edits, region.start, region.indent == "    ")
    return finding.name, dataclasses.replace(
        sample, source="feedback", provenance="", kind=ACCEPTED, positives=(problem,)
    )


def _answered(answer: Answer, rule: str, sample: Sample) -> Example:
    if not (answer.good and answer.by in _TAKEN):  # a suggestion that nobody took is no answer for an adviser
        sample = _judged(sample, rule, answer.good)
    part: Part = "held out" if answer.held_out else part_of(answer.pull)
    return Example(
        part, answer.repository, answer.pull, rule, answer.good, answer.weight, False, answer.features, sample
    )


def _judged(sample: Sample, rule: str, useful: bool) -> Sample:
    """The sample with a verdict alone."""
    (problem,) = sample.positives
    if useful:
        bare = dataclasses.replace(problem, fix_start=0, fix_end=0, replacement=None)
        return dataclasses.replace(sample, kind=JUDGED, positives=(bare,))
    lines = " ".join(map(str, range(problem.start, problem.end + 1)))
    attributes = {**sample.attributes, f"lines of {rule}": lines}
    return dataclasses.replace(sample, kind=JUDGED, positives=(), negatives=(rule,), attributes=attributes)


def part_of(identity: str) -> Part:
    """Of a pull request, or of a repository of judged comments. By hash: the same in the next build."""
    digest = hashlib.sha256(f"checked\0{identity}".encode()).hexdigest()
    return "validation" if int(digest[:8], 16) < CHECKED * 16**8 else "train"


# -- verdicts -----------------------------------------------------------------------------------------------------


def _of_verdicts(
    files: Sequence[Path], clones: Path, left_out: Counter[str], *, gold: bool = False
) -> Iterator[Example]:
    """Each verdict as an example. What is learned from has a licence that allows it; gold is only measured on."""
    rows = [
        row
        for file in files
        for row in verdict_rows(file)
        if answer_of(row) is not None and row.get("features") and find_rule(row["rule"]) is not None
    ]
    found: list[Example] = []

    def read(clone: Clone, several: Sequence[dict[str, Any]]) -> None:
        licence = clone.licence() or licences.UNKNOWN
        verdict = licences.gate(licence)
        if not gold and not verdict.train:
            left_out[verdict.reason] += len(several)
            return
        for row, source, region in located(clone, several, left_out):
            sample = judged_sample([{**row, "split": ""}], source, region, licence, left_out)
            if sample is None or len(judge_regions(sample)) != 1:
                continue
            part: Part = "gold" if gold else part_of(row["repo"])
            features = {str(name): float(value) for name, value in row["features"].items()}
            useful = bool(answer_of(row))
            found.append(
                Example(part, row["repo"], row["sha"], row["rule"], useful, 1.0, True, features, sample)
            )

    each_clone(rows, clones, read, left_out)
    return iter(found)


# -- quality ------------------------------------------------------------------------------------------------------


def clean(
    found: Sequence[Example], evaluation: dedup.Evaluation, left_out: Counter[str]
) -> Iterator[Example]:
    """Without code of evaluation sets and near-duplicates; those held out come first, so that nothing learned is like them."""
    seen: defaultdict[str, dedup.NearDuplicates] = defaultdict(dedup.NearDuplicates)
    order: dict[Part, int] = {"held out": 0, "validation": 1, "train": 2}
    for number, example in enumerate(sorted(found, key=lambda one: order[one.part])):
        text = example.sample.text
        if evaluation and evaluation.contaminates(text):
            left_out[LIKE_MEASURED] += 1
        elif not seen[example.rule].add(str(number), dedup.signature(text)):
            left_out[NEAR] += 1
        else:
            yield example


def advised(examples: Iterable[Example], max_tokens: int) -> int:
    """How many of them an adviser learns from."""
    return sum(advise_example(example.sample, max_tokens) is not None for example in examples)
