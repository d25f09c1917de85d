"""A profile as JSON for programs. `version` grows when a field changes its meaning."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Sequence
from typing import Any

from ptopt import __version__
from ptopt.findings import Review
from ptopt.profiles.built import NOT_KNOWN, Built
from ptopt.profiles.lines import Line
from ptopt.profiles.profile import Cost, Profile
from ptopt.profiles.snapshot import Memory
from ptopt.profiles.verdict import targets, verdict
from ptopt.report.json import as_data

VERSION = 1
_MOST = 100


def render(
    found: Sequence[tuple[Profile | Memory, Sequence[Line]]],
    *,
    most: int = 10,
    built: Built = NOT_KNOWN,
    review: Review | None = None,
) -> str:
    """All that is known, whatever `most` says: up to 100 rows of each table. `findings` are as in the JSON of a review."""
    data: dict[str, Any] = {
        "version": VERSION,
        "tool": {"name": "ptopt", "version": __version__},
        "traces": [_trace(profile, lines, built) for profile, lines in found],
    }
    if review is not None:
        data["findings"] = as_data(review)["findings"]
    return json.dumps(data, indent=2) + "\n"


def _trace(profile: Profile | Memory, lines: Sequence[Line], built: Built) -> dict[str, Any]:
    if isinstance(profile, Memory):
        return {"kind": "memory", **dataclasses.asdict(profile), "fragmented": profile.fragmented}
    data: dict[str, Any] = {"kind": "trace"}
    for field in dataclasses.fields(profile):
        value = getattr(profile, field.name)
        if field.name == "costs":
            continue
        rows = (
            value[:_MOST]
            if isinstance(value, tuple) and value and dataclasses.is_dataclass(value[0])
            else value
        )
        data[field.name] = _plain(rows)
    named = {line.cost.place: line for line in lines}
    data["costs"] = [_cost(cost, named.get(cost.place)) for cost in profile.costs[:_MOST]]
    data["verdict"] = dataclasses.asdict(verdict(profile, built))
    data["targets"] = [
        {**dataclasses.asdict(target), "reached": target.reached} for target in targets(profile)
    ]
    return data


def _cost(cost: Cost, line: Line | None) -> dict[str, Any]:
    data = dataclasses.asdict(cost)
    data["file"] = None if line is None else line.path
    data["lines"] = [] if line is None else list(line.lines)
    return data


def _plain(value: Any) -> Any:
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return dataclasses.asdict(value)
    if isinstance(value, tuple):
        return [_plain(item) for item in value]
    return dict(value) if hasattr(value, "items") else value
