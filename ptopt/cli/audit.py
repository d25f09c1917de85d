"""`ptopt audit`: the report on a whole repository."""

from __future__ import annotations

from pathlib import Path

import click

from ptopt.cli.files import root_of
from ptopt.cli.options import Settings, settings_options
from ptopt.cli.output import colored, width, write
from ptopt.cli.settings import load


@click.command()
@click.argument("path", type=click.Path(path_type=Path), default=".")
@click.option(
    "--format", "format_", type=click.Choice(("terminal", "markdown", "json", "html")), default="terminal",
    show_default=True,
)  # fmt: skip
@click.option("--output", type=click.Path(dir_okay=False, path_type=Path), help="Write to this file.")
@settings_options
def audit(path: Path, format_: str, output: Path | None, settings: Settings) -> None:
    """Audit the training scripts of a repository: what each uses, what is missing, and a plan.

    Without PATH it is the current folder.
    """
    from ptopt.audit.run import audit_of
    from ptopt.audit.values import Level
    from ptopt.cli.workers import Workers, aside
    from ptopt.inputs.whole import whole_folder
    from ptopt.report.audit import render
    from ptopt.report.audit.text import number_of

    root = root_of(path)
    config, facts = load(root, settings)
    chosen = config.model_copy(update={"skip": ()})  # training scripts often lie among the examples
    folder = whole_folder(path, root, wants=lambda name: chosen.why_skipped(name) is None)
    found = audit_of(folder.name, folder.files, config, facts, folder.not_read, Workers(), aside)
    if output is not None:
        output.write_bytes(render(format_, found).encode("utf-8", "backslashreplace"))
    else:
        write(render(format_, found, width=width(), color=colored()))
    if settings.exit_code and any(number_of(found, level) for level in (Level.CRITICAL, Level.MODERATE)):
        click.get_current_context().exit(1)
