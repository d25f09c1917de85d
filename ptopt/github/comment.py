"""One review comment: its lines and its text.

All texts of a finding may come from the pull request. They are shown as text; only a suggestion is byte for byte what
the fix makes of the file, because it is committed as it stands.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable
from dataclasses import dataclass

from ptopt.change import Change, ChangedFile
from ptopt.findings import Finding, Review, Safety, Span
from ptopt.github import markers
from ptopt.github.values import CommentDraft
from ptopt.report.conditions import wrong_if
from ptopt.report.gains import markdown_gain
from ptopt.report.patch import Positions, fix_diff, hunks
from ptopt.report.places import cut, linked_rule, other_places
from ptopt.report.text import (
    assumed,
    code_fence,
    code_span,
    count,
    lines,
    markdown_quote,
    markdown_text,
    place,
    proof_line,
    visible,
)
from ptopt.verify import EditError, apply_edits, with_line_ends_of

LIMIT = 60_000  # GitHub takes 65,536 characters, and does not say how it counts those beyond the first plane

_LONGEST = 800  # characters of one text of a finding
_DIFF_LINES = 60
_EVIDENCE = 4
_RULES = 4
_APPLIED = {  # a fix that is no suggestion
    Safety.SAFE: "which `ptopt fix` applies",
    Safety.UNSAFE: "which `ptopt fix --unsafe` applies",
    Safety.DISPLAY: "to apply by hand",
}
_ANSWERS = (
    "Reply `/ptopt explain` for details, or `/ptopt ignore here` to dismiss. 👍, 👎 and dismissals count as feedback on the "
    "rule."
)


@dataclass(frozen=True, slots=True)
class Suggestion:
    """Head lines `start` to `end` become `lines`, which keep a carriage return and have no line feed."""

    start: int
    end: int
    lines: tuple[str, ...]

    def overlaps(self, others: Iterable[Suggestion]) -> bool:
        return any(self.start <= other.end and other.start <= self.end for other in others)


def draft(review: Review, change: Change, finding: Finding) -> CommentDraft | None:
    """The comment on a finding; None where GitHub takes none: then it is a section of the review's body.

    Of suggestions for the same lines, the first in `review.findings` is offered.
    """
    file = next((file for file in change.files if file.path == finding.path), None)
    if file is None:
        return None
    offer = offered(review, file, finding)
    at = Span(offer.start, offer.end) if offer is not None else _stand(file, finding)
    if at is None:
        return None
    body = _body(review, finding, at, offer)
    if size(body) > LIMIT:
        body = _body(review, finding, at, None)
    return CommentDraft(finding.path, at.end, at.start if at.start < at.end else None, body)


def body_section(review: Review, finding: Finding) -> str:
    """The finding as a part of a review's body."""
    where = code_span(place(finding.path, finding.span))
    blocks = [
        f"{_title(finding)} · {where}",
        _text(finding.message),
        markdown_quote(finding),
        *_fix(review, finding, None),
        _notes(finding, finding.span, None),
    ]
    return "\n\n".join(filter(None, blocks))


def size(text: str) -> int:
    """Characters as JavaScript counts them, which is never fewer than there are."""
    return len(text) + sum(c > "\uffff" for c in text)


# -- where -----------------------------------------------------------------------------------------------------


def _stand(file: ChangedFile, finding: Finding) -> Span | None:
    """On the finding, or else on the line of the change that brought it about."""
    spans = [finding.span, *(Span(e.line, e.line) for e in finding.evidence if e.line in file.added)]
    return next((at for at in (file.anchor(s.start, s.end) for s in spans) if at is not None), None)


def offered(review: Review, file: ChangedFile, finding: Finding) -> Suggestion | None:
    """The suggestion, unless a finding before this one offers another for one of its lines.

    GitHub commits only one of the two: the other is outdated then, and a batch with both is refused.
    """
    own = suggestion(review, file, finding)
    if own is None:
        return None
    before = itertools.takewhile(lambda each: each.fingerprint != finding.fingerprint, review.findings)
    taken: list[Suggestion] = []
    for each in before:
        made = suggestion(review, file, each) if each.path == finding.path else None
        if made is not None and not made.overlaps(taken):
            taken.append(made)
    return None if own.overlaps(taken) else own


def offers(body: str) -> bool:
    """Does this comment of ours have a suggestion?"""
    return re.search(r"^`{3,}suggestion$", body.replace("\r", ""), re.MULTILINE) is not None


def suggestion(review: Review, file: ChangedFile, finding: Finding) -> Suggestion | None:
    """The fix as a block that GitHub can commit; None when it is for reading or leaves its hunk.

    Also None where what is seen is not what is committed: invisible characters, or a file that is not UTF-8.
    """
    text = (review.sources or {}).get(finding.path)
    fix = finding.fix
    if fix is None or fix.safety is Safety.DISPLAY or not fix.postable or text is None or file.head is None:
        return None
    edits = with_line_ends_of(text, fix.edits)
    try:
        changes = hunks(Positions(text), edits)
        after = apply_edits(text, edits).split("\n")
        on_disk = file.head.decode("utf-8").split("\n")
    except (EditError, UnicodeError):
        return None
    if not changes:
        return None
    before = text.split("\n")
    grown = sum(len(change.new) - len(change.old) for change in changes)
    first, last = changes[0].start, changes[-1].start + len(changes[-1].old) - 1
    # Lines that are only inserted need a neighbour to replace.
    ranges = [(first, last)] if first <= last else [(first, first), (last, last)]
    for start, end in ranges:
        if start < 1 or file.anchor(start, end) != Span(start, end):
            continue
        new = after[start - 1 : end + grown]
        same_file = [*before[: start - 1], *new, *before[end:]] == after
        if same_file and on_disk[start - 1 : end] == before[start - 1 : end] and _can_be_shown(new):
            return Suggestion(start, end, tuple(new))
    return None


def _can_be_shown(new: list[str]) -> bool:
    """No invisible character; and not only blank lines, which GitHub may take for none at all."""
    bare = [line.removesuffix("\r") for line in new]
    return all(visible(line, keep="\t") == line for line in bare) and (not new or any(map(str.strip, bare)))


# -- what ------------------------------------------------------------------------------------------------------


def _body(review: Review, finding: Finding, at: Span, offer: Suggestion | None) -> str:
    far = at.end < finding.span.start or finding.span.end < at.start
    several = finding.span.start < finding.span.end
    why = "its suggestion changes" if offer is not None else "the change brings it about"
    named = f"On {'lines' if several else 'line'} {lines(finding.span)} (the comment stands where {why}"
    where = f"{named}{' the code' if offer is not None else ''}): " if far else ""
    blocks = [
        str(markers.finding(finding.rule, finding.fingerprint)),
        _title(finding),
        f"{where}{_text(finding.message)}",
        markdown_quote(finding),
        *_fix(review, finding, offer),
        _notes(finding, at, offer),
        f"<sub>{_ANSWERS}</sub>",
    ]
    return "\n\n".join(filter(None, blocks)) + "\n"


def _title(finding: Finding) -> str:
    """What it is and how much it costs, in bold: a thread that is folded shows this line alone."""
    return f"**{linked_rule(finding.rule, finding.name)}** · {finding.severity} severity"


def _fix(review: Review, finding: Finding, offer: Suggestion | None) -> list[str]:
    if offer is not None:
        longest = max((len(run) for line in offer.lines for run in re.findall("`+", line)), default=0)
        ticks = "`" * max(3, longest + 1)
        return ["\n".join([f"{ticks}suggestion", *offer.lines, ticks])]
    diff = fix_diff(review, finding, context=0).replace("\r\n", "\n").rstrip("\n").split("\n")[2:]
    if not diff or len(diff) > _DIFF_LINES or size("\n".join(diff)) > LIMIT // 6:
        return []
    how = _APPLIED[Safety.DISPLAY if finding.fix is None else finding.fix.safety]
    return [f"Fix, {how}:", code_fence("\n".join(diff), "diff")]


def _notes(finding: Finding, at: Span, offer: Suggestion | None) -> str:
    notes = []
    subject = "suggestion" if offer is not None else "fix"
    if finding.fix is not None and finding.fix_rule:
        notes.append(f"The {subject} is that of {_text(finding.fix_rule)}")
    if finding.fix is not None and finding.fix.safety is Safety.SAFE:
        if offer is not None or finding.fix.assumption:
            better = f", but {_text(finding.fix.assumption)}" if finding.fix.assumption else ""
            notes.append(f"The {subject} does not change behaviour{better}")
    elif finding.fix is not None and finding.fix.assumption:
        notes.append(f"The {subject} assumes that {_text(finding.fix.assumption)}")
    notes += [f"Gain: {markdown_gain(i, lambda text: cut(text, _LONGEST))}" for i in finding.impact]
    if finding.proof is not None and finding.proof.proved:
        notes.append(f"The fix was run: {_text(proof_line(finding))}")
    wrong = wrong_if(finding)
    if wrong:
        notes.append(f"Wrong if: {_text(wrong)}")
    if finding.assumes:
        notes.append(f"Assumes: {_text(assumed(finding))}")
    proof = [e for e in finding.evidence if e.line not in at.lines() and e.line not in finding.span.lines()]
    if proof:
        more = f", and {len(proof) - _EVIDENCE} more" if len(proof) > _EVIDENCE else ""
        notes.append("See " + ", ".join(f"line {e.line} ({_text(e.note)})" for e in proof[:_EVIDENCE]) + more)
    others = other_places(finding)
    notes += [also.markdown(_LONGEST) for also in others[:_RULES]]
    notes += [f"Also {count(len(others) - _RULES, 'other rule')}"] if len(others) > _RULES else []
    return "\n".join(f"- {note}" for note in notes)


def _text(text: str) -> str:
    return markdown_text(cut(text, _LONGEST))
