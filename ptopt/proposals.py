"""From what the rules see in one file to findings: those that touch the change, each with a checked fix."""

from __future__ import annotations

import dataclasses
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from ptopt import impact
from ptopt.change import ChangedFile
from ptopt.findings import Evidence, Finding, Fix, Safety, Severity, Span, fingerprint
from ptopt.rules.engine import Hit, assumptions
from ptopt.source.file import SourceFile
from ptopt.verify import verified

_WEIGHT = {Severity.HIGH: 1.0, Severity.MEDIUM: 0.85, Severity.LOW: 0.7}


@dataclass(frozen=True, slots=True)
class Proposed:
    """A finding of a rule. Findings of a family with one `cause` become one comment."""

    finding: Finding
    cause: object
    by_rule: float  # how sure the rule is
    sure: float  # the same after the model was heard


@dataclass(frozen=True, slots=True)
class Proposal:
    """What is proposed on one file, before anything is silenced or merged."""

    source: SourceFile
    change: ChangedFile | None  # None: the file as a whole is under review
    hits: tuple[Hit, ...]
    found: tuple[Proposed, ...]
    advised: tuple[Finding, ...] = ()  # findings of the model's own


def propose(
    source: SourceFile, hits: list[Hit], change: ChangedFile | None, min_confidence: float
) -> Iterator[Proposed]:
    """Findings of one file that touch the change and are sure enough, each with its cause."""
    seen: Counter[str] = Counter()
    of_rule = Counter(hit.rule.id for hit in hits)
    for hit in hits:
        problem = hit.problem
        span = problem.span or source.span(problem.node)
        symbol = source.index.symbol_of(problem.node)
        code = "\n".join(source.line(n) for n in span.lines())
        base = fingerprint(hit.rule.id, source.path, symbol, code)
        seen[base] += 1
        if problem.confidence < min_confidence:
            continue
        if change is not None and not _touches(source, change, span, problem.evidence):
            continue
        fix = postable(verified(source, hit.rule, problem, of_rule[hit.rule.id]), source, change)
        mark = fingerprint(hit.rule.id, source.path, symbol, code, seen[base] - 1)
        finding = _finding(source, hit, span, symbol, mark, fix)
        yield Proposed(finding, problem.cause, problem.confidence, problem.confidence)


def _finding(source: SourceFile, hit: Hit, span: Span, symbol: str, mark: str, fix: Fix | None) -> Finding:
    rule, problem = hit.rule, hit.problem
    head = source.head_line
    return Finding(
        rule=rule.id,
        name=rule.name,
        family=rule.family,
        severity=rule.severity,
        path=source.path,
        span=Span(head(span.start), max(head(span.start), head(span.end))),
        symbol=symbol,
        message=problem.message,
        when_wrong=rule.when_wrong,
        confidence=round(problem.confidence, 2),
        fingerprint=mark,
        evidence=tuple(Evidence(head(e.line), e.note) for e in problem.evidence),
        fix=fix,
        impact=impact.of_rule(rule.name),
        assumes=assumptions(rule, source.facts),
    )


def _touches(source: SourceFile, change: ChangedFile, span: Span, evidence: tuple[Evidence, ...]) -> bool:
    """Did the change write a line of the finding, or one that proves it?"""
    lines = [*span.lines(), *(e.line for e in evidence)]
    return any(source.head_line(line) in change.added for line in lines)


def postable(fix: Fix | None, source: SourceFile, change: ChangedFile | None) -> Fix | None:
    """The fix; for reading only, where it cannot be posted as one suggestion because it leaves its hunk."""
    if change is None or fix is None:
        return fix
    first = source.line_at(min(e.start for e in fix.edits))
    last = source.line_at(max(e.end for e in fix.edits))
    if change.anchor(first, last) == Span(first, last):
        return fix
    return dataclasses.replace(fix, safety=Safety.DISPLAY)


def by_cause(proposed: Iterable[Proposed]) -> list[list[Finding]]:
    """Findings of one file that are one comment: those of a family with a common cause, and a rule that repeats."""
    groups: defaultdict[tuple[str, object], list[Finding]] = defaultdict(list)
    for one in proposed:
        finding, cause = one.finding, one.cause
        groups[(finding.rule, None) if cause is None else (finding.family, cause)].append(finding)
    by_rule: defaultdict[str, list[Finding]] = defaultdict(list)
    for group in groups.values():
        by_rule[min(group, key=rank).rule] += group
    return list(by_rule.values())


def merged(group: list[Finding]) -> Finding:
    """The finding that speaks for the group, the other places listed in it."""
    first = min(group, key=rank)
    others = sorted({f.span for f in group} - {first.span})
    return dataclasses.replace(first, also=tuple(others))


def rank(finding: Finding) -> tuple[float, str, int, int, str]:
    """The best first: the sureness, weighed by what the problem costs."""
    return (-finding.confidence * _WEIGHT[finding.severity], *finding.sort_key())
