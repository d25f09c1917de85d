"""What a model adds to the proposals of the rules: its confidence, findings of its own, and sentences.

It is asked about all files at once, so that a back end can work on many regions together. Any question may end in
ModelUnavailableError; nothing has changed then.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ptopt.findings import Finding, ModelRecord
from ptopt.model.advice import Adviser
from ptopt.model.advisor import Advisor, Question
from ptopt.model.calibration import Calibration
from ptopt.model.region import Candidate, Region, regions_of
from ptopt.proposals import Proposal, Proposed, postable
from ptopt.rules import find_rule

Enabled = Callable[[str, str, str, bool, str], bool]
"""Whether the settings want a rule: id, name, family, default, path."""


@dataclass(frozen=True, slots=True)
class Consulted:
    """The proposals as they are after the model was heard."""

    proposals: tuple[Proposal, ...]
    record: ModelRecord


def regions(proposal: Proposal, calibration: Calibration) -> list[Region]:
    """What the model is to look at in one file."""
    source, change = proposal.source, proposal.change
    if not source.numbered_as_on_disk:
        return []
    candidates = [Candidate(p.finding.name, tuple(p.finding.span.lines())) for p in proposal.found]
    advises = calibration.advise_threshold is not None
    if not candidates and not advises:
        return []
    found = regions_of(source, None if change is None else change.added, candidates)
    return [region for region in found if advises or region.candidates]


def consult(
    advisor: Advisor, proposals: Sequence[Proposal], looked_at: Sequence[Sequence[Region]], enabled: Enabled
) -> Consulted:
    """Ask about what the rules propose, and for what they did not see. Raises ModelUnavailableError."""
    judged, count = _judged(advisor, proposals, looked_at)
    record = dataclasses.replace(advisor.record, judged=count)
    if advisor.calibration.advise_threshold is None:
        return Consulted(tuple(judged), record)
    advised, invalid = _advised(advisor, judged, looked_at, enabled)
    return Consulted(tuple(advised), dataclasses.replace(record, invalid=invalid))


def explained(
    advisor: Advisor, findings: Sequence[Finding], looked_at: Sequence[Sequence[Region]]
) -> tuple[Finding, ...]:
    """The findings with the model's sentences on them. Raises ModelUnavailableError."""
    if not advisor.calibration.explain:
        return tuple(findings)
    by_path = {several[0].path: several for several in looked_at if several}
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


# -- judge ---------------------------------------------------------------------------------------------------


def _judged(
    advisor: Advisor, proposals: Sequence[Proposal], looked_at: Sequence[Sequence[Region]]
) -> tuple[list[Proposal], int]:
    """The proposals with the confidence that the rule and the model have together, and the number of answers."""
    calibration = advisor.calibration
    asked = [_judgeable(region, calibration) for several in looked_at for region in several]
    asked = [region for region in asked if region.candidates]
    if not asked:
        return list(proposals), 0
    verdicts: dict[tuple[str, int], dict[str, float]] = {
        (region.path, region.start): verdict
        for region, verdict in zip(asked, advisor.judge(asked), strict=True)
    }
    heard = []
    for proposal, several in zip(proposals, looked_at, strict=True):
        found = tuple(_weighed(one, several, verdicts, calibration) for one in proposal.found)
        heard.append(dataclasses.replace(proposal, found=found))
    return heard, sum(map(len, verdicts.values()))


def _judgeable(region: Region, calibration: Calibration) -> Region:
    wanted = tuple(c for c in region.candidates if calibration.judges(c.rule))
    return dataclasses.replace(region, candidates=wanted)


def _weighed(
    one: Proposed,
    several: Sequence[Region],
    verdicts: dict[tuple[str, int], dict[str, float]],
    calibration: Calibration,
) -> Proposed:
    finding = one.finding
    region = _around(several, finding.span.start)
    log_odds = None if region is None else verdicts.get((region.path, region.start), {}).get(finding.name)
    if log_odds is None or one.by_rule < (calibration.floor or 0.0):
        return one
    sure = calibration.confidence(finding.name, one.by_rule, log_odds)
    return dataclasses.replace(
        one, sure=sure, finding=dataclasses.replace(finding, confidence=round(sure, 2))
    )


def _around(several: Sequence[Region], line: int) -> Region | None:
    return next((region for region in several if region.start <= line <= region.end), None)


# -- advise --------------------------------------------------------------------------------------------------


def _advised(
    advisor: Advisor,
    proposals: Sequence[Proposal],
    looked_at: Sequence[Sequence[Region]],
    enabled: Enabled,
) -> tuple[list[Proposal], int]:
    """The proposals with what the model found and still stands by as a judge, and the number of bad answers."""
    asked = [
        (at, region)
        for at, several in enumerate(looked_at)
        for region in several
        if not proposals[at].source.is_notebook
    ]
    answers = advisor.advise([region for _, region in asked])
    advisers = [_adviser(proposal, advisor.record.name) for proposal in proposals]
    found: list[tuple[int, Region, Finding]] = []
    for (at, region), answer in zip(asked, answers, strict=True):
        for advice in answer.advice:
            rule = find_rule(advice.rule)
            if rule is None or not enabled(*rule.keys(), rule.default, region.path):
                continue
            finding = advisers[at].finding(region, advice)
            if finding is not None:
                advisers[at].taken.append(finding.span)
                found.append((at, region, dataclasses.replace(finding, explanation=advice.reason)))
    kept: list[list[Finding]] = [[] for _ in proposals]
    for (at, _, finding), confidence in zip(found, _own(advisor, found), strict=True):
        proposal = proposals[at]
        if confidence >= (advisor.calibration.advise_threshold or 0.0):
            fix = postable(finding.fix, proposal.source, proposal.change)
            kept[at].append(dataclasses.replace(finding, confidence=round(confidence, 2), fix=fix))
    proposals = [
        dataclasses.replace(proposal, advised=tuple(own))
        for proposal, own in zip(proposals, kept, strict=True)
    ]
    return list(proposals), sum(not answer.valid for answer in answers)


def _adviser(proposal: Proposal, model: str) -> Adviser:
    source = proposal.source
    taken = [hit.problem.span or source.span(hit.problem.node) for hit in proposal.hits]
    changed = None if proposal.change is None else proposal.change.added
    return Adviser(source, changed, taken, model)


def _own(advisor: Advisor, found: Sequence[tuple[int, Region, Finding]]) -> list[float]:
    """How sure the model is of its own findings, asked as a judge of the rule that it named."""
    if not found:
        return []
    asked = [
        dataclasses.replace(region, candidates=(Candidate(finding.name, tuple(finding.span.lines())),))
        for _, region, finding in found
    ]
    verdicts = advisor.judge(asked)
    return [
        advisor.calibration.own_confidence(finding.name, verdict[finding.name])
        for (_, _, finding), verdict in zip(found, verdicts, strict=True)
    ]
