"""Findings with what their lines take of a recorded run, the most expensive first."""

from __future__ import annotations

import dataclasses
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence

from ptopt.findings import Condition, Finding, LeftOut, Measured, Review
from ptopt.profiles.frames import Frame
from ptopt.profiles.lines import Line, named_lines
from ptopt.profiles.profile import Profile

# The share of the step from which on what was measured is worth a comment, whatever the ranker makes of it.
WORTH_A_COMMENT = 0.05
_LEAST = 0.005  # of the step: less is not worth a word
# Rules whose comment stands where something is built, and whose cost shows elsewhere: in a part of the step.
_PARTS: Mapping[str, tuple[str, str]] = {
    **dict.fromkeys(
        (
            "loader-without-workers", "trainer-without-workers", "workers-restarted-each-epoch", "workers-removed",
            "persistent-workers-removed",
        ),
        ("data", "data loading"),
    ),
    **dict.fromkeys(
        ("optimizer-not-fused", "fused-or-foreach-disabled", "fused-optimizer-removed"), ("optimizer", "the optimizer")
    ),
    **dict.fromkeys(
        ("loader-without-pinning", "pinning-removed", "non-blocking-removed"),
        ("copies", "copies that nothing hides"),
    ),
}  # fmt: skip


def weighed(
    review: Review,
    profiles: Sequence[Profile],
    files: Mapping[str, str],
    budget: int | None,
    everything: Sequence[Finding] = (),
) -> Review:
    """The review with what was measured in `profiles`, ordered by it; `budget` findings are shown, None: all.

    `files` are the texts of reviewed files that the traces name. `everything` is what rules propose in these, place by place:
    what takes `WORTH_A_COMMENT` of the step is a finding although the ranker left it out.
    """
    if not profiles:
        return review
    runs = [(profile, named_lines(profile, files)) for profile in profiles]
    found = [_with_measure(finding, runs) for finding in (*review.findings, *review.over_limit)]
    known = {(f.path_of(place), place.rule, place.span) for f in found for place in f.places()}
    costly = [
        finding
        for finding in (_with_measure(f, runs) for f in everything if (f.path, f.rule, f.span) not in known)
        if finding.measured is not None
        and not finding.measured.at_most
        and finding.measured.share >= WORTH_A_COMMENT
    ]
    found += _one_per_rule(costly)
    found.sort(key=lambda f: -f.measured.share if f.measured is not None else 0.0)  # stable: ranked before
    shown = len(found) if budget is None else budget
    texts = {**files, **(review.sources or {})}
    paths = dict.fromkeys(f.path for f in found[:shown])
    return dataclasses.replace(
        review,
        findings=tuple(found[:shown]),
        over_limit=tuple(found[shown:]),
        sources={path: texts[path] for path in paths if path in texts},
        left_out=_without(review.left_out, costly),
    )


def _one_per_rule(findings: Sequence[Finding]) -> list[Finding]:
    """One finding for each rule in each file: that of the costliest place, with the others."""
    of_rule: defaultdict[tuple[str, str], list[Finding]] = defaultdict(list)
    for finding in findings:
        of_rule[finding.path, finding.rule].append(dataclasses.replace(finding, missed=()))
    merged = []
    for several in of_rule.values():
        best, *others = sorted(several, key=lambda f: -f.measured.share if f.measured is not None else 0.0)
        merged.append(dataclasses.replace(best, also=tuple(sorted(f.as_place() for f in others))))
    return merged


def _without(left_out: LeftOut | None, shown: Sequence[Finding]) -> LeftOut | None:
    """What is left out when `shown` no longer is; None where nothing is. What a rule was not sure of was never counted."""
    if left_out is None:
        return None
    missed = [f.missed or (Condition.CONFIDENCE,) for f in shown if Condition.STATED not in f.missed]
    places, also = Counter(left_out.places), Counter(left_out.also)
    places.subtract(conditions[0] for conditions in missed)
    also.subtract(condition for conditions in missed for condition in conditions[1:])
    left = +places
    if not left:
        return None
    doubted = min(left_out.doubted, left.total())
    return dataclasses.replace(left_out, places=dict(left), also=dict(+also), doubted=doubted)


def _with_measure(finding: Finding, runs: Sequence[tuple[Profile, Sequence[Line]]]) -> Finding:
    measures = [
        measure for profile, lines in runs if (measure := _measure(finding, profile, lines)) is not None
    ]
    best = max(measures, key=lambda measure: measure.share, default=None)
    return dataclasses.replace(finding, measured=best)


def _measure(finding: Finding, profile: Profile, lines: Sequence[Line]) -> Measured | None:
    part = _PARTS.get(finding.name)
    if part is not None:
        share = profile.shares[part[0]]
        return (
            Measured(round(share, 4), part[1], at_most=False, trace=profile.name) if share >= _LEAST else None
        )
    spots = {number for place in finding.places() for number in place.span.lines()}
    # A function and what it calls can stand on the same lines: the time of the one is in that of the other.
    sure: dict[Frame, float] = {}
    perhaps: dict[Frame, float] = {}
    for line in lines:
        if line.path != finding.path or not spots & set(line.lines):
            continue
        kind = sure if spots >= set(line.lines) else perhaps
        frame = line.cost.place.frame
        kind[frame] = kind.get(frame, 0.0) + line.cost.share + line.cost.inside
    certain, possible = (min(1.0, max(kind.values(), default=0.0)) for kind in (sure, perhaps))
    if certain >= _LEAST:
        return Measured(round(certain, 4), "these lines", at_most=False, trace=profile.name)
    if possible >= _LEAST:
        return Measured(round(possible, 4), "these lines", at_most=True, trace=profile.name)
    return None
