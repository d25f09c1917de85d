"""Was the line changed as suggested? GitHub sends no event for it, so texts are compared: what we suggested now stands
where the old lines stood.

No code is kept. A suggestion is stored as keyed hashes of lines and statements, and of how often they occurred; a later
text of the file is hashed and counted in the same way. The same text somewhere else proves nothing: the new lines stand in
the function of the old ones (where that is still there), or beside a line that was their neighbour.
"""

from __future__ import annotations

import enum
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from feedback.signals.hashed_text import MOST_LINES, View, hashed_text
from feedback.signals.kinds import SignalKind
from feedback.signals.stored_suggestion import FORM, Difference, Lines, read


class Match(str, enum.Enum):
    """How closely a later text follows the suggestion."""

    EXACT = "exact"  # the suggested lines, up to white space at line ends
    SIMILAR = "similar"  # the suggested lines, formatted otherwise, or with comments
    CHANGED = "changed"  # the suggested statements, with others between them
    NO = "no"

    def __str__(self) -> str:
        return self.value


def match_suggestion(text: str, suggestion: Mapping[str, Any], key: bytes) -> Match:
    """Whether a later `text` of the same file follows the suggestion; NO for {}."""
    if suggestion.get("form") != FORM or text.count("\n") > MOST_LINES:
        return Match.NO
    later, scope = hashed_text(text, key), str(suggestion["scope"])
    if _stands(later.loose, read(suggestion["loose"]), scope):
        exact = read(suggestion["exact"])
        found = any(later.exact.count(run.units) > run.count for run in exact.new)
        return Match.EXACT if found else Match.SIMILAR
    if _stands(later.statements, read(suggestion["statements"]), scope):
        return Match.SIMILAR
    differences = [Difference(**each) for each in suggestion["differences"]]
    return Match.CHANGED if _scattered(later.statements, differences, scope) else Match.NO


def is_undone(text: str, suggestion: Mapping[str, Any], key: bytes) -> bool:
    """Whether the old lines stand there again, and the suggested ones do not."""
    if suggestion.get("form") != FORM or text.count("\n") > MOST_LINES:
        return False
    later, scope = hashed_text(text, key), str(suggestion["scope"])
    loose, statements = read(suggestion["loose"]), read(suggestion["statements"])
    there = _is_there(later.loose, loose, scope) or _is_there(later.statements, statements, scope)
    return bool(loose.old.units) and not there and _is_back(later.loose, loose, scope)


def signals_of(
    match: Match, undone: bool, merged: bool, standing: Collection[SignalKind]
) -> tuple[list[tuple[SignalKind, str]], list[SignalKind]]:
    """What a head says of a suggestion, beside the signals that are `standing`: new ones, and the kinds to take back.

    `merged`: the head is the one that was merged.
    """
    if undone:
        return [], [kind for kind in (SignalKind.APPLIED, SignalKind.CHANGED) if kind in standing]
    if match is Match.NO:
        return [], []
    found: list[tuple[SignalKind, str]] = []
    if match is Match.CHANGED:
        if SignalKind.APPLIED not in standing:
            found.append((SignalKind.CHANGED, "suggested"))
    else:
        found.append((SignalKind.APPLIED, match.value))
    if merged:
        found.append((SignalKind.MERGED, str(Match.EXACT if match is Match.EXACT else Match.SIMILAR)))
    return [(kind, value) for kind, value in found if kind not in standing], []


def _stands(later: View, wanted: Lines, scope: str) -> bool:
    """Are the old lines gone, unless they stay, and the new ones there?"""
    return (wanted.kept or not _is_back(later, wanted, scope)) and _is_there(later, wanted, scope)


def _is_back(later: View, wanted: Lines, scope: str) -> bool:
    """Do the old lines stand there as often as they did?"""
    if wanted.old.in_scope is not None and scope in later.known_scopes:
        return later.count(wanted.old.units, scope) >= wanted.old.in_scope
    return later.count(wanted.old.units) >= wanted.old.count


def _is_there(later: View, wanted: Lines, scope: str) -> bool:
    """Do the new lines stand there more often?"""
    here = scope in later.known_scopes
    if wanted.several and not here:
        return False  # the function has another name now: which one is it?
    return any(
        later.count(run.units, scope) > run.in_scope
        if run.in_scope is not None and here
        else later.count(run.units) > run.count
        for run in wanted.new
    )


def _scattered(later: View, differences: Sequence[Difference], scope: str) -> bool:
    """Do all statements occur as much more or less often as suggested, in the function, or in the file if it is gone?"""
    here = scope in later.known_scopes
    for each in differences:
        before = each.in_scope if here else each.count
        if each.by < 0 and before > -each.by:
            return False  # which of them was changed?
        now = later.count([each.unit], scope if here else None)
        if (now < before + each.by) if each.by > 0 else (now > before + each.by):
            return False
    return bool(differences)
