"""Which proposals are one comment, and which comments come first."""

from __future__ import annotations

import dataclasses
from collections import defaultdict
from collections.abc import Hashable, Iterable

from ptopt.findings import Finding, Severity
from ptopt.proposals import Proposal

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


def merged(group: Iterable[Finding]) -> Finding:
    """The best finding of the group, the other places listed in it."""
    several = sorted(group, key=rank)
    others = sorted({f.span for f in several} - {several[0].span})
    return dataclasses.replace(several[0], also=tuple(others))


def rank(finding: Finding) -> tuple[float, str, int, int, str]:
    """The best first: the confidence, weighed by what the problem costs."""
    return (-finding.confidence * _WEIGHT[finding.severity], *finding.sort_key())


def _rank(proposal: Proposal) -> tuple[float, str, int, int, str]:
    return rank(proposal.finding)
