"""The effective settings, as TOML."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from pydantic import BaseModel

from ptopt.config import Config
from ptopt.ranker.model import comment_conditions, is_lifted, threshold
from ptopt.report.text import visible

_OTHERS = (
    "#   A finding must also be true with a probability of at least {right:.2f}, and\n"
    "#   the own estimate of its rule must be at least {stated:.2f}; a min-confidence\n"
    "#   below {confidence:.2f} lifts both."
)
_LIFTED = "#   No other condition applies: this is below {confidence:.2f}, the ranker's own\n#   threshold."


def as_toml(config: Config) -> str:
    """Every setting on a line of its own; where a file sets some, those at their default say so, and whether it sets them."""
    defaults = _settings(Config()) if config.origin else {}
    return "\n".join(_lines(_settings(config), defaults, _stated(config), visible(config.origin))) + "\n"


def _stated(model: BaseModel) -> dict[str, Any]:
    """The keys that the file sets, those of tables with the keys in them."""
    found: dict[str, Any] = {}
    for name in model.model_fields_set:
        value = getattr(model, name)
        key = type(model).model_fields[name].alias or name
        found[key] = _stated(value) if isinstance(value, BaseModel) else value
    return found


def _settings(config: Config) -> dict[str, Any]:
    """The effective values: without a threshold of the repository's own, that of the ranker."""
    found = config.model_dump(mode="json", by_alias=True)
    return found | {"min-confidence": threshold(config.min_confidence)}


def _lines(
    table: Mapping[str, Any],
    defaults: Mapping[str, Any],
    stated: Mapping[str, Any],
    origin: str,
    name: str = "",
) -> Iterator[str]:
    """The settings of a table, tables last."""
    tables = {key: value for key, value in table.items() if isinstance(value, dict) and value}
    if name:
        yield f"\n[{name}]"
    for key, value in table.items():
        if value is None:
            yield f"# {_key(key)}: the rules that are on by default"
        elif key not in tables and value != {}:
            default = "" if value != defaults.get(key) else "  # default"
            if default and key in stated:
                default = f"  # set in {origin}; the default, too"
            yield f"{_key(key)} = {json.dumps(value, ensure_ascii=False)}{default}"
            if key == "min-confidence" and value:
                yield (_LIFTED if is_lifted(value) else _OTHERS).format(**comment_conditions())
    for key, value in tables.items():
        inner = f"{name}.{_key(key)}" if name else _key(key)
        yield from _lines(value, defaults.get(key, {}), stated.get(key, {}), origin, inner)


def _key(key: str) -> str:
    return key if key.isascii() and key.replace("-", "").isalnum() else json.dumps(key, ensure_ascii=False)
