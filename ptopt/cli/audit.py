"""`ptopt audit`: the report on a whole repository."""

from __future__ import annotations

from pathlib import Path

import click

from ptopt.cli.files import root_of
from ptopt.cli.model import audit_reader
from ptopt.cli.options import ModelChoice, NewFile, Settings, settings_options
from ptopt.cli.output import colored, width, write
from ptopt.cli.settings import load


@click.command(short_help="Audit training scripts: what they use, what is missing, a plan.")
@click.argument("path", type=click.Path(path_type=Path), default=".")
@click.option(
    "--format", "format_", type=click.Choice(("terminal", "markdown", "json", "html")), default="terminal",
    show_default=True,
)  # fmt: skip
@click.option("--output", type=NewFile(), help="Write to this file.")
@click.option(
    "--model", metavar="NAME",
    help="Have this model check the tables against the code: a name that --model-server serves, or a file of `training calibrate`.",
)  # fmt: skip
@click.option(
    "--model-server",
    metavar="URL",
    help="The OpenAI-compatible server. Code of the repository is sent there.",
)
@click.option(
    "--model-seconds", metavar="N", type=click.FloatRange(min=0, min_open=True), default=900.0, show_default=True,
    help="Seconds that the audit waits for the model.",
)  # fmt: skip
@click.option(
    "--model-scripts", metavar="N", type=click.IntRange(min=1), default=8, show_default=True,
    help="The model checks the tables of at most so many scripts.",
)  # fmt: skip
@settings_options
def audit(
    path: Path, format_: str, output: Path | None, model: str | None, model_server: str | None,
    model_seconds: float, model_scripts: int, settings: Settings,
) -> None:  # fmt: skip
    """Audit the training scripts of a repository: what each uses, what is missing, and a plan.

    Without PATH it is the current folder.
    """
    if (model is None) != (model_server is None):
        raise click.UsageError("--model and --model-server go together")
    from ptopt.audit.run import audit_of
    from ptopt.audit.values import Level
    from ptopt.cli.workers import aside, inspect_in_processes
    from ptopt.inputs.whole import whole_folder
    from ptopt.report.audit import render
    from ptopt.report.audit.text import number_of

    root = root_of(path)
    config, facts = load(root, settings)
    chosen = config.model_copy(update={"skip": ()})  # training scripts often lie among the examples
    folder = whole_folder(path, root, wants=lambda name: chosen.why_skipped(name) is None)
    with audit_reader(ModelChoice(model, model_server, model_seconds), model_scripts) as reader:
        found = audit_of(
            folder.name, folder.files, config, facts, folder.not_read, inspect_in_processes, aside, reader,
            folder.above, folder.part,
        )  # fmt: skip
    if output is not None:
        output.write_bytes(render(format_, found).encode("utf-8", "backslashreplace"))
    else:
        write(render(format_, found, width=width(), color=colored()))
    if settings.exit_code and any(number_of(found, level) for level in (Level.CRITICAL, Level.MODERATE)):
        click.get_current_context().exit(1)
