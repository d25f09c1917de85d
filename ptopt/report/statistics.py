"""How many findings each rule has, the most frequent one first; those above the comment limit count, too."""

from __future__ import annotations

import dataclasses
from collections import defaultdict

from ptopt.findings import Finding, Review
from ptopt.report.text import headline, one_line


def render(review: Review) -> str:
    review = dataclasses.replace(review, findings=(*review.findings, *review.over_limit), over_limit=())
    by_rule: defaultdict[tuple[str, str], list[Finding]] = defaultdict(list)
    for finding in review.findings:
        by_rule[finding.rule, one_line(finding.name)].append(finding)
    rows = [
        (len(found), sum(1 + len(finding.also) for finding in found), f"{rule} {name}")
        for (rule, name), found in by_rule.items()
    ]
    rows.sort(key=lambda row: (-row[0], -row[1], row[2]))
    table = [f"{findings:>8,}  {places:>6,}  {rule}\n" for findings, places, rule in rows]
    return "".join([*(["findings  places  rule\n"] if rows else []), *table, f"{headline(review)}.\n"])
