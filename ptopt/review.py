"""The pipeline, on one page: propose, verify, rank. Text in, values out; no network, no disk, no clock."""

from __future__ import annotations

import dataclasses
import gc
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from ptopt import impact
from ptopt.change import Change, ChangedFile
from ptopt.findings import (
    Evidence,
    Finding,
    Fix,
    NotReviewed,
    Review,
    Safety,
    Severity,
    Span,
    UnusedSuppression,
    fingerprint,
)
from ptopt.rules import rules
from ptopt.rules.base import Rule
from ptopt.rules.engine import Hit, Prefilter, assumptions, run
from ptopt.source.decode import SourceError
from ptopt.source.file import SourceFile
from ptopt.source.project import ProjectFacts
from ptopt.suppress import Suppressions, find_suppressions
from ptopt.verify import verified

if TYPE_CHECKING:
    from ptopt.config import Config

_SUFFIXES = (".py", ".ipynb")
_WEIGHT = {Severity.HIGH: 1.0, Severity.MEDIUM: 0.85, Severity.LOW: 0.7}


def review_change(change: Change, *, config: Config, facts: ProjectFacts) -> Review:
    """Review a pull request: comments on what it changed, the best `config.budget` of them."""
    return review_files(
        [*change.files, *change.not_reviewed], config=config, facts=facts, limit_to_change=True
    )


def review_files(
    files: Iterable[ChangedFile | NotReviewed],
    *,
    config: Config,
    facts: ProjectFacts,
    limit_to_change: bool,
    one_per_cause: bool = True,
) -> Review:
    """Review files one at a time: propose, verify, rank.

    With `limit_to_change`, only what their hunks touch is reported, within the budget. Without `one_per_cause`, every
    place is a finding of its own, each with its own fix.
    """
    reviewer = _Reviewer(config, facts, limit_to_change, one_per_cause)
    with _no_cycle_collection():
        for file in files:
            reviewer.look_at(file)
    return reviewer.review()


@contextmanager
def _no_cycle_collection() -> Iterator[None]:
    """Trees go away by reference counts; collecting cycles would only walk them, again and again."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


class _Reviewer:
    """Collects what is to be said, file by file; keeps no tree, and no text of a file without a finding."""

    def __init__(
        self, config: Config, facts: ProjectFacts, limit_to_change: bool, one_per_cause: bool
    ) -> None:
        self._config = config
        self._facts = facts
        self._limit_to_change = limit_to_change
        self._one_per_cause = one_per_cause
        self._prefilter = Prefilter(rules())
        self._kept: list[Finding] = []
        self._suppressed: list[Finding] = []
        self._skipped: list[NotReviewed] = []
        self._unused: list[UnusedSuppression] = []
        self._sources: dict[str, str] = {}
        self._reviewed = 0

    def look_at(self, file: ChangedFile | NotReviewed) -> None:
        """Propose, verify and group the findings of one file."""
        if not file.path.endswith(_SUFFIXES):
            return
        if isinstance(file, NotReviewed):
            self._skipped.append(file)
            return
        reason = self._config.why_skipped(file.path)
        if reason is None and file.head is None:
            reason = "its head version is not available"
        if reason is not None or file.head is None:
            self._skipped.append(NotReviewed(file.path, reason or ""))
            return
        self._reviewed += 1
        wanted = [
            r for r in self._prefilter(file.head) if self._config.enabled(*r.keys(), r.default, file.path)
        ]
        speaks_to_us = b"ptopt:" in file.head or b"PTO" in file.head
        if not wanted and not speaks_to_us:
            return
        try:
            source = SourceFile.parse(file.path, file.head, self._facts)
        except SourceError as error:
            self._reviewed -= 1
            self._skipped.append(NotReviewed(file.path, str(error)))
            return
        self._skipped += [NotReviewed(file.path, lost) for lost in source.parsed.lost]
        self._propose(source, wanted, file if self._limit_to_change else None, speaks_to_us)

    def _propose(
        self, source: SourceFile, wanted: list[Rule], change: ChangedFile | None, speaks_to_us: bool
    ) -> None:
        failed: list[tuple[Rule, Exception]] = []
        hits = run(source, wanted, failed)
        self._skipped += [NotReviewed(source.path, _failure(rule, error)) for rule, error in failed]
        found = _findings(source, hits, change, self._config.min_confidence)
        groups = _by_cause(found) if self._one_per_cause else [[finding] for finding, _ in found]
        if not groups and not speaks_to_us:
            return  # comments of other tools need no reading
        suppressions = find_suppressions(source.text)
        for hit in hits:  # also those that the change did not touch: their comments are in use
            span = hit.problem.span or source.span(hit.problem.node)
            suppressions.silences(*hit.rule.keys(), span.start, span.end)
        for group in groups:
            loud = [f for f in group if not suppressions.silences(*_keys(f), f.span.start, f.span.end)]
            self._suppressed += [f for f in group if f not in loud]
            if loud:
                self._kept.append(_merged(loud))
                if source.numbered_as_on_disk:
                    self._sources[source.path] = source.text
        self._unused += _unused(suppressions, source, change, self._config)

    def review(self) -> Review:
        """Rank what was found, and cut it to the budget."""
        ranked = sorted(self._kept, key=_rank)
        budget = self._config.budget if self._limit_to_change else len(ranked)
        shown = ranked[:budget]
        paths = {f.path for f in shown}
        return Review(
            findings=tuple(shown),
            withheld=tuple(ranked[budget:]),
            suppressed=tuple(sorted(self._suppressed, key=Finding.sort_key)),
            not_reviewed=tuple(sorted(set(self._skipped))),
            unused_suppressions=tuple(sorted(self._unused)),
            files_reviewed=self._reviewed,
            config_path=self._config.origin,
            sources={path: text for path, text in self._sources.items() if path in paths},
        )


def _failure(rule: Rule, error: Exception) -> str:
    return f"{rule.id} failed on it ({type(error).__name__}): please report this"


def _keys(finding: Finding) -> tuple[str, str, str]:
    return (finding.rule, finding.name, finding.family)


def _unused(
    suppressions: Suppressions, source: SourceFile, change: ChangedFile | None, config: Config
) -> Iterator[UnusedSuppression]:
    """Comments of the change that silence nothing; a rule that is switched off may have its comments."""
    keys = {True: set[str](), False: set[str]()}
    for rule in rules():
        keys[config.enabled(*rule.keys(), rule.default, source.path)] |= set(map(str.lower, rule.keys()))
    off = keys[False] - keys[True]  # a family is on while one of its rules is
    for line, codes in suppressions.unused():
        at = source.head_line(line)
        left = tuple(code for code in codes if code.lower() not in off)
        if (left or not codes) and (change is None or at in change.added):
            yield UnusedSuppression(source.path, at, left)


def _findings(
    source: SourceFile, hits: list[Hit], change: ChangedFile | None, min_confidence: float
) -> Iterator[tuple[Finding, object]]:
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
        fix = verified(source, hit.rule, problem, of_rule[hit.rule.id])
        if change is not None and fix is not None and not _inside_hunk(source, change, fix):
            fix = dataclasses.replace(fix, safety=Safety.DISPLAY)
        mark = fingerprint(hit.rule.id, source.path, symbol, code, seen[base] - 1)
        finding = _finding(source, hit, span, symbol, mark, fix)
        yield finding, problem.cause


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


def _inside_hunk(source: SourceFile, change: ChangedFile, fix: Fix) -> bool:
    """Can the whole fix be posted as one suggestion?"""
    first = source.line_at(min(e.start for e in fix.edits))
    last = source.line_at(max(e.end for e in fix.edits))
    return change.anchor(first, last) == Span(first, last)


def _by_cause(findings: Iterable[tuple[Finding, object]]) -> list[list[Finding]]:
    """Findings of one file that are one comment: those of a family with a common cause, and a rule that repeats."""
    by_cause: defaultdict[tuple[str, object], list[Finding]] = defaultdict(list)
    for finding, cause in findings:
        by_cause[(finding.rule, None) if cause is None else (finding.family, cause)].append(finding)
    by_rule: defaultdict[str, list[Finding]] = defaultdict(list)
    for group in by_cause.values():
        by_rule[min(group, key=_rank).rule] += group
    return list(by_rule.values())


def _merged(group: list[Finding]) -> Finding:
    """The finding that speaks for the group, the other places listed in it."""
    first = min(group, key=_rank)
    others = sorted({f.span for f in group} - {first.span})
    return dataclasses.replace(first, also=tuple(others))


def _rank(finding: Finding) -> tuple[float, str, int, int, str]:
    return (-finding.confidence * _WEIGHT[finding.severity], *finding.sort_key())
