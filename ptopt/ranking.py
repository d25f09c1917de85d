"""Which proposals are one comment, and which comments come first."""

from __future__ import annotations

import bisect
import dataclasses
import re
from collections import defaultdict
from collections.abc import Collection, Hashable, Iterable, Sequence

from ptopt.change import ChangedFile
from ptopt.findings import Finding, Fix, Impact, Place, Safety, Severity, Span
from ptopt.proposals import Fixes, Proposal

_REPEATED = "workflow"  # the family of rules that speak of a file which projects copy
_FIRST_CODE = re.compile(r"`([^`]+)`")
_FIRST_SENTENCE = re.compile(r"(?:`[^`]*`|[^`.])*\.")
# A rule about a measure that a change takes out -> the one about code without it: of one place they say the same.
_LACKS = {
    "workers-removed": "loader-without-workers",
    "pinning-removed": "loader-without-pinning",
    "persistent-workers-removed": "workers-restarted-each-epoch",
    "fused-optimizer-removed": "optimizer-not-fused",
    "set-to-none-removed": "zero-grad-keeps-tensors",
    "no-grad-removed": "evaluation-records-graph",
    "autocast-removed": "full-precision-training",
    "batched-map-removed": "dataset-map-unbatched",
    "cudnn-benchmark-removed": "cudnn-autotune-off",
}
_WEIGHT = {Severity.HIGH: 1.0, Severity.MEDIUM: 0.85, Severity.LOW: 0.7}


def grouped(proposals: Iterable[Proposal]) -> list[list[Proposal]]:
    """Proposals of one file that are one comment: those of a rule, and of rules that would comment on the same lines.

    What another rule says in functions of which the comment does not speak is a comment of its own. What a model found by
    itself stands alone.
    """
    several = list(proposals)
    alone = [[p] for p in several if p.finding.origin == "model"]
    groups: list[list[Proposal]] = []
    waiting = sorted(_by_cause(p for p in several if p.finding.origin != "model"), key=_best_rank)
    while waiting:
        group = waiting.pop(0)
        first = _best(group).finding
        there = next((other for other in groups if _overlap(_best(other).finding.span, first.span)), None)
        if there is None:
            said = next((other for other in groups if _is_said_in(group, other)), None)
            if said is None:
                groups.append(group)
            else:
                said += group
            continue
        symbols = {first.symbol, *(proposal.finding.symbol for proposal in there)}
        elsewhere = [proposal for proposal in group if proposal.finding.symbol not in symbols]
        there += (proposal for proposal in group if proposal.finding.symbol in symbols)
        if elsewhere:
            bisect.insort(waiting, elsewhere, key=_best_rank)
    return [*groups, *alone]


def _is_said_in(group: Sequence[Proposal], other: Sequence[Proposal]) -> bool:
    """Does the other comment blame the same code at each of these places? A fix that it would not show keeps them apart."""
    at = _best(other).finding.span
    if any(p.finding.fix is not None for p in group) and not any(_overlap(p.finding.span, at) for p in group):
        return False
    return all(any(_says_the_same(p.finding, said.finding) for said in other) for p in group)


def _by_cause(proposals: Iterable[Proposal]) -> list[list[Proposal]]:
    """Those of a family with a common cause, and a rule that repeats."""
    groups: defaultdict[Hashable, list[Proposal]] = defaultdict(list)
    for proposal in proposals:
        finding, cause = proposal.finding, proposal.cause
        groups[(finding.rule, None) if cause is None else (finding.family, cause)].append(proposal)
    by_rule: defaultdict[str, list[Proposal]] = defaultdict(list)
    for group in groups.values():
        by_rule[_best(group).finding.rule] += group
    return list(by_rule.values())


def _by_rule(part: Iterable[Proposal]) -> Iterable[list[Proposal]]:
    found: defaultdict[str, list[Proposal]] = defaultdict(list)
    for proposal in part:
        found[proposal.finding.rule].append(proposal)
    return found.values()


def _overlap(one: Span, other: Span) -> bool:
    return one.start <= other.end and other.start <= one.end


def split_ignored(
    groups: Iterable[list[Proposal]], ignored: Collection[str]
) -> tuple[list[list[Proposal]], list[list[Proposal]]]:
    """The comments without what is ignored, and those that are ignored; `ignored` are fingerprints.

    Who ignored a comment read all its places: they do not come back under another name when feedback changes the order. What
    another rule says, and ranks before it, is a comment without it.
    """
    if not ignored:
        return list(groups), []
    kept, left_out = [], []
    for group in groups:
        gone = {
            proposal.finding.fingerprint
            for part in _by_cause(group)
            if any(p.finding.fingerprint in ignored for p in part)
            for proposal in part
        }
        if _best(map(_without_feedback, group)).finding.fingerprint in gone:
            left_out.append(group)
            continue
        rest = [p for p in group if p.finding.fingerprint not in gone]
        kept.append(rest)
        if gone:
            left_out.append([p for p in group if p not in rest])
    return kept, left_out


def _without_feedback(proposal: Proposal) -> Proposal:
    finding = proposal.finding
    return proposal if finding.score is None else proposal.reweighed(finding.score)


def joined(proposals: Sequence[Proposal], fixes: Fixes, change: ChangedFile | None) -> tuple[Proposal, ...]:
    """The proposals; each with the fixes of the comments, and parts of comments, that it is in with others."""
    joint: defaultdict[str, list[tuple[frozenset[str], Fix | None]]] = defaultdict(list)
    for group in grouped(p for p in proposals if p.reported):
        parts = _by_cause(group)
        several = [*(of_rule for part in parts for of_rule in _by_rule(part)), *parts, group]
        for identities, part in {_identities(part): part for part in several if len(part) > 1}.items():
            fix = fixes.joined(part, change)
            for identity in identities:
                joint[identity].append((identities, fix))
    return tuple(
        dataclasses.replace(p, joint=tuple(joint[p.finding.fingerprint]))
        if p.finding.fingerprint in joint
        else p
        for p in proposals
    )


def merged(group: Sequence[Proposal]) -> Finding:
    """The best finding of the group, the other places listed in it: with the fix of the comment, and the highest severity.

    What another rule says on the lines of the best one is kept: its gain stands beside its place, unless it is one more for
    what the best one's rule gains by correcting the same code, and its fix is that of the comment where the best one has none.
    """
    best = _best(group).finding
    if len(group) == 1:
        return best
    own = [p.finding for p in group if p.finding.rule == best.rule]
    ranked = [best, *(p.finding for p in sorted(group, key=_rank))]
    others = {
        (p.finding.span, p.finding.rule): _place(p.finding, best, own, _said_before(p.finding, ranked))
        for p in sorted(group, key=_rank, reverse=True)
        if p.finding.rule != best.rule or p.finding.span != best.span
    }
    here = [p for p in group if _overlap(p.finding.span, best.span)]
    fix, rule = _fix(group), ""
    if fix is None:
        fix, rule = _fix_of_another(here, group)
    severity = min((p.finding.severity for p in here), key=list(Severity).index)
    return dataclasses.replace(
        best, also=tuple(sorted(others.values())), fix=fix, fix_rule=rule, severity=severity
    )


def across_files(findings: Iterable[Finding]) -> list[Finding]:
    """The findings, where workflows that say the same make one: a repository can have a dozen of one form.

    It is the first of them, with the places of the others.
    """
    found: dict[Hashable, list[Finding]] = {}
    for finding in findings:
        alike = _alike(finding) if finding.family == _REPEATED else len(found)
        found.setdefault(alike, []).append(finding)
    return [_with_places(*several) for several in found.values()]


def without_repeated(findings: Iterable[Finding], ignored: Iterable[Finding]) -> list[Finding]:
    """The findings but for those of workflows that say the same as an ignored one: that was one comment."""
    gone = {_alike(finding) for finding in ignored if finding.family == _REPEATED}
    return [finding for finding in findings if _alike(finding) not in gone]


def _alike(finding: Finding) -> tuple[str, str]:
    return finding.rule, finding.message


def _with_places(first: Finding, *others: Finding) -> Finding:
    if not others:
        return first
    places = [
        dataclasses.replace(
            place,
            path=other.path,
            message="" if place.message == first.message else place.message,
            impact=tuple(i for i in place.impact if i not in first.impact),
        )
        for other in others
        for place in other.places()
    ]
    return dataclasses.replace(first, also=(*first.also, *places))


def _said_before(finding: Finding, ranked: Iterable[Finding]) -> Finding | None:
    """A finding that comes earlier and says the same of these lines: one about the measure taken out, or about its lack."""
    for other in ranked:
        if other is finding:
            break
        alike = _LACKS.get(finding.name) == other.name or _LACKS.get(other.name) == finding.name
        if alike and _overlap(other.span, finding.span):
            return other
    return None


def _place(other: Finding, best: Finding, own: Sequence[Finding], said: Finding | None) -> Place:
    """A place of the comment: without words, and without gains, that the comment has already.

    `own` is what the rule of the best finding says at each of its places; `said` another one that says the same as `other`.
    """
    place = other.as_place()
    if said is not None:
        message = "" if said.rule == best.rule else f"The same as {said.rule} says of it."
        if other.name in _LACKS and (taken_out := _FIRST_SENTENCE.match(other.message)) is not None:
            message = taken_out[0]  # that the change itself did it, the other rule does not know
        place = dataclasses.replace(place, message=message, when_wrong="")
    gains = () if other.rule == best.rule else tuple(i for i in place.impact if i not in best.impact)
    if other.rule != best.rule and any(_says_the_same(other, finding) for finding in own):
        gains = tuple(i for i in gains if not any(_is_for_the_same(i, known) for known in best.impact))
        place = dataclasses.replace(place, message="", when_wrong="")
    return dataclasses.replace(place, impact=gains)


def _is_for_the_same(one: Impact, other: Impact) -> bool:
    return (one.gain, one.scope, one.provenance) == (other.gain, other.scope, other.provenance)


def _says_the_same(other: Finding, best: Finding) -> bool:
    """Another rule that blames the same code on the same lines: it is what the message names first."""
    codes = [match[1] for f in (other, best) if (match := _FIRST_CODE.search(f.message))]
    return other.span == best.span and len(codes) == 2 and codes[0] == codes[1]


def _fix(group: Sequence[Proposal]) -> Fix | None:
    """That of all places where it is as safe as that of the problem that the comment is about, else the latter."""
    best = _best(group)
    fix, whole = _own_fix(best, group), dict(best.joint).get(_identities(group))
    return whole if fix is not None and whole is not None and _cost(whole) <= _cost(fix) else fix


def _own_fix(proposal: Proposal, group: Iterable[Proposal]) -> Fix | None:
    """That of its rule at all places of its part of the comment, or of the whole part where that is as safe.

    What `ptopt fix` makes of it must be announced: another rule of the part that has no fix does not take this one away.
    """
    joint = dict(proposal.joint)
    part = next(part for part in _by_cause(group) if proposal in part)
    of_rule = [p for p in part if p.finding.rule == proposal.finding.rule]
    fix = proposal.finding.fix if len(of_rule) == 1 else joint.get(_identities(of_rule))
    whole = joint.get(_identities(part))
    return whole if whole is not None and (fix is None or _cost(whole) <= _cost(fix)) else fix


def _fix_of_another(here: Sequence[Proposal], group: Sequence[Proposal]) -> tuple[Fix | None, str]:
    """The fix of another rule on the lines of the best finding, with that rule; the best ranked one that has any."""
    best = _best(group).finding
    for proposal in sorted(here, key=_rank):
        fix = _own_fix(proposal, group)
        if fix is not None and proposal.finding.rule != best.rule:
            return fix, proposal.finding.rule
    return None, ""


def _cost(fix: Fix) -> tuple[bool, int]:
    """What it takes to apply it: a click less than an edit by hand, and no thought less than some."""
    return (not fix.postable or fix.safety is Safety.DISPLAY, list(Safety).index(fix.safety))


def _identities(group: Iterable[Proposal]) -> frozenset[str]:
    return frozenset(proposal.finding.fingerprint for proposal in group)


def rank(finding: Finding) -> tuple[float, str, int, int, str]:
    """The best first: the confidence, weighed by what the problem costs."""
    return (-finding.confidence * _WEIGHT[finding.severity], *finding.sort_key())


def _best(group: Iterable[Proposal]) -> Proposal:
    """What the comment is about: of the best ranked rule, the best of its most serious places.

    A serious place that is only listed below a milder one of the same rule would be read as mild.
    """
    several = list(group)
    rule = min(several, key=_rank).finding.rule
    return min(
        (p for p in several if p.finding.rule == rule),
        key=lambda p: (list(Severity).index(p.finding.severity), _rank(p)),
    )


def _best_rank(group: Iterable[Proposal]) -> tuple[float, str, int, int, str]:
    return _rank(_best(group))


def _rank(proposal: Proposal) -> tuple[float, str, int, int, str]:
    return rank(proposal.finding)
