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


def load(
    root: Path, settings: Settings, commits: tuple[str, str] | None = None
) -> tuple[Config, ProjectFacts]:
    """The configuration, overridden by the command line, and the facts of the project at `root`.

    With `commits`, those of a base and a head, nothing is read from the working tree: settings are those of the base, as
    on GitHub, so that a change cannot switch off its own review, and facts those of the head.
    """
    from ptopt.config import OWN_FILE, PROJECT_FILE
    from ptopt.inputs import files_of_commit, naming_in_commit, project_files
    from ptopt.inputs.naming import naming_below
    from ptopt.project.facts import FACT_FILES, read_facts
    from ptopt.rules import find_rule, known_names

    own = (OWN_FILE, PROJECT_FILE)
    if commits is None:
        files = settings_files = project_files(root, [*own, *FACT_FILES])
        naming = naming_below(root)
    else:
        base, head = commits
        files, settings_files = files_of_commit(root, head, FACT_FILES), files_of_commit(root, base, own)
        naming = naming_in_commit(root, head)
    known = known_names()
    if settings.config is None:
        config = _config_in(settings_files, known)
    else:
        config = _config_from(settings.config, known)
    select, more, ignore = (
        tuple(known_rule(text, known) for text in texts)
        for texts in (settings.select, settings.extend_select, settings.ignore)
    )
    update: dict[str, object] = {}
    if more:
        update["extend_select"] = (*config.extend_select, *more)
    if ignore:
        update["ignore"] = (*config.ignore, *ignore)
    if select:
        update |= {"select": select, "extend_select": more, "ignore": ignore}
    if settings.min_confidence is not None:
        config = config.at_least(settings.min_confidence)
    if settings.all_paths:
        update["skip"] = ()
    if settings.min_confidence is None:
        asked = [name for name in (*select, *more) if known.get(name) in ("id", "name")]
        config = config.asking_for(rule.id for rule in map(find_rule, asked) if rule is not None)
    facts = read_facts({n: c for n, c in files.items() if n in FACT_FILES})
    return config.model_copy(update=update), dataclasses.replace(facts, naming=naming)


def _config_in(files: Mapping[str, bytes], known: Mapping[str, str]) -> Config:
    from ptopt.config import OWN_FILE, PROJECT_FILE, load_config

    return load_config({name: files[name] for name in (OWN_FILE, PROJECT_FILE) if name in files}, known)


def _config_from(path: Path, known: Mapping[str, str]) -> Config:
    from ptopt.config import OWN_FILE, PROJECT_FILE, ConfigError, load_config

    name = PROJECT_FILE if path.name == PROJECT_FILE else OWN_FILE
    try:
        return load_config({name: path.read_bytes()}, known).read_from(str(path))
    except ConfigError as error:
        raise ConfigError(p.replace(name, str(path), 1) for p in error.problems) from None


def known_rule(text: str, known: Mapping[str, str]) -> str:
    from ptopt.config import ALL, is_prefix
    from ptopt.report.text import visible

    for name in (*known, ALL):
        if name.lower() == text.lower():
            return name
    if is_prefix(text.upper(), known):
        return text.upper()
    raise click.ClickException(f"unknown rule {visible(text)!r}{nearest(text, known)}")


def nearest(text: str, known: Iterable[str]) -> str:
    """What the user may have meant, to stand behind the name of no rule."""
    from ptopt.report.text import did_you_mean

    return did_you_mean(text, known) or "; `ptopt rules` lists them"
