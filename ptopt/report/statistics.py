"""How many findings each rule has, the most frequent one first; those above the comment limit count, too."""

from __future__ import annotations

import dataclasses
from collections import Counter

from ptopt.findings import Place, Review
from ptopt.report.text import headline, one_line


def render(review: Review) -> str:
    review = dataclasses.replace(review, findings=(*review.findings, *review.over_limit), over_limit=())
    findings = Counter(_title(finding.as_place()) for finding in review.findings)
    places = Counter(_title(place) for finding in review.findings for place in finding.places())
    rows = [(findings[rule], number, rule) for rule, number in places.items()]
    rows.sort(key=lambda row: (-row[0], -row[1], row[2]))
    table = [f"{found:>8,}  {number:>6,}  {rule}\n" for found, number, rule in rows]
    return "".join([*(["findings  places  rule\n"] if rows else []), *table, f"{headline(review)}.\n"])


def _title(place: Place) -> str:
    return f"{place.rule} {one_line(place.name)}"
