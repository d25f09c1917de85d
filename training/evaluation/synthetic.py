"""A judge and an adviser on the held-out projects of a dataset.

The labels there are those of the rules, or put in and agreed to by them. A score says how well the rules are imitated on code
of projects that were not seen; the rules themselves would score nearly 1 by definition, and so are not in the tables.
"""

from __future__ import annotations

import ast
import dataclasses
import re
import textwrap
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from ptopt.findings import Finding
from ptopt.model.advice import Adviser
from ptopt.model.advisor import Advisor, Question
from ptopt.model.deletions import DELETABLE
from ptopt.model.region import Candidate, Region, regions_of
from ptopt.model.schema import Advice
from ptopt.rules import rules
from ptopt.rules.engine import run
from ptopt.source.file import SourceFile
from ptopt.verify import apply_edits
from training.dataset.files import samples
from training.dataset.rows import Sample
from training.dataset.rule_examples import pairs
from training.dataset.views import explain_question, judge_regions, source_of
from training.evaluation.judges import LabelledRegion
from training.evaluation.metrics import Place, matched
from training.progress import Progress
from training.sandbox.execute import Pair, run_pair

_AT_ONCE = 8


def select_samples(folder: Path, split: str, limit: int | None) -> list[Sample]:
    """The samples of a split, or `limit` of them by order of their hash: the same each time, of every project and kind."""
    chosen = sorted(samples(folder, split), key=lambda sample: sample.hash)
    return chosen[:limit]


def questions(
    chosen: Sequence[Sample], stage: str = "", progress: Progress | None = None
) -> list[LabelledRegion]:
    """The regions of the samples, with the label of each candidate."""
    found: list[LabelledRegion] = []
    for number, sample in enumerate(chosen, 1):
        present = {p.rule for p in sample.positives}
        for region in judge_regions(sample):
            truth = {c.rule: c.rule in present for c in region.candidates}
            found.append(LabelledRegion(region, truth, sample.project, sample.kind))
        if progress is not None:
            progress(stage, number, len(chosen))
    return found


@dataclass(frozen=True, slots=True)
class OwnFinding:
    """A finding of a model that holds: its log-odds as a judge of it, and whether it names a known problem and resolves it."""

    rule: str
    log_odds: float
    right: bool


@dataclass(slots=True)
class AdviceCounts:
    """What a model's own findings came to, in numbers of answers, findings and problems."""

    answers: int = 0
    valid: int = 0  # answers that conform to the schema in all they say
    wanted: int = 0  # problems with a known place
    said: int = 0  # findings
    deleting: int = 0  # findings that only take away code that the program needs; they count as wrong
    right: int = 0  # findings with the rule and the lines of a problem
    holds: int = 0  # findings that apply, parse, and change nothing but their lines
    resolved: int = 0  # of these: the rule that is named no longer speaks
    known_fix: int = 0  # of these: the code is then the fix that is known, token for token
    silent_where_clean: int = 0  # answers without a finding on samples without a problem
    clean: int = 0
    executable: int = 0  # samples that can be run
    executed: int = 0  # of these: the advice held, and both sides ran
    equal: int = 0
    faster: int = 0
    explained: int = 0  # sentences on known problems
    supported: int = 0  # of these: they speak of the code only (see `is_supported`)
    by_rule: dict[str, dict[str, int]] = field(default_factory=dict)
    own: list[OwnFinding] = field(default_factory=list)


def advise(
    advisor: Advisor, chosen: Sequence[Sample], stage: str = "", progress: Progress | None = None
) -> AdviceCounts:
    """Request findings and sentences on each sample, and check them. Only benchmarks of our own rules are ever run."""
    total = AdviceCounts()
    by_rule: defaultdict[str, Counter[str]] = defaultdict(Counter)
    for at in range(0, len(chosen), _AT_ONCE):
        parts = [
            (sample, source, _regions(source)) for sample, source in _sources(chosen[at : at + _AT_ONCE])
        ]
        flat = iter(advisor.advise([region for *_, regions in parts for region in regions]))
        for sample, source, regions in parts:
            found: list[tuple[Region, Advice]] = []
            for region in regions:
                answer = next(flat)
                total.answers += 1
                total.valid += answer.valid
                found += [(region, advice) for advice in answer.advice]
            total.own += _judged(advisor, _count(total, by_rule, sample, source, found))
        _explained(total, advisor, [sample for sample, *_ in parts])
        if progress is not None:
            progress(stage, min(at + _AT_ONCE, len(chosen)), len(chosen))
    total.by_rule = {name: dict(counts) for name, counts in sorted(by_rule.items())}
    return total


def _sources(chosen: Sequence[Sample]) -> Iterator[tuple[Sample, SourceFile]]:
    for sample in chosen:
        if (source := source_of(sample)) is not None:
            yield sample, source


def _regions(source: SourceFile) -> list[Region]:
    """Its functions; a sample without one is a run of statements."""
    found = regions_of(source, None, [])
    return [region for region in found if region.symbol] or found


def _count(
    total: AdviceCounts, by_rule: defaultdict[str, Counter[str]], sample: Sample, source: SourceFile,
    found: Sequence[tuple[Region, Advice]],
) -> list[tuple[Region, Finding, bool]]:  # fmt: skip
    """Count the findings; returns those that hold, and whether they are right."""
    above = sample.context.count("\n")
    wanted = [
        Place(p.rule, min(p.start, p.fix_start or p.start) + above, max(p.end, p.fix_end) + above)
        for p in sample.positives
    ]
    adviser = Adviser(source, None, [], "the model")
    found_places = [Place(a.rule, a.start, a.end) for _, a in found]
    keeping = [
        place
        for place, (region, advice) in zip(found_places, found, strict=True)
        if not adviser.takes_away(region, advice)
    ]
    total.wanted += len(wanted)
    total.said += len(found_places)
    total.deleting += len(found_places) - len(keeping)
    total.right += matched(keeping, wanted)
    if not wanted:
        total.clean += 1
        total.silent_where_clean += not found_places
    for name in {p.rule for p in (*wanted, *found_places)}:
        mine, theirs = [p for p in keeping if p.rule == name], [p for p in wanted if p.rule == name]
        said = sum(p.rule == name for p in found_places)
        by_rule[name].update(said=said, wanted=len(theirs), right=matched(mine, theirs))
    pair = _pair(sample)
    total.executable += pair is not None
    holding = []
    for region, advice in found:
        finding = adviser.finding(region, advice)
        if finding is None:
            continue
        total.holds += 1
        after = _applied(source, finding)
        resolved = not _reports(after, advice.rule)
        place = Place(advice.rule, advice.start, advice.end)
        holding.append((region, finding, resolved and matched([place], wanted) == 1))
        total.resolved += resolved
        total.known_fix += _is_known_fix(sample, after)
        if pair is not None:
            _execute(total, pair, after.text)
            pair = None  # one run a sample
    return holding


def _judged(advisor: Advisor, holding: Sequence[tuple[Region, Finding, bool]]) -> Iterator[OwnFinding]:
    """As a review asks: the model is a judge of its own findings."""
    asked = [
        dataclasses.replace(region, candidates=(Candidate(finding.name, tuple(finding.span.lines())),))
        for region, finding, _ in holding
    ]
    for (_, finding, right), verdict in zip(holding, advisor.judge(asked) if asked else [], strict=True):
        yield OwnFinding(finding.name, verdict[finding.name], right)


def _explained(total: AdviceCounts, advisor: Advisor, chosen: Sequence[Sample]) -> None:
    asked = [found for sample in chosen if (found := explain_question(sample)) is not None]
    questions = [
        Question(region, about.rule, tuple(lines), message) for region, about, lines, message in asked
    ]
    for (region, about, _, message), text in zip(asked, advisor.explain(questions), strict=True):
        total.explained += 1
        total.supported += is_supported(text, region, about.rule, f"{message}\n{about.replacement or ''}")


def is_supported(text: str, region: Region, rule: str, known: str) -> bool:
    """Does the sentence quote code, all of it made of words of the region and of what is `known`, name lines of the region
    alone, and delete nothing that is needed? It can be empty or wrong all the same; what fails here is surely worthless.
    """
    quoted = _QUOTED.findall(text)
    words = set(_WORD.findall("\n".join([known, *(line.text for line in region.lines)])))
    lines = [int(n) for n in _LINES.findall(text)]
    return (
        bool(quoted)
        and all(words.issuperset(_WORD.findall(code)) for code in quoted)
        and all(1 <= n <= region.end - region.start + 1 for n in lines)
        and (rule in DELETABLE or not _DELETES.search(text))
    )


_QUOTED = re.compile(r"`([^`]+)`")
_WORD = re.compile(r"\w+")
_LINES = re.compile(r"\blines? (\d{1,6})")
_DELETES = re.compile(r"\b(?:delete|remove|drop)\b", re.I)


def _applied(source: SourceFile, finding: Finding) -> SourceFile:
    edits = list(finding.fix.edits) if finding.fix is not None else []
    return SourceFile.parse(source.path, apply_edits(source.text, edits).encode())


def _reports(source: SourceFile, name: str) -> bool:
    return bool(run(source, [rule for rule in rules() if rule.name == name], []))


def _is_known_fix(sample: Sample, after: SourceFile) -> bool:
    if sample.after is None:
        return False
    for body in (sample.after, textwrap.indent(sample.after, "    ")):
        try:
            return ast.dump(ast.parse(f"{sample.context}{body}")) == ast.dump(after.tree)
        except SyntaxError:
            continue
    return False


def _pair(sample: Sample) -> Pair | None:
    """The benchmark that the sample is, if it is one of ours."""
    if sample.kind != "pair":
        return None
    return next((pair for rule, pair in pairs() if rule.name == sample.main_rule), None)


def _execute(total: AdviceCounts, pair: Pair, text: str) -> None:
    """Run the benchmark against what was advised; its setup must be as it was."""
    setup = f"{pair.setup}\n\n"
    if not text.startswith(setup):
        return
    outcome = run_pair(Pair(pair.setup, pair.before, text.removeprefix(setup)))
    total.executed += outcome.executed
    total.equal += outcome.equal
    total.faster += outcome.keep
