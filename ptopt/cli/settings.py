"""The configuration, overridden by the command line."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ptopt.cli.options import Settings

if TYPE_CHECKING:
    from ptopt.config import Config
    from ptopt.project.facts import ProjectFacts


def load(root: Path, settings: Settings) -> tuple[Config, ProjectFacts]:
    """The configuration, overridden by the command line, and the facts of the project at `root`."""
    from ptopt.config import OWN_FILE, PROJECT_FILE
    from ptopt.inputs import project_files
    from ptopt.inputs.naming import naming_below
    from ptopt.project.facts import FACT_FILES, read_facts
    from ptopt.rules import known_names

    files = project_files(root, [OWN_FILE, PROJECT_FILE, *FACT_FILES])
    known = known_names()
    config = _config_in(files, known) if settings.config is None else _config_from(settings.config, known)
    select, more, ignore = (
        tuple(known_rule(text, known) for text in texts)
        for texts in (settings.select, settings.extend_select, settings.ignore)
    )
    update: dict[str, object] = {
        "extend_select": (*config.extend_select, *more),
        "ignore": (*config.ignore, *ignore),
    }
    if select:
        update |= {"select": select, "extend_select": more, "ignore": ignore}
    if settings.min_confidence is not None:
        update["min_confidence"] = settings.min_confidence
    if settings.all_paths:
        update["skip"] = ()
    facts = read_facts({n: c for n, c in files.items() if n in FACT_FILES})
    return config.model_copy(update=update), dataclasses.replace(facts, naming=naming_below(root))


def _config_in(files: Mapping[str, bytes], known: Mapping[str, str]) -> Config:
    from ptopt.config import OWN_FILE, PROJECT_FILE, load_config

    return load_config({name: files[name] for name in (OWN_FILE, PROJECT_FILE) if name in files}, known)


def _config_from(path: Path, known: Mapping[str, str]) -> Config:
    from ptopt.config import OWN_FILE, PROJECT_FILE, ConfigError, load_config

    name = PROJECT_FILE if path.name == PROJECT_FILE else OWN_FILE
    try:
        return load_config({name: path.read_bytes()}, known)
    except ConfigError as error:
        raise ConfigError(p.replace(name, str(path), 1) for p in error.problems) from None


def known_rule(text: str, known: Mapping[str, str]) -> str:
    from ptopt.config import ALL
    from ptopt.report.text import visible

    for name in (*known, ALL):
        if name.lower() == text.lower():
            return name
    raise click.ClickException(f"unknown rule {visible(text)!r}{nearest(text, known)}")


def nearest(text: str, known: Iterable[str]) -> str:
    """What the user may have meant, to stand behind the name of no rule."""
    from ptopt.report.text import did_you_mean

    return did_you_mean(text, known) or "; `ptopt rules` lists them"
