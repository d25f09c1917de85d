"""`python -m training sft` and `kto`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

_CONFIG = click.argument("config", required=False)
_CHANGES = click.argument("changes", nargs=-1, metavar="[KEY=VALUE]...")
_RESUME = click.option(
    "--resume",
    type=click.Path(path_type=Path, exists=True, file_okay=False),
    help="Folder of a run that was stopped: go on from its last checkpoint, with its settings.",
)


@click.command()
@_CONFIG
@_CHANGES
@_RESUME
def sft(config: str | None, changes: tuple[str, ...], resume: Path | None) -> None:
    """Fine-tune an adapter on a dataset, as CONFIG says (a path, or one of training/configs)."""
    _run("sft", config, changes, resume)


@click.command()
@_CONFIG
@_CHANGES
@_RESUME
def kto(config: str | None, changes: tuple[str, ...], resume: Path | None) -> None:
    """Train an adapter further on feedback: prompts, answers, and whether they were good."""
    _run("kto", config, changes, resume)


@click.command()
@click.argument("run", type=click.Path(path_type=Path, exists=True, file_okay=False))
def bottleneck(run: Path) -> None:
    """Where the time of a RUN (its folder) went, against its targets; what bounds it, and what to change."""
    from training.recipes.bottleneck import report
    from training.recipes.settings import SettingsError, read
    from training.recipes.tracking import read_metrics

    try:
        click.echo(report(read_metrics(run), read(run / "settings.yaml")), nl=False)
    except (FileNotFoundError, SettingsError, ValueError) as error:
        raise click.ClickException(f"{run}: {error}") from None


def _run(recipe: str, config: str | None, changes: tuple[str, ...], resume: Path | None) -> None:
    from ptopt.model.interface import ModelUnavailableError
    from training.recipes.settings import SettingsError, find, read

    if config is not None and "=" in config:
        changes, config = (config, *changes), None
    try:
        if resume is not None:
            if config is not None:
                raise SettingsError("--resume goes on with the settings of the run: leave CONFIG out")
            settings = read(find(str(resume / "settings.yaml")), changes)
        elif config is None:
            raise SettingsError("name a CONFIG, for example configs/smollm2-cpu.yaml")
        else:
            settings = read(find(config), changes)
    except SettingsError as error:
        raise click.ClickException(str(error)) from None
    try:
        _recipe(recipe).train(settings, resume)
    except (SettingsError, ModelUnavailableError) as error:
        raise click.ClickException(str(error)) from None


def _recipe(name: str) -> Any:
    try:
        import importlib

        return importlib.import_module(f"training.recipes.{name}")
    except ModuleNotFoundError as error:
        if (error.name or "").startswith("training"):
            raise
        raise click.ClickException(
            f"training needs the package {error.name}: pip install '.[training]'"
        ) from None
