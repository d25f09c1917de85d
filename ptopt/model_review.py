"""What a model adds to the proposals of the rules: its confidence, findings of its own, and sentences.

It is asked about all files at once, so that a back end can work on many regions together. Any question may end in
ModelUnavailableError; nothing has changed then.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Mapping, Sequence

from ptopt.change import ChangedFile
from ptopt.file_result import FileResult
from ptopt.findings import Finding, ModelRecord
from ptopt.model.advice import Adviser
from ptopt.model.advisor import Advisor, Answer, Question
from ptopt.model.calibration import Calibration
from ptopt.model.region import Candidate, Region, regions_of
from ptopt.model_whole_change import Enabled, with_claims
from ptopt.project.facts import ProjectFacts
from ptopt.proposals import Proposal, postable
from ptopt.rules import find_rule
from ptopt.runner import AnalysisError, Runner, in_process
from ptopt.source.file import SourceFile


def regions(
    source: SourceFile, change: ChangedFile | None, proposals: Sequence[Proposal], calibration: Calibration
) -> tuple[Region, ...]:
    """What the model is shown of one file."""
    if not source.numbered_as_on_disk:
        return ()
    candidates = [Candidate(p.finding.name, tuple(p.finding.span.lines())) for p in proposals]
    advises = calibration.advise_threshold is not None
    if not candidates and not advises:
        return ()
    changed, removed = (None, ()) if change is None else (change.added, change.removed)
    found = regions_of(source, changed, candidates, removed)
    return tuple(region for region in found if advises or region.candidates)


def reweighed(
    advisor: Advisor,
    results: Sequence[FileResult],
    facts: ProjectFacts,
    enabled: Enabled,
    runner: Runner = in_process,
) -> tuple[list[FileResult], ModelRecord]:
    """The results with the model's confidence in each proposal, and its own proposals beside them.

    `runner` is where its own proposals are checked. Raises ModelUnavailableError.
    """
    found, count = _judged(advisor, results)
    invalid = 0
    if advisor.calibration.advise_threshold is not None:
        found, invalid = _advised(advisor, found, facts, enabled, runner)
    if advisor.calibration.change_threshold is not None:
        found, more = with_claims(advisor, found, facts, enabled, runner)
        invalid += more
    return found, dataclasses.replace(advisor.record, judged=count, invalid=invalid)


def explained(
    advisor: Advisor, findings: Sequence[Finding], results: Sequence[FileResult]
) -> tuple[Finding, ...]:
    """The findings with the model's sentences on them. Raises ModelUnavailableError."""
    if not advisor.calibration.explain:
        return tuple(findings)
    by_path = {result.path: result.regions for result in results}
    questions: dict[int, Question] = {}
    for at, finding in enumerate(findings):
        region = _around(by_path.get(finding.path, ()), finding.span.start)
        if finding.origin == "rule" and region is not None:
            lines = tuple(finding.span.lines())
            questions[at] = Question(region, finding.name, lines, finding.message)
    texts = dict(zip(questions, advisor.explain(list(questions.values())), strict=True))
    return tuple(
        dataclasses.replace(finding, explanation=texts.get(at, finding.explanation))
        for at, finding in enumerate(findings)
    )


def _around(regions: Sequence[Region], line: int) -> Region | None:
    return next((region for region in regions if region.start <= line <= region.end), None)


# -- judge ---------------------------------------------------------------------------------------------------

_Verdicts = Mapping[
    tuple[str, int], Mapping[str, float]
]  # by path and first line of a region: rule -> log-odds


def _judged(advisor: Advisor, results: Sequence[FileResult]) -> tuple[list[FileResult], int]:
    """The results with the confidence that rule and model have together, and the number of answers."""
    calibration = advisor.calibration
    questions = [
        dataclasses.replace(region, candidates=wanted)
        for result in results
        for region in result.regions
        if (wanted := tuple(c for c in region.candidates if calibration.judges(c.rule)))
    ]
    if not questions:
        return list(results), 0
    verdicts = {
        (region.path, region.start): verdict
        for region, verdict in zip(questions, advisor.judge(questions), strict=True)
    }
    judged = [
        dataclasses.replace(
            result,
            proposals=tuple(_weighed(p, result.regions, verdicts, calibration) for p in result.proposals),
        )
        for result in results
    ]
    return judged, sum(map(len, verdicts.values()))


def _weighed(
    proposal: Proposal, regions: Sequence[Region], verdicts: _Verdicts, calibration: Calibration
) -> Proposal:
    finding = proposal.finding
    region = _around(regions, finding.span.start)
    log_odds = None if region is None else verdicts.get((region.path, region.start), {}).get(finding.name)
    if log_odds is None or proposal.ranked_confidence < (calibration.floor or 0.0):
        return proposal
    return proposal.reweighed(calibration.confidence(finding.name, proposal.ranked_confidence, log_odds))


# -- advise --------------------------------------------------------------------------------------------------


def _advised(
    advisor: Advisor, results: Sequence[FileResult], facts: ProjectFacts, enabled: Enabled, runner: Runner
) -> tuple[list[FileResult], int]:
    """The results with what the model found and still confirms as a judge, and the number of invalid answers."""
    shown = [
        (at, region)
        for at, result in enumerate(results)
        for region in result.regions
        if result.line_numbers is None  # no notebook
    ]
    answers = advisor.advise([region for _, region in shown])
    by_file: dict[int, list[tuple[Region, Answer]]] = {}
    for (at, region), answer in zip(shown, answers, strict=True):
        if answer.advice:
            by_file.setdefault(at, []).append((region, answer))
    found: list[tuple[int, Region, Finding]] = []
    for at, several in by_file.items():
        with contextlib.suppress(AnalysisError):  # what could not be checked is not reported
            checked = runner(_findings, results[at], several, facts, enabled, advisor.record.name)
            found += [(at, region, finding) for region, finding in checked]
    own: dict[int, list[Proposal]] = {}
    for (at, _, finding), confidence in zip(found, _confirmed(advisor, found), strict=True):
        if confidence >= (advisor.calibration.advise_threshold or 0.0):
            keys = (finding.rule, finding.name, finding.family)
            silenced_by = results[at].suppressions.matching(keys, finding.span.start, finding.span.end)
            proposal = Proposal(finding, None, confidence, confidence, silenced_by).reweighed(confidence)
            own.setdefault(at, []).append(proposal)
    advised = [
        dataclasses.replace(result, proposals=(*result.proposals, *own.get(at, ())))
        for at, result in enumerate(results)
    ]
    return advised, sum(not answer.valid for answer in answers)


def _findings(
    result: FileResult,
    answers: Sequence[tuple[Region, Answer]],
    facts: ProjectFacts,
    enabled: Enabled,
    model: str,
) -> list[tuple[Region, Finding]]:
    """What holds of the advice on one file. The file is parsed again: few have any, and trees are large."""
    source = SourceFile.parse(result.path, result.head, facts)
    changed = None if result.change is None else result.change.added
    adviser = Adviser(source, changed, list(result.taken), model)
    found = []
    for region, answer in answers:
        for advice in answer.advice:
            rule = find_rule(advice.rule)
            if rule is None or not enabled(*rule.keys(), rule.default, region.path):
                continue
            finding = adviser.finding(region, advice)
            if finding is not None:
                adviser.taken.append(finding.span)
                fix = postable(finding.fix, source, result.change)
                found.append((region, dataclasses.replace(finding, explanation=advice.reason, fix=fix)))
    return found


def _confirmed(advisor: Advisor, found: Sequence[tuple[int, Region, Finding]]) -> list[float]:
    """How sure the model is of its own findings, asked as a judge of the rule that it named."""
    if not found:
        return []
    questions = [
        dataclasses.replace(region, candidates=(Candidate(finding.name, tuple(finding.span.lines())),))
        for _, region, finding in found
    ]
    verdicts = advisor.judge(questions)
    return [
        advisor.calibration.own_confidence(finding.name, verdict[finding.name])
        for (_, _, finding), verdict in zip(found, verdicts, strict=True)
    ]
