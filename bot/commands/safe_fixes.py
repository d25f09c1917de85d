"""The safe fixes of chosen findings of one file: text in, text out."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Iterable
from dataclasses import dataclass

from ptopt.change import ChangedFile, whole_file
from ptopt.config import Config
from ptopt.findings import Finding, Review, Safety
from ptopt.fixes import FixedFile, fix_file
from ptopt.pathkind import is_notebook
from ptopt.project.facts import ProjectFacts
from ptopt.report.text import markdown_text
from ptopt.review import review_files


@dataclass(frozen=True, slots=True)
class SafeFixes:
    """`left` maps the fingerprint of each finding that was not fixed to the reason, as Markdown. `assuming`: some of them have a
    fix that rests on an assumption."""

    file: FixedFile
    left: dict[str, str]
    assuming: bool = False


def safe_fixes(file: ChangedFile, wanted: Collection[str], config: Config, facts: ProjectFacts) -> SafeFixes:
    """Apply the safe fixes of the findings with these fingerprints, and of the other places that their comments list."""
    if file.head is None:
        raise ValueError(f"{file.path}: there is no head to fix")

    def every_finding(version: ChangedFile) -> tuple[Finding, ...]:
        return review_files(
            [version], config=config, facts=facts, limit_to_change=False, one_per_cause=False
        ).findings

    before = every_finding(whole_file(file.path, file.head))
    allowed = set(wanted) | _listed_with(file, wanted, before, config, facts)

    def next_one(version: ChangedFile) -> Review:
        """The last finding that may be fixed: equal code is counted from the top, so those above keep their names."""
        ready = [f for f in every_finding(version) if f.fingerprint in allowed and _is_safe(f)]
        last = max(ready, key=Finding.sort_key, default=None)
        if last is None:
            return Review(findings=())
        allowed.remove(last.fingerprint)
        return Review(findings=(last,))

    result = fix_file(file, next_one, unsafe=False)
    fixed = {finding.fingerprint for finding in result.fixed}
    found = {finding.fingerprint: finding for finding in before}
    left = {key: found.get(key) for key in wanted if key not in fixed}
    return SafeFixes(
        dataclasses.replace(result, left=()),
        {key: _why_left(finding) for key, finding in left.items()},
        any(finding is not None and _assumes(finding) for finding in left.values()),
    )


def _listed_with(
    file: ChangedFile,
    wanted: Collection[str],
    findings: Iterable[Finding],
    config: Config,
    facts: ProjectFacts,
) -> set[str]:
    """The other places that the comments on the wanted findings list."""
    review = review_files([file], config=config, facts=facts, limit_to_change=True)
    listing = [f for f in (*review.findings, *review.over_limit) if f.fingerprint in wanted and f.also]
    return {
        other.fingerprint
        for other in findings
        if any((other.rule, other.span) in {(place.rule, place.span) for place in f.also} for f in listing)
    }


def _is_safe(finding: Finding) -> bool:
    return finding.fix is not None and finding.fix.safety is Safety.SAFE and not _in_notebook(finding)


def _in_notebook(finding: Finding) -> bool:
    return is_notebook(finding.path)


def _assumes(finding: Finding) -> bool:
    return finding.fix is not None and finding.fix.safety is Safety.UNSAFE and bool(finding.fix.assumption)


def _why_left(finding: Finding | None) -> str:
    if finding is None:
        return "it is no longer found"
    if finding.fix is None:
        return "there is no fix for it"
    if _assumes(finding):
        return f"its fix assumes that {markdown_text(finding.fix.assumption).rstrip('.')}"
    if finding.fix.safety is Safety.SAFE and _in_notebook(finding):
        return "it is in a notebook; run `ptopt fix` on the file"
    if finding.fix.safety is Safety.SAFE:
        return "another fix changed the same lines; run `/ptopt fix` again"
    return "its fix has to be applied by hand"
