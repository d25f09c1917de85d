"""From what the rules see in one file to proposals: those that touch the change, each with a checked fix."""

from __future__ import annotations

import ast
import dataclasses
from collections import Counter, defaultdict
from collections.abc import Collection, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from ptopt import impact
from ptopt.change import ChangedFile
from ptopt.findings import Condition, Evidence, Finding, Fix, Safety, Span, as_shown, fingerprint
from ptopt.ranker.features import features
from ptopt.ranker.model import Weighed, ranker
from ptopt.rules.base import Rule
from ptopt.rules.engine import Hit, assumptions
from ptopt.source.file import SourceFile
from ptopt.source.index import Loop
from ptopt.source.work import WorkLimitError
from ptopt.suppress import Suppressions, Use
from ptopt.verify import holds, together, waiting_loops
from ptopt.wrap import wrapped

_MOST_LINES = 40  # from the first to the last edit of a suggestion


@dataclass(frozen=True, slots=True)
class Unlikely:
    """A hit that misses a condition of a comment, of which the rule is sure enough. `known` are its features."""

    hit: Hit
    fingerprint: str
    known: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class Proposal:
    """What may become a comment, as values: nothing here holds on to a syntax tree.

    Proposals of one family and file with the same `cause` become one comment. `joint` are the fixes of several places,
    with the fingerprints of the findings there.
    `confidence` is that of the ranker until a model has reweighed it.
    """

    finding: Finding
    cause: Hashable
    ranked_confidence: float
    confidence: float
    silenced_by: frozenset[Use] = frozenset()
    in_baseline: bool = False  # the baseline lists it, and no comment silences it
    joint: tuple[tuple[frozenset[str], Fix | None], ...] = ()
    doubted: bool = False  # its rule is less sure of it than a comment usually needs

    @property
    def reported(self) -> bool:
        """Neither a comment nor the baseline keeps it from being reported."""
        return not (self.silenced_by or self.in_baseline)

    def with_baseline(self, baseline: Collection[str]) -> Proposal:
        """An old one, where the baseline lists it by fingerprint and no comment silences it."""
        old = not self.silenced_by and self.finding.fingerprint in baseline
        return dataclasses.replace(self, in_baseline=True) if old else self

    def reweighed(self, confidence: float) -> Proposal:
        missed = tuple(c for c in self.finding.missed if c is not Condition.CONFIDENCE)  # no longer known
        finding = dataclasses.replace(self.finding, confidence=as_shown(confidence), missed=missed)
        return dataclasses.replace(self, confidence=confidence, finding=finding)


# The places of one rule in one file that are reviewed: each takes kilobytes, and anyone can repeat three lines thousands of times.
MOST_PLACES = 200


def propose(
    source: SourceFile,
    hits: Sequence[Hit],
    change: ChangedFile | None,
    min_confidence: float,
    fixes: Fixes,
    *,
    suppressions: Suppressions | None = None,
    unlikely: list[Unlikely] | None = None,
    places: Counter[str] | None = None,
    conditions: Mapping[Condition, float] | None = None,
    lifted: bool = False,
    asked: Collection[str] = (),
    keep_all: bool = False,
) -> Iterator[Proposal]:
    """The hits in one file that touch the change (None: the whole file is under review) and are sure enough.

    The others land in `unlikely`, for `left_out`; those of which their rule is not sure enough only with `keep_all`. `places` counts,
    by id, the hits of each rule that touch the change and that it is sure of; of these the first `MOST_PLACES` are looked at.
    `conditions` are those of a comment (default: of the ranker), which a proposal may miss; `lifted`: only `min_confidence` counts. Of
    the rules that `asked` names, all hits are.
    """
    unlikely = [] if unlikely is None else unlikely
    places = Counter() if places is None else places
    weigher = ranker()
    conditions = weigher.conditions(None) if conditions is None else conditions
    occurrences: Counter[str] = Counter()
    hits_of_rule = Counter(hit.rule.id for hit in hits)
    for seen in hits:
        hit = seen if change is None else _on_change(source, change, seen)
        rule, problem = seen.rule, (hit or seen).problem
        parts = (rule.id, source.path, (hit or seen).symbol, (hit or seen).code)
        base = fingerprint(*parts)
        occurrences[base] += 1
        if hit is None:
            continue
        identity = fingerprint(*parts, occurrences[base] - 1)
        floor = 0.0 if rule.id in asked else min_confidence
        unsure = not rule.foreign and problem.confidence < weigher.least_stated
        if floor and not lifted and unsure and not keep_all:
            continue  # nor counted: most rules that state so little are not even run
        places[rule.id] += 1
        if places[rule.id] > MOST_PLACES:
            continue
        try:
            known = features(hit, source, hits_of_rule[rule.id])
        except WorkLimitError:  # the review names what was cut
            return
        if not weigher.admits(known, floor, lifted):
            unlikely.append(Unlikely(hit, identity, known))
            continue
        weighed = weigher.weigh(known)
        finding = _finding(source, hit, identity, fixes.of(hit, change), known, weighed)
        finding = dataclasses.replace(finding, missed=weigher.missed(known, conditions))
        yield _proposal(finding, hit, weighed, suppressions)


def left_out(
    source: SourceFile,
    unlikely: Sequence[Unlikely],
    conditions: Mapping[Condition, float],
    suppressions: Suppressions,
    whole: tuple[Fixes, ChangedFile | None] | None = None,
) -> Iterator[Proposal]:
    """What `propose` found too unlikely, as it would be without conditions.

    Without fixes and features, which nobody sees of what is only counted; with `whole`, the fixes of the file and the change under
    review, these as well.
    """
    weigher = ranker()
    for each in unlikely:
        hit, known = each.hit, each.known
        fix = None if whole is None else whole[0].of(hit, whole[1])
        weighed = Weighed(None, weigher.worth(known), ())
        finding = _finding(source, hit, each.fingerprint, fix, {} if whole is None else known, weighed)
        finding = dataclasses.replace(
            finding,
            impact=() if whole is None else finding.impact,
            missed=weigher.missed(known, conditions, weighed.useful),
        )
        yield _proposal(finding, hit, weighed, suppressions)


def _proposal(finding: Finding, hit: Hit, weighed: Weighed, suppressions: Suppressions | None) -> Proposal:
    cause, useful = _cause(hit.problem.cause), weighed.useful
    doubted = not hit.rule.foreign and hit.problem.confidence < ranker().least_stated
    return Proposal(finding, cause, useful, useful, _silenced_by(hit, suppressions), doubted=doubted)


def _silenced_by(hit: Hit, suppressions: Suppressions | None) -> frozenset[Use]:
    if suppressions is None:
        return frozenset()
    return suppressions.matching(hit.rule.keys(), hit.span.start, hit.span.end)


class Fixes:
    """The fixes of one file.

    While one of several problems of a rule with the same cause stays, fixing the others gains nothing. So they are fixed
    together, or not at all; code whose problem a comment suppresses is meant to stay, and no fix of another place edits it.
    """

    def __init__(
        self, source: SourceFile, hits: Sequence[Hit], suppressions: Suppressions | None = None
    ) -> None:
        self._source = source
        self._counts = Counter(hit.rule for hit in hits)
        self._of_cause: defaultdict[tuple[Rule, ast.AST], list[Fix | None]] = defaultdict(list)
        for hit in hits:
            if hit.problem.cause is not None and not _silenced_by(hit, suppressions):
                self._of_cause[hit.rule, hit.problem.cause].append(hit.problem.fix)
        self._whole: dict[tuple[Rule, ast.AST], Fix | None] = {}
        self._checked: dict[tuple[Rule, ast.AST], Fix | None] = {}

    def of(self, hit: Hit, change: ChangedFile | None) -> Fix | None:
        """The fix of a hit: on a change that of all hits with its cause, on a whole file of one after the other."""
        rule, cause, fix = hit.rule, hit.problem.cause, hit.problem.fix
        if fix is None:
            return None
        if cause is None:
            return postable(self.checked(fix, {rule: 1}), self._source, change)
        loops = waiting_loops([hit.problem], self._source)
        key = (rule, cause)
        if key not in self._whole:
            self._whole[key] = together(self._of_cause[key])
        whole = self._whole[key]
        if whole is None or change is None:
            return None if whole is None else self.checked(fix, {rule: 1}, loops)
        if key not in self._checked:
            self._checked[key] = self.checked(whole, {rule: len(self._of_cause[key])}, loops)
        return postable(self._checked[key], self._source, change)

    def checked(
        self, fix: Fix, solved: Mapping[Rule, int], loops: Collection[Loop] = (), joint: bool = False
    ) -> Fix | None:
        """The fix when it holds: of each rule it solves so many problems. Its lines are as long as the project's may be.

        The parts of a `joint` one were checked each, and are written each.
        """
        found = holds(self._source, fix, {rule: self._counts[rule] for rule in solved}, solved, loops)
        if found is None:
            return None
        fix = wrapped(self._source, *found)
        return _in_notebook(fix, self._source, joint) if self._source.is_notebook else fix

    def joined(self, group: Sequence[Proposal], change: ChangedFile | None) -> Fix | None:
        """One fix for all places of a comment; None when there is none.

        A rule without a fix does not stand in the way where another one's edits the same place: that it sees the problem
        no more is checked like the rest.
        """
        fixed = {proposal.finding.span for proposal in group if proposal.finding.fix is not None}
        needed = [p for p in group if p.finding.fix is not None or p.finding.span not in fixed]
        whole = together(proposal.finding.fix for proposal in needed)
        if whole is None or all(proposal.finding.fix == whole for proposal in group):
            return whole
        rules = {rule.id: rule for rule in self._counts}
        solved = Counter(rules[proposal.finding.rule] for proposal in group)
        return postable(self.checked(whole, solved, joint=True), self._source, change)


def _cause(node: ast.AST | None) -> Hashable:
    """A node as a value: its type and where it stands, which no two nodes of a file share."""
    if node is None:
        return None
    place = ("lineno", "col_offset", "end_lineno", "end_col_offset")
    return (type(node).__name__, *(getattr(node, name, 0) for name in place))


def _finding(
    source: SourceFile,
    hit: Hit,
    identity: str,
    fix: Fix | None,
    known: Mapping[str, float],
    weighed: Weighed,
) -> Finding:
    rule, problem, span = hit.rule, hit.problem, hit.span
    head = source.head_line
    return Finding(
        rule=rule.id,
        name=rule.name,
        family=rule.family,
        severity=problem.severity or rule.severity,
        path=source.path,
        span=Span(head(span.start), max(head(span.start), head(span.end))),
        symbol=hit.symbol,
        message=problem.message,
        when_wrong=rule.when_wrong,
        confidence=as_shown(weighed.useful),
        fingerprint=identity,
        evidence=tuple(dict.fromkeys(Evidence(head(e.line), e.note) for e in problem.evidence)),
        fix=fix,
        impact=impact.of_finding(rule.name, known),
        assumes=assumptions(rule, source.facts),
        features=tuple(sorted(known.items())),
        right=None if weighed.right is None else as_shown(weighed.right),
        reasons=weighed.reasons,
        stated=round(problem.confidence, 2),
    )


def _on_change(source: SourceFile, change: ChangedFile, hit: Hit) -> Hit | None:
    """The hit where the change added one of its lines: at its own place, else at another one; None where all are old.

    What was seen in lines that the change took out has no added line: it stands at the nearest one that is left.
    """
    if hit.of_change:
        touched = change.added | {line for line, _ in change.removed}
        return hit if any(source.head_line(line) in touched for line in hit.span.lines()) else None
    places = (hit, *(Hit.of(hit.rule, problem, source) for problem in hit.problem.elsewhere))
    return next(
        (p for p in places if any(source.head_line(line) in change.added for line in p.span.lines())), None
    )


def _in_notebook(fix: Fix, source: SourceFile, joint: bool) -> Fix:
    """The fix as one that only `ptopt fix` makes, or as advice where it cannot: its edits are of the code, not of the JSON."""
    from ptopt.notebook_edits import can_be_written

    written = joint or can_be_written(source.parsed, fix.edits)
    return dataclasses.replace(fix, safety=fix.safety if written else Safety.DISPLAY, postable=False)


def postable(fix: Fix | None, source: SourceFile, change: ChangedFile | None) -> Fix | None:
    """The fix, with whether it can be posted as one suggestion: it stays in its hunk, and is not far apart."""
    if change is None or fix is None or source.is_notebook:
        return fix
    first = source.line_at(min(e.start for e in fix.edits))
    last = source.line_at(max(e.end for e in fix.edits))
    near = last - first < _MOST_LINES or len(fix.edits) == 1
    return dataclasses.replace(fix, postable=near and change.anchor(first, last) == Span(first, last))
