"""`ptopt config`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from ptopt.cli.files import root_of
from ptopt.cli.group import user_errors
from ptopt.cli.options import Settings
from ptopt.cli.output import write
from ptopt.cli.settings import load

if TYPE_CHECKING:
    from ptopt.config import Config


@click.group(invoke_without_command=True)
@click.pass_context
def config(context: click.Context) -> None:
    """Inspect the configuration."""
    if context.invoked_subcommand is None:
        click.echo(context.get_help())


@config.command()
def schema() -> None:
    """Print the JSON schema of .ptopt.toml."""
    import json

    from ptopt.config import config_schema

    write(json.dumps(config_schema(), indent=2) + "\n")


_file = click.option(
    "--config", "file", metavar="FILE", type=click.Path(path_type=Path),
    help="Read this file, not .ptopt.toml or pyproject.toml.",
)  # fmt: skip


@config.command("check")
@click.argument("path", type=click.Path(path_type=Path), default=".")
@_file
def config_check(path: Path, file: Path | None) -> None:
    """Check the configuration of a folder, or one configuration file."""
    loaded = _configuration(path, file)
    click.echo(
        f"{loaded.origin}: no problems" if loaded.origin else "No configuration file; the defaults apply"
    )


@config.command()
@click.argument("path", type=click.Path(path_type=Path), default=".")
@_file
def show(path: Path, file: Path | None) -> None:
    """Print the effective settings of a folder or file."""
    from ptopt.report.settings import as_toml
    from ptopt.report.text import visible
    from ptopt.rules import all_rules

    loaded = _configuration(path, file)
    known = all_rules()
    on = sum(loaded.enabled(*rule.keys(), rule.default, "") for rule in known)
    write(
        f"# {visible(loaded.origin) or 'No configuration file; the defaults apply'}; {on} of {len(known)} rules are on\n"
    )
    write(visible(as_toml(loaded), keep="\n"))


def _configuration(path: Path, file: Path | None) -> Config:
    with user_errors():
        if file is not None:
            return load(root_of(path), Settings(config=file))[0]
        if not path.exists():
            raise click.ClickException(f"{path}: no such file or folder")
        from ptopt.pathkind import PYTHON

        if path.suffix in (*PYTHON, ".pyi"):
            raise click.ClickException(
                f"{path}: give a folder, or one configuration file (.ptopt.toml, pyproject.toml)"
            )
        if path.is_file():
            return load(path.parent, Settings(config=path))[0]
        return load(root_of(path), Settings())[0]
