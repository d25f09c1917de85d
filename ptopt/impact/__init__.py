"""What each rule is worth: published ranges and our own measurements, each with its source.

`published/*.json` (one file a family) holds what others measured, with links; `measured/*.json` (one file a
machine) what `benchmarks/impact` measured; the source of these is the page of the rule. Both map a rule's name to a list
of gains.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from functools import cache
from importlib import resources

from ptopt.address import rule_page
from ptopt.findings import Impact

_ON_THE_HOST = frozenset(  # what their benchmarks time runs on the CPU, whatever device the model is on
    {
        "loader-rebuilt-in-loop",
        "running-sum-loop",
        "tensor-from-list-of-arrays",
        "workers-restarted-each-epoch",
    }
)
_MANY = math.log1p(100)  # iterations, in the scale of the feature: the benchmarks run thousands


@cache
def _tables() -> dict[str, tuple[Impact, ...]]:
    table: dict[str, tuple[Impact, ...]] = {}
    for folder in ("measured", "published"):
        root = resources.files(__name__) / folder
        files = [f for f in root.iterdir() if f.name.endswith(".json")] if root.is_dir() else []
        for file in sorted(files, key=lambda f: f.name):
            for name, gains in json.loads(file.read_text(encoding="utf-8"))["gains"].items():
                table[name] = table.get(name, ()) + tuple(
                    Impact(**{"source": rule_page(name), **gain}) for gain in gains
                )
    return table


def of_rule(name: str) -> tuple[Impact, ...]:
    """Gains of the rule with this name, our own measurements first; empty when nobody measured it."""
    return _tables().get(name, ())


def of_finding(name: str, features: Mapping[str, float]) -> tuple[Impact, ...]:
    """Gains of the rule that may be claimed for one finding: those whose conditions resemble its code.

    We measured on a CPU. Such a gain is left out unless the work is known to be done there, and where the code shows
    that its loop is short.
    """
    on_cpu = name in _ON_THE_HOST or features.get("device:cpu", 0.0) > 0
    short = "trips:known" in features and features["trips:known"] < _MANY
    return tuple(i for i in of_rule(name) if i.provenance != "measured" or (on_cpu and not short))
