"""What each rule is worth: published ranges and our own measurements, each with its source.

`published/*.json` (one file a family) holds what others measured, with links; `measured/*.json` (one file a
machine) what `benchmarks/impact` measured. Both map a rule's name to a list of gains.
"""

from __future__ import annotations

import json
from functools import cache
from importlib import resources

from ptopt.findings import Impact


@cache
def _tables() -> dict[str, tuple[Impact, ...]]:
    table: dict[str, tuple[Impact, ...]] = {}
    for folder in ("measured", "published"):
        root = resources.files(__name__) / folder
        files = [f for f in root.iterdir() if f.name.endswith(".json")] if root.is_dir() else []
        for file in sorted(files, key=lambda f: f.name):
            for name, gains in json.loads(file.read_text(encoding="utf-8"))["gains"].items():
                table[name] = table.get(name, ()) + tuple(Impact(**gain) for gain in gains)
    return table


def of_rule(name: str) -> tuple[Impact, ...]:
    """Gains of the rule with this name, our own measurements first; empty when nobody measured it."""
    return _tables().get(name, ())
