"""Which proposals are one comment, and which comments come first."""

from __future__ import annotations

import dataclasses
from collections import defaultdict
from collections.abc import Hashable, Iterable, Sequence

from ptopt.change import ChangedFile
from ptopt.findings import Finding, Fix, Severity
from ptopt.proposals import Fixes, Proposal

_WEIGHT = {Severity.HIGH: 1.0, Severity.MEDIUM: 0.85, Severity.LOW: 0.7}


def by_cause(proposals: Iterable[Proposal]) -> list[list[Proposal]]:
    """Proposals of one file that are one comment: those of a family with a common cause, and a rule that repeats.

    What a model found by itself stands alone.
    """
    groups: defaultdict[Hashable, list[Proposal]] = defaultdict(list)
    alone: list[list[Proposal]] = []
    for proposal in proposals:
        finding, cause = proposal.finding, proposal.cause
        if finding.origin == "model":
            alone.append([proposal])
        else:
            groups[(finding.rule, None) if cause is None else (finding.family, cause)].append(proposal)
    by_rule: defaultdict[str, list[Proposal]] = defaultdict(list)
    for group in groups.values():
        by_rule[min(group, key=_rank).finding.rule] += group
    return [*by_rule.values(), *alone]


def joined(proposals: Sequence[Proposal], fixes: Fixes, change: ChangedFile | None) -> tuple[Proposal, ...]:
    """The proposals; each of those that become one comment with the fix of all its places."""
    joint: dict[str, tuple[frozenset[str], Fix | None]] = {}
    for group in by_cause(p for p in proposals if p.reported):
        if len(group) > 1:
            identities = frozenset(p.finding.fingerprint for p in group)
            joint |= dict.fromkeys(identities, (identities, fixes.joined(group, change)))
    return tuple(dataclasses.replace(p, joint=joint.get(p.finding.fingerprint)) for p in proposals)


def merged(group: Iterable[Proposal]) -> Finding:
    """The best finding of the group, the other places listed in it, with the fix of all of them."""
    proposals = sorted(group, key=_rank)
    best = proposals[0].finding
    if len(proposals) == 1:
        return best
    others = sorted({p.finding.span for p in proposals} - {best.span})
    identities = frozenset(p.finding.fingerprint for p in proposals)
    joint = proposals[0].joint
    fix = joint[1] if joint is not None and joint[0] == identities else None
    return dataclasses.replace(best, also=tuple(others), fix=fix)


def rank(finding: Finding) -> tuple[float, str, int, int, str]:
    """The best first: the confidence, weighed by what the problem costs."""
    return (-finding.confidence * _WEIGHT[finding.severity], *finding.sort_key())


def _rank(proposal: Proposal) -> tuple[float, str, int, int, str]:
    return rank(proposal.finding)
