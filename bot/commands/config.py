"""`/ptopt config`: what is configured, and where."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from bot.commands.base import Answer, Call, Command, Who, nothing
from ptopt.config import Config
from ptopt.github.base_config import settings_of
from ptopt.github.config_comment import listed
from ptopt.ranker.model import threshold
from ptopt.report.text import code_fence, code_span

_MOST = 6_000  # characters of the listing


def run(call: Call, _: None) -> Answer:
    config, problems = settings_of(call.github, call.pull)
    if problems:
        source = (
            f"The configuration of the base branch has errors:\n\n{listed(problems)}\n\nThe defaults apply."
        )
    elif not config.origin:
        source = "No configuration file; the defaults apply."
    elif "/" in config.origin:
        source = f"From {code_span(config.origin)}."
    else:
        source = f"From {code_span(config.origin)} of {code_span(call.pull.base_ref)}, the base branch."
    # Where all are defaults, none needs to say so.
    defaults = _defaults() if config.origin else {}
    listing = "\n".join(_toml(_settings(config), defaults))
    if len(listing) > _MOST:
        listing = f"{listing[:_MOST].rpartition(chr(10))[0]}\n# and more"
    return Answer(f"{source}\n\n{code_fence(listing, 'toml')}")


def _defaults() -> dict[str, Any]:
    return _settings(Config())


def _settings(config: Config) -> dict[str, Any]:
    """What is in force: without a threshold of the repository's own, that of the ranker."""
    found = config.model_dump(mode="json", by_alias=True)
    return found | {"min-confidence": threshold(config.min_confidence)}


def _toml(table: Mapping[str, Any], defaults: Mapping[str, Any], name: str = "") -> Iterator[str]:
    """The settings as TOML, one a line, tables last; those at their default say so."""
    tables = {key: value for key, value in table.items() if isinstance(value, dict) and value}
    if name:
        yield f"\n[{name}]"
    for key, value in table.items():
        if key not in tables and value != {}:
            default = "  # default" if value == defaults.get(key) else ""
            yield f"{_key(key)} = {json.dumps(value, ensure_ascii=False)}{default}"
    for key, value in tables.items():
        yield from _toml(value, defaults.get(key, {}), f"{name}.{_key(key)}" if name else _key(key))


def _key(key: str) -> str:
    return key if key.isascii() and key.replace("-", "").isalnum() else json.dumps(key, ensure_ascii=False)


COMMAND: Command[None] = Command(
    name="config",
    arguments="",
    summary="show the effective configuration and its source",
    details=(
        "The configuration of the base branch applies: `.ptopt.toml`, else the `[tool.ptopt]` table of `pyproject.toml`, else "
        "`.ptopt.toml` of the owner's `.github` repository. Comments cannot change it."
    ),
    who=Who.AUTHOR_OR_TRIAGE,
    examples=(("/ptopt config", "show every setting"),),
    parse=nothing,
    run=run,
)
