"""From what the rules see in a configuration to proposals: those that touch the change, each with a checked fix."""

from __future__ import annotations

import dataclasses
import math
from collections import Counter
from collections.abc import Collection, Iterator, Sequence

from ptopt import impact
from ptopt.change import ChangedFile
from ptopt.configs.dated import is_dated
from ptopt.configs.file import ConfigFile, load
from ptopt.findings import Condition, Finding, Fix, Span, as_shown, fingerprint
from ptopt.proposals import MOST_PLACES, Proposal
from ptopt.rules.configs import ConfigProblem, ConfigRule
from ptopt.rules.engine import applies, assumptions, is_lacking
from ptopt.suppress import Suppressions
from ptopt.verify import EditError, apply_edits

Seen = tuple[ConfigRule, ConfigProblem]
UNUSED = 0.3  # the most that a finding has in a file that nothing uses, or that cannot be built any more: below the threshold


def seen_in(
    file: ConfigFile, rules: Sequence[ConfigRule], failed: list[tuple[ConfigRule, Exception]] | None = None
) -> list[Seen]:
    """Every problem that the rules see, in the order of the text. A rule that raises lands in `failed`."""
    found: list[Seen] = []
    for rule in rules:
        if rule.kinds.isdisjoint(file.kinds) or not applies(rule, file.facts):
            continue
        try:
            found += [
                (rule, problem)
                for problem in rule.check_config(file)
                if not (rule.partly and is_lacking(rule, _texts(problem), file.facts))
            ][:MOST_PLACES]
        except Exception as error:
            if failed is None:
                raise
            failed.append((rule, error))
    found.sort(key=lambda seen: (seen[1].start, seen[0].id))
    return found


def _texts(problem: ConfigProblem) -> Iterator[str]:
    yield f"{problem.symbol}: {problem.message}"
    yield from (edit.replacement for edit in problem.fix.edits) if problem.fix is not None else ()


def propose_config(
    file: ConfigFile,
    found: Sequence[Seen],
    change: ChangedFile | None,
    floor: float,
    suppressions: Suppressions,
    *,
    least: float,
    asked: Collection[str] = (),
) -> tuple[list[Proposal], list[Proposal]]:
    """The proposals (`change` None: the whole file is under review), and those whose confidence is below the `floor`.

    `least` is the confidence that a comment usually needs. Of the rules that `asked` names, everything is a proposal.
    """
    proposals: list[Proposal] = []
    unlikely: list[Proposal] = []
    in_use, why = _in_use(file) if found else (True, "")
    most = 1.0 if in_use else UNUSED
    occurrences: Counter[str] = Counter()
    counts = Counter(rule.id for rule, _ in found)
    for rule, problem in found:
        span = file.span(problem.start, problem.end)
        code = "\n".join(file.lines[line - 1] for line in span.lines())
        parts = (rule.id, file.path, problem.symbol, code)
        base = fingerprint(*parts)
        occurrences[base] += 1
        if change is not None and change.added.isdisjoint(span.lines()):
            continue
        own = rule.prior if problem.confidence is None else problem.confidence
        confidence = min(own, most)
        proposed = confidence >= floor or rule.id in asked
        fix = _postable(verified(file, rule, problem, counts[rule.id]), file, change) if proposed else None
        finding = Finding(
            rule=rule.id,
            name=rule.name,
            family=rule.family,
            severity=rule.severity,
            path=file.path,
            span=span,
            symbol=problem.symbol,
            message=problem.message,
            when_wrong=rule.when_wrong,
            confidence=as_shown(confidence),
            fingerprint=fingerprint(*parts, occurrences[base] - 1),
            evidence=problem.evidence,
            fix=fix,
            impact=impact.of_finding(rule.name, {}),
            assumes=assumptions(rule, file.facts),
            reasons=_reasons(why, own, in_use),
            stated=round(confidence, 2),
            missed=() if proposed and confidence >= least else (Condition.CONFIDENCE,),
        )
        silenced_by = suppressions.matching(rule.keys(), span.start, span.end)
        # Different settings are different matters: each is a comment of its own.
        found_there = Proposal(finding, (problem.symbol, span.start), confidence, confidence, silenced_by)
        (proposals if proposed else unlikely).append(found_there)
    return proposals, unlikely


def _in_use(file: ConfigFile) -> tuple[bool, str]:
    """Is the file in use, as far as is known, and of a time in which it can be run? And the reason, "" where nothing is known."""
    if file.dockerfile is not None and is_dated(file.dockerfile):
        return False, "the image can hardly be built any more"
    used = file.facts.naming.used(file.path, file.text.encode())
    if used is None:
        return True, ""
    return used, "a file of the repository uses it" if used else "nothing in the repository uses the file"


def _reasons(why: str, own: float, in_use: bool) -> tuple[tuple[str, float], ...]:
    """What the use of the file does to the confidence that the rule has by itself, in log-odds."""
    if not why or own <= UNUSED:
        return ()
    gap = _log_odds(own) - _log_odds(UNUSED)
    return ((why, round(gap if in_use else -gap, 2)),)


def _log_odds(probability: float) -> float:
    bounded = min(max(probability, 0.01), 0.99)
    return math.log(bounded / (1 - bounded))


def verified(file: ConfigFile, rule: ConfigRule, problem: ConfigProblem, before: int) -> Fix | None:
    """The fix when it holds: the edited text is a configuration of the same kinds, in which the rule sees less."""
    if problem.fix is None:
        return None
    try:
        text = apply_edits(file.text, problem.fix.edits)
    except (EditError, UnicodeError):
        return None
    after = load(file.path, text.encode(), file.facts)
    if not isinstance(after, ConfigFile) or not file.kinds <= after.kinds:
        return None
    return problem.fix if len(seen_in(after, [rule], [])) < before else None


def _postable(fix: Fix | None, file: ConfigFile, change: ChangedFile | None) -> Fix | None:
    """The fix, with whether it stays in its hunk."""
    if fix is None or change is None:
        return fix
    data = file.text.encode()
    first = data.count(b"\n", 0, min(edit.start for edit in fix.edits)) + 1
    last = data.count(b"\n", 0, max(edit.end for edit in fix.edits)) + 1
    return dataclasses.replace(fix, postable=change.anchor(first, last) == Span(first, last))
