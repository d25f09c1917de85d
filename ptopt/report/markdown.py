"""Markdown for job summaries and comments. Nothing from the pull request is rendered as markup."""

from __future__ import annotations

from collections.abc import Iterable

from ptopt.findings import Finding, Review, Span, places_of
from ptopt.pathkind import language
from ptopt.report.conditions import wrong_if
from ptopt.report.gains import markdown_gain
from ptopt.report.patch import fix_diff, fix_hunks
from ptopt.report.places import other_places
from ptopt.report.text import (
    MODEL_AWAY,
    SHOWS,
    assumed,
    code_fence,
    code_span,
    count,
    excerpt,
    fix_line,
    left_out_lines,
    markdown_quote,
    markdown_text,
    measured_line,
    outcome,
    proof_line,
    unused,
    where,
    with_cells,
)

_LISTED = 20  # entries of a list in the details


def render(review: Review) -> str:
    blocks = [f"**ptopt**: {markdown_text(outcome(review))}."]
    if review.model is not None and review.model.note:
        blocks.append(MODEL_AWAY)
    for finding in review.findings:
        blocks += _finding(review, finding)
    if review.left_out is not None:
        why, how = left_out_lines(review.left_out)
        flags, shows, total = how.partition(SHOWS)
        blocks.append(f"{markdown_text(why)}; {code_span(flags)}{shows}{markdown_text(total)}.")
    blocks += _details(
        f"{count(len(review.over_limit), 'finding')} not shown (comment limit reached)",
        [
            f"{code_span(where(review, f.path, f.span))} {f.rule} {markdown_text(f.name)}"
            for f in review.over_limit
        ],
    )
    blocks += _details(
        f"{count(places_of(review.suppressed), 'place')} suppressed",
        [
            f"{code_span(where(review, f.path, f.span))} {f.rule} {markdown_text(f.name)}"
            f"{f': {markdown_text(f.excuse)}' if f.excuse else ''}"
            for f in review.suppressed
        ],
    )
    blocks += _details(
        f"{count(len(review.unused_suppressions), 'unused suppression')}",
        [
            f"{code_span(where(review, u.path, Span(u.line, u.line)))} {code_span(unused(u)) if u.codes else 'any rule'}"
            for u in review.unused_suppressions
        ],
    )
    blocks += _details(
        f"{count(len(review.not_reviewed), 'file')} not reviewed",
        [f"{code_span(n.path)}: {markdown_text(n.reason)}" for n in review.not_reviewed],
    )
    return "\n\n".join(blocks) + "\n"


def _finding(review: Review, finding: Finding) -> Iterable[str]:
    title = code_span(where(review, finding.path, finding.span))
    yield f"### {title} {finding.rule} {markdown_text(finding.name)}"
    message = with_cells(review, finding.path, finding.message)
    yield f"{markdown_text(message)} ({finding.severity} severity, confidence {finding.confidence:.2f})"
    if finding.explanation:
        yield markdown_quote(finding)
    code = excerpt(review, finding.path, finding.span)
    if code:
        yield code_fence("\n".join(line for _, line in code), language(finding.path))
    shown = finding.span.lines()
    facts = [
        f"{with_cells(review, finding.path, f'line {e.line}: {markdown_text(e.note)}')}"
        for e in finding.evidence
        if e.line not in shown
    ]
    others = other_places(finding, review)
    facts += [also.markdown() for also in others if not also.rule]
    if facts:
        yield _bullets(facts)
    diff = fix_diff(review, finding, context=0)
    if diff:
        # The header names the file once more, and the line numbers stand above.
        body = [line for line in diff.split("\n")[2:] if not line.startswith("@@ ")]
        yield f"{markdown_text(fix_line(finding))}{_fixed_lines(review, finding)}:"
        yield code_fence("\n".join(body), "diff")
    notes = [f"**Measured in your run:** {markdown_text(measured_line(finding))}"] if finding.measured else []
    notes += [f"**Gain:** {markdown_gain(i)}" for i in finding.impact]
    if finding.proof is not None:
        notes.append(f"**Run:** {markdown_text(proof_line(finding))}")
    wrong = wrong_if(finding)
    if wrong:
        notes.append(f"**Wrong if:** {markdown_text(wrong)}")
    if finding.assumes:
        notes.append(f"**Assumes:** {markdown_text(assumed(finding))}")
    if notes:
        yield "  \n".join(notes)
    of_others = [also.markdown() for also in others if also.rule]
    if of_others:
        yield _bullets(of_others)


def _fixed_lines(review: Review, finding: Finding) -> str:
    """`, at line 12`, where the fix begins on another line than the finding."""
    first = min((hunk.start for hunk in fix_hunks(review, finding)), default=finding.span.start)
    if first == finding.span.start:
        return ""
    return f", at {with_cells(review, finding.path, f'line {first}')}"


def _details(title: str, entries: list[str]) -> list[str]:
    if not entries:
        return []
    more = [f"and {len(entries) - _LISTED:,} more"] if len(entries) > _LISTED else []
    body = _bullets([*entries[:_LISTED], *more])
    return [f"<details><summary>{title}</summary>\n\n{body}\n\n</details>"]


def _bullets(entries: list[str]) -> str:
    return "\n".join(f"- {entry}" for entry in entries)
