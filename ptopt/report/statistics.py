"""How many findings each rule has, and at how many places it was left out, the most frequent one first; findings above the
comment limit count, too.

Below the table stands what stands below findings: what was compared, what was left out, the files.
"""

from __future__ import annotations

import dataclasses
from collections import Counter

from ptopt.findings import Place, Review
from ptopt.report.terminal import summary_text
from ptopt.report.text import headline, one_line, wrapped


def render(
    review: Review, *, width: int = 100, verbose: bool = False, suppressed: bool = False, quiet: bool = False
) -> str:
    left = Counter(dict(review.left_out.rules) if review.left_out is not None else {})
    review = dataclasses.replace(
        review,
        findings=(*review.findings, *review.over_limit),
        over_limit=(),
        left_out=review.left_out and dataclasses.replace(review.left_out, limit=None, rules={}),
    )
    findings = Counter(_title(finding.as_place()) for finding in review.findings)
    places = Counter(_title(place) for finding in review.findings for place in finding.places())
    rows = [(findings[rule], places[rule], left[rule], rule) for rule in {*places, *left}]
    rows.sort(key=lambda row: (-row[0], -row[1], -row[2], row[3]))
    table = [f"{found:>8,}  {number:>6,}  {out:>8,}  {rule}\n" for found, number, out, rule in rows]
    by_line = Counter((f.path_of(place), place.span) for f in review.findings for place in f.places())
    shared = sum(1 for number in by_line.values() if number > 1)
    have = f"{shared:,} of the places {'has' if shared == 1 else 'have'} several rules"
    below = summary_text(review, width=width, verbose=verbose, suppressed=suppressed)
    compared = f" ({one_line(review.compared)})" if review.compared else ""
    total = wrapped(f"{headline(review)}{compared}{f'; {have}' if shared else ''}.", width)
    out = 0 if review.left_out is None else sum(review.left_out.places.values())
    if left.total() > out:
        counted = f"The table counts {left.total():,} left out: a place once for each of its rules."
        below += f"{wrapped(counted, width)}\n"
    head = ["findings  places  left out  rule\n"] if rows else []
    if quiet:
        return "".join([*head, *table])
    return "".join([*head, *table, f"{total}\n", below])


def _title(place: Place) -> str:
    return f"{place.rule} {one_line(place.name)}"
