"""`ptopt prove`: runs what a fix replaces and the fix itself, in a sandbox."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path

import click

from ptopt.cli.files import progress, stream
from ptopt.cli.options import Output, Settings, Stdin, output_options, paths_options, settings_options
from ptopt.cli.output import limited, report


@click.command()
@paths_options
@click.option(
    "--inputs", metavar="FILE", type=click.Path(path_type=Path, dir_okay=False),
    help="Types and shapes of parameters, in JSON, where they cannot be inferred.",
)  # fmt: skip
@output_options
@settings_options
def prove(
    paths: Sequence[Path],
    inputs: Path | None,
    output: Output,
    settings: Settings,
    stdin: Stdin | None = None,
) -> None:
    """Check files, and run the fixes of pure tensor functions.

    This executes code of the files, in a sandbox without files, network or other processes. Without PATHS it is the current
    folder; - reads a file from stdin.
    """
    from ptopt.inputs import neighbours_in
    from ptopt.prove.findings import proved
    from ptopt.prove.given import InputsError, read_inputs
    from ptopt.prove.session import Session
    from ptopt.review import review_files

    try:
        given = {} if inputs is None else read_inputs(inputs)
    except InputsError as error:
        raise click.ClickException(str(error)) from None
    root, files, config, facts, skipped = stream(paths, settings, stdin)
    found = review_files(
        progress(files, None), config=config, facts=facts, limit_to_change=False, one_per_cause=False,
        neighbours=neighbours_in(root),
    )  # fmt: skip
    found = dataclasses.replace(limited(found, output.budget, skipped), apart=True)
    with Session() as session:
        report(proved(found, session, given), output, settings, root)
