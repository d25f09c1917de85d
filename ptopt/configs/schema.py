"""The setting names of libraries, read from their source: `python -m benchmarks.config_keys` writes the table."""

from __future__ import annotations

import json
from functools import cache
from importlib.resources import files
from typing import Any

_INHERITED = {"llamafactory": "transformers"}  # its arguments extend those of the trainer


@cache
def _table() -> dict[str, Any]:
    read: dict[str, Any] = json.loads(files(__package__).joinpath("keys.json").read_text("utf-8"))
    return read


@cache
def known_keys(kind: str) -> frozenset[str]:
    """The names of the settings of a kind of block; empty where the table has none."""
    libraries = _table()["libraries"]
    own = frozenset(libraries.get(kind, {}).get("keys", ()))
    return own | known_keys(_INHERITED[kind]) if kind in _INHERITED else own


def library_of(kind: str) -> str:
    """The library and the version that the names are of, for people: `deepspeed 0.19.8`."""
    found = _table()["libraries"][kind]
    return f"{found['library']} {found['version']}"
