"""When the advice is wrong, without what the fix says of itself already."""

from __future__ import annotations

import re

from ptopt.findings import Finding, Safety
from ptopt.report.text import one_line

_WORD = re.compile(r"[a-z][a-z'-]+")
_NAME = re.compile(r"`[^`]*`")
_CLAUSE = re.compile(r",? or |, ")
# Words that say nothing of the matter.
_PLAIN = frozenset(
    "a about all an and any are as at be been by can each every for from has have here holds in is it its no nobody not "
    "nothing of on one or other stored such than that the their then there they this to too was what where which with".split()
)
_SAME = 0.6  # of the words of the shorter one


def wrong_if(finding: Finding) -> str:
    """`when_wrong`, without the clauses that an unsafe fix states as what it assumes; "" where nothing is left."""
    text = one_line(finding.when_wrong)
    if (
        finding.fix is None
        or finding.fix_rule
        or finding.fix.safety is Safety.SAFE
        or not finding.fix.assumption
        or ":" in text
    ):
        return text  # behind a colon stand examples, not clauses
    assumed = [_words(clause) for clause in finding.fix.assumption.split("; ")]
    clauses = _clauses(text)
    left = [clause for clause in clauses if not any(_same(_words(clause), one) for one in assumed)]
    if len(left) == len(clauses):
        return text
    return ", or ".join(left) if len(left) < 3 else f"{', '.join(left[:-1])}, or {left[-1]}"


def _clauses(text: str) -> list[str]:
    """The clauses of a sentence, an example with the clause that it is one of."""
    found: list[str] = []
    for clause in _CLAUSE.split(text):
        if found and clause.startswith(("for example", "for instance", "such as")):
            found[-1] += f", {clause}"
        else:
            found.append(clause)
    return found


def _words(text: str) -> frozenset[str]:
    return frozenset(_WORD.findall(_NAME.sub("", text.lower()))) - _PLAIN


def _same(one: frozenset[str], other: frozenset[str]) -> bool:
    shared = len(one & other)
    return shared >= 2 and shared >= _SAME * min(len(one), len(other))
