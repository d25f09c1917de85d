"""The audit, on one page: entry points, their measures, the findings of the review, gaps, what is good, a plan."""

from __future__ import annotations

from ptopt.audit.advice import gaps, too_new
from ptopt.audit.plan import good, how_to_read, plan
from ptopt.audit.scripts import Scripts
from ptopt.audit.setup import READ
from ptopt.audit.values import Audit, EntryPoint, Level, State
from ptopt.audit.weigh import (
    each_once,
    folded,
    is_in_table,
    is_planned,
    is_switched_off,
    weighed,
    with_findings,
)
from ptopt.findings import Review
from ptopt.project.facts import ProjectFacts
from ptopt.project.pins import Pin
from ptopt.project.removed import lowest, newest

_ON_DEVICE = ("device-move-in-dataset",)
# Of tensors on a GPU they fail.
_NEEDS_HOST_DATA = frozenset({"workers", "pin_memory", "persistent_workers", "prefetch"})
_LISTED = 12


def audit(name: str, scripts: Scripts, facts: ProjectFacts, review: Review, sure: float) -> Audit:
    """The audit of a repository.

    `review`: of its files, whole. `sure`: the confidence from which a review would comment.
    """
    entries = scripts.entries
    facts = facts.capped(_bounds_of_all(entries))
    found = folded(
        sorted(
            (
                weighed(f, sure, entries)
                for f in review.findings
                if not is_in_table(f, entries) and not is_switched_off(f, entries)
            ),
            key=lambda w: (list(Level).index(w.level), -w.finding.confidence, w.finding.sort_key()),
        )
    )
    missing, found = each_once(gaps(entries, facts, _not_yet(entries, review)), found)
    corrected = tuple(with_findings(entry, review.findings, sure) for entry in entries)
    return Audit(
        name=name,
        files=scripts.files,
        entries=corrected,
        findings=found,
        gaps=missing,
        good=good(corrected),
        plan=plan(
            missing,
            tuple(each for each in found if is_planned(each, sure, entries)),
            (f for f in review.findings if is_in_table(f, entries)),
        ),
        notes=(*how_to_read(missing), *too_new(entries, facts)),
        not_judged=(*scripts.lost, *_unknown(entries)),
        outside=scripts.outside,
        not_reviewed=review.not_reviewed,
    )


def _bounds_of_all(entries: tuple[EntryPoint, ...]) -> list[Pin]:
    """The newest versions that imports admit in every script: of each package the newest of them."""
    each = [lowest(entry.bounds) for entry in entries]
    shared = set.intersection(*map(set, each)) if each else set()
    return [max((bounds[package] for bounds in each), key=newest) for package in sorted(shared)]


def _not_yet(entries: tuple[EntryPoint, ...], review: Review) -> dict[str, frozenset[str]]:
    """Script -> measures that fail there until something else is changed: its datasets give tensors on the device."""
    there = {finding.path for finding in review.findings if finding.name in _ON_DEVICE}
    return {entry.path: _NEEDS_HOST_DATA for entry in entries if there & {entry.path, *entry.modules}}


def _unknown(entries: tuple[EntryPoint, ...]) -> list[str]:
    """The rows that are unknown, by measure: where the answer lies."""
    found: dict[tuple[str, str], list[str]] = {}
    foreign = [entry for entry in entries if entry.framework not in READ]
    for entry in entries:
        for measure in () if entry in foreign else entry.measures:
            if measure.state is State.UNKNOWN:
                found.setdefault((measure.title, measure.detail), []).append(entry.path)
    lines = [f"{entry.path}: {entry.framework} runs the training, and is not read" for entry in foreign]
    for (title, detail), paths in found.items():
        names = ", ".join(list(dict.fromkeys(paths))[:4]) + (
            f" and {len(set(paths)) - 4} more" if len(set(paths)) > 4 else ""
        )
        lines.append(f"{title} of {names}: {detail}")
    rest = len(lines) - _LISTED
    return [*lines[:_LISTED], *([f"and {rest} more rows of the tables that are unknown"] if rest > 0 else [])]
