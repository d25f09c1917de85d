"""Which proposals are one comment, what it lists, and whose fix it has."""

from __future__ import annotations

import dataclasses

import pytest

from ptopt.findings import Edit, Finding, Fix, Impact, Place, Safety, Severity, Span, fingerprint
from ptopt.proposals import Proposal
from ptopt.ranking import grouped, merged
from ptopt.report.places import other_places

JOINT = (Edit(0, 1, "a"), Edit(2, 3, "b"))


def proposal(rule: str, line: int, confidence: float, last: int = 0, origin: str = "rule") -> Proposal:
    finding = Finding(
        rule=rule,
        name=f"name-{rule}",
        family=f"family-{rule}",
        severity=Severity.HIGH,
        path="a.py",
        span=Span(line, last or line),
        symbol="f",
        message=f"{rule} at {line}",
        when_wrong="",
        confidence=confidence,
        fingerprint=fingerprint(rule, "a.py", "f", str(line)),
        fix=Fix(Safety.SAFE, (Edit(line, line + 1, rule),)),
        origin=origin,
    )
    return Proposal(finding, None, confidence, confidence)


def with_joint(group: list[Proposal], fix: Fix | None) -> list[Proposal]:
    whole = (frozenset(p.finding.fingerprint for p in group), fix)
    return [dataclasses.replace(p, joint=(whole,)) for p in group]


def places(group: list[Proposal]) -> list[tuple[str, int]]:
    found = merged(group)
    return [(found.rule, found.span.start), *((place.rule, place.span.start) for place in found.also)]


def test_rules_that_would_comment_on_the_same_lines_are_one_comment_the_best_one_first() -> None:
    several = [proposal("PTO1", 5, 0.6), proposal("PTO2", 5, 0.8), proposal("PTO2", 9, 0.7)]
    (group,) = grouped(several)
    assert places(group) == [("PTO2", 5), ("PTO1", 5), ("PTO2", 9)]
    assert merged(group).also[0] == Place(Span(5, 5), "PTO1", "name-PTO1", "family-PTO1", "PTO1 at 5")


def test_what_another_rule_says_in_another_function_is_a_comment_of_its_own() -> None:
    several = [proposal("PTO1", 5, 0.8), proposal("PTO2", 5, 0.7), proposal("PTO2", 9, 0.6)]
    several += [changed(proposal("PTO2", line, 0.5), symbol="g") for line in (40, 44)]
    several += [
        changed(proposal("PTO1", 60, 0.4), symbol="h"),
        changed(proposal("PTO2", 61, 0.3), symbol="h"),
    ]
    assert [sorted(places(group)) for group in grouped(several)] == [
        [("PTO1", 5), ("PTO1", 60), ("PTO2", 5), ("PTO2", 9), ("PTO2", 61)],
        [("PTO2", 40), ("PTO2", 44)],
    ]


def test_the_same_lines_are_one_comment_whatever_they_are_said_to_be_in() -> None:
    (group,) = grouped([proposal("PTO1", 5, 0.8), changed(proposal("PTO2", 5, 0.7), symbol="f.inner")])
    assert places(group) == [("PTO1", 5), ("PTO2", 5)]


def test_a_serious_place_leads_a_milder_one_of_its_rule() -> None:
    mild = changed(proposal("PTO1", 5, 0.9), severity=Severity.LOW)
    serious, other = proposal("PTO1", 30, 0.61), proposal("PTO1", 40, 0.6)
    (group,) = grouped([mild, serious, other])
    found = merged(group)
    assert (found.severity, found.span.start, found.message) == (Severity.HIGH, 30, "PTO1 at 30")
    assert found.fingerprint == serious.finding.fingerprint
    assert [also.plain() for also in other_places(found)] == [
        "Also at line 40: PTO1 at 40",
        "Also at line 5 (low severity): PTO1 at 5",
    ]


def said(line: int, message: str, **changes: Severity) -> Proposal:
    return changed(proposal("PTO1", line, 0.9 - line / 1000), message=message, **changes)


def test_a_comment_lists_the_places_of_which_it_holds_and_says_what_holds_of_the_others() -> None:
    wait = "`{}` waits in the loop at line {}. The same iteration also waits at line{}: the gain comes last."
    several = [
        said(5, wait.format("x.item()", 1, "s 6, 7")),
        said(6, wait.format("y.item()", 1, "s 5, 7")),
        said(7, wait.format("y.item()", 1, " 5")),
        said(30, wait.format("x.item()", 20, " 31")),
        said(40, wait.format("a.item()", 1, " 5"), severity=Severity.LOW),
        said(41, wait.format("b.item()", 9, " 5"), severity=Severity.LOW),
    ]
    (group,) = grouped(several)
    assert [also.plain() for also in other_places(merged(group))] == [
        "Also at lines 6, 7",
        f"Also at line 30: {wait.format('x.item()', 20, ' 31')}",
        f"Also at line 40 (low severity): {wait.format('a.item()', 1, ' 5')}",
        f"Also at line 41 (low severity): {wait.format('b.item()', 9, ' 5')}",
    ]


def test_code_that_a_comment_blames_at_another_place_is_not_blamed_again() -> None:
    best, also = said(5, "`x.item()` waits."), said(9, "`y.item()` waits.")
    again = changed(proposal("PTO2", 9, 0.6), message="`y.item()` costs.", fix=None)
    (group,) = grouped([best, also, again])
    assert places(group) == [("PTO1", 5), ("PTO1", 9), ("PTO2", 9)]
    assert [other.plain() for other in other_places(merged(group))] == [
        "Also at line 9",
        "Also PTO2 name-PTO2 at line 9",
    ]
    assert len(grouped([best, also, changed(again, message="`z` costs.")])) == 2
    fixed = changed(again, fix=Fix(Safety.SAFE, JOINT))
    assert len(grouped([best, also, fixed])) == 2, "the comment would not show the fix"


@pytest.mark.parametrize(("first", "last", "comments"), [(3, 5, 1), (5, 8, 1), (4, 4, 2), (6, 6, 2)])
def test_lines_that_overlap_are_the_same(first: int, last: int, comments: int) -> None:
    assert len(grouped([proposal("PTO1", 5, 0.8), proposal("PTO2", first, 0.6, last)])) == comments


def test_a_comment_elsewhere_that_lists_the_line_stays_apart() -> None:
    several = [proposal("PTO1", 5, 0.8), proposal("PTO1", 9, 0.7), proposal("PTO2", 9, 0.6)]
    assert [places(group) for group in grouped(several)] == [[("PTO1", 5), ("PTO1", 9)], [("PTO2", 9)]]


@pytest.mark.parametrize(
    ("message", "line", "speaks"),
    [
        ("`a.item()` waits, as `b` does.", 5, False),
        ("It waits: `a.item()`.", 5, False),
        ("`b.item()` waits after `a.item()`.", 5, True),
        ("It waits.", 5, True),
        ("`a.item()` waits.", 9, True),
    ],
)
def test_of_rules_that_blame_the_same_code_the_better_one_speaks(
    message: str, line: int, speaks: bool
) -> None:
    best, same_lines, other = (
        proposal("PTO1", 5, 0.8),
        proposal("PTO2", 5, 0.7),
        proposal("PTO2", line, 0.6),
    )
    best = dataclasses.replace(best, finding=dataclasses.replace(best.finding, message="`a.item()` is slow."))
    other = dataclasses.replace(other, finding=dataclasses.replace(other.finding, message=message))
    group = [best, other] if line == 5 else [best, same_lines, other]
    (found,) = grouped(group)
    said = {(p.span, p.rule): p.message for p in merged(found).also}
    assert bool(said[Span(line, line), "PTO2"]) is speaks, (
        "it is named, without words that the comment has already"
    )


def test_what_a_model_found_stands_alone() -> None:
    assert len(grouped([proposal("PTO1", 5, 0.8), proposal("PTO2", 5, 0.6, origin="model")])) == 2


def test_a_rule_that_sees_one_line_twice_lists_it_once() -> None:
    twin = proposal("PTO1", 5, 0.7)
    twin = dataclasses.replace(twin, finding=dataclasses.replace(twin.finding, fingerprint="0" * 32))
    (group,) = grouped([proposal("PTO1", 5, 0.8), twin])
    assert places(group) == [("PTO1", 5)]


@pytest.mark.parametrize(
    ("joint", "of_all"),
    [
        (Fix(Safety.SAFE, JOINT), True),
        (Fix(Safety.UNSAFE, JOINT, "so"), False),  # less safe than the fix of what the comment is about
        (None, False),
    ],
)
def test_the_fix_of_a_joined_comment(joint: Fix | None, of_all: bool) -> None:
    (group,) = grouped([proposal("PTO1", 5, 0.8), proposal("PTO2", 5, 0.6)])
    found = merged(with_joint(group, joint))
    assert found.fix == (joint if of_all else Fix(Safety.SAFE, (Edit(5, 6, "PTO1"),)))


def changed(one: Proposal, **changes: object) -> Proposal:
    return dataclasses.replace(one, finding=dataclasses.replace(one.finding, **changes))  # type: ignore[arg-type]


def test_without_a_fix_of_its_own_a_comment_has_that_of_a_rule_on_the_same_lines() -> None:
    best = changed(proposal("PTO1", 5, 0.8), fix=None)
    other = proposal("PTO2", 5, 0.6)
    (group,) = grouped([best, other])
    found = merged(with_joint(group, None))
    assert (found.rule, found.fix, found.fix_rule) == ("PTO1", other.finding.fix, "PTO2")
    assert merged([other]).fix_rule == ""


def test_a_fix_elsewhere_is_not_that_of_the_comment() -> None:
    several = [changed(proposal("PTO1", 5, 0.8), fix=None), changed(proposal("PTO2", 5, 0.7), fix=None)]
    (group,) = grouped([*several, proposal("PTO2", 9, 0.6)])
    assert merged(with_joint(group, None)).fix is None


def test_gain_and_severity_of_a_folded_rule_are_kept() -> None:
    gain = Impact("time", 2.0, 3.0, "this operation", "an A100", "published", "https://example.org")
    best = changed(proposal("PTO1", 5, 0.8), severity=Severity.LOW, message="`a` is slow.")
    folded = changed(proposal("PTO2", 5, 0.4), impact=(gain,), message="`a` is large.")
    (group,) = grouped([best, folded])
    found = merged(group)
    assert (found.rule, found.severity, found.impact) == ("PTO1", Severity.HIGH, ())
    (place,) = found.also
    assert (place.rule, place.message, place.severity, place.impact) == ("PTO2", "", Severity.HIGH, (gain,))
    (also,) = other_places(found)
    assert also.plain() == (
        "Also PTO2 name-PTO2 here. Gain: 2–3× faster on this operation (published: an A100, https://example.org)."
    )
    assert "here\n  - Gain: 2–3× faster on this operation (published: an A100, [source]" in also.markdown()
    twice = changed(folded, impact=(dataclasses.replace(gain, high=9.0),))
    known = changed(best, impact=(gain,))
    (place,) = merged(grouped([known, twice])[0]).also
    assert place.impact == (), "one gain for one edit"
    same = changed(folded, impact=(), message="`b` is large.")
    assert merged(grouped([changed(best, impact=(gain,)), same])[0]).impact == (gain,)


def named(rule: str, name: str, confidence: float, last: int = 0) -> Proposal:
    return changed(proposal(rule, 5, confidence, last), name=name)


def test_the_lack_of_a_removed_measure_is_said_once() -> None:
    workers = [named("PTO1", "workers-removed", 0.8), named("PTO2", "loader-without-workers", 0.7, 7)]
    pinning = [named("PTO3", "pinning-removed", 0.6), named("PTO4", "loader-without-pinning", 0.5, 7)]
    (group,) = grouped([*pinning, *workers])
    said = {place.rule: place.message for place in merged(group).also}
    assert said == {"PTO2": "", "PTO3": "PTO3 at 5", "PTO4": "The same as PTO3 says of it."}


def test_below_the_lack_of_a_measure_stands_that_the_change_takes_it_out() -> None:
    words = "This change takes out `num_workers=c.WORKERS` here. Items are then read in the main process. Keep it."
    lack = named("PTO2", "loader-without-workers", 0.8, 7)
    removed = changed(named("PTO1", "workers-removed", 0.7), message=words)
    (group,) = grouped([removed, lack])
    (place,) = merged(group).also
    assert (place.rule, place.message) == ("PTO1", "This change takes out `num_workers=c.WORKERS` here.")
    (group,) = grouped([removed, lack, named("PTO3", "other", 0.9)])
    assert {at.rule: at.message for at in merged(group).also}["PTO1"] == place.message
