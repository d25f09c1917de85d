"""What reviews ask a model: regions of code that differ, with marks on them."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

from ptopt.model.region import Candidate, Region, regions_of
from ptopt.rules import rules
from ptopt.rules.base import MARK
from ptopt.source.file import SourceFile
from ptopt.syntax import ParseError


def regions(number: int, marks: int, seed: int = 0) -> list[Region]:
    """So many functions made of the rules' own examples, each with so many candidates; none equals that of another seed."""
    names = [rule.name for rule in rules() if rule.default]
    found: list[Region] = []
    for at, body in enumerate(itertools.islice(itertools.cycle(list(_bodies())), number)):
        text = f"import torch\n\n\ndef review_{seed}_{at}(model, loader, batch):\n{body}"
        last = text.count("\n")
        candidates = [Candidate(names[(at * marks + mark) % len(names)], (last,)) for mark in range(marks)]
        source = SourceFile.parse("train.py", text.encode())
        found.append(next(r for r in regions_of(source, None, candidates) if r.candidates))
    return found


def _bodies() -> Iterator[str]:
    """Examples of the rules as the body of a function."""
    for rule in rules():
        for example in rule.INVALID:
            lines = example.code.replace(MARK, "").strip().splitlines()
            body = "".join(f"    {line.rstrip()}\n" if line.strip() else "\n" for line in lines)
            try:
                SourceFile.parse("train.py", f"def f():\n{body}".encode())
            except ParseError:
                continue
            yield body
