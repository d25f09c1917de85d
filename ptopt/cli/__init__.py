"""The `ptopt` command. Everything but click is imported where it is used: `ptopt --version` must be quick."""

from __future__ import annotations

import click

from ptopt import __version__
from ptopt.cli.audit import audit
from ptopt.cli.check import check
from ptopt.cli.completion import completion
from ptopt.cli.config import config
from ptopt.cli.fix import fix
from ptopt.cli.group import Group
from ptopt.cli.profile import profile
from ptopt.cli.prove import prove
from ptopt.cli.review import review
from ptopt.cli.rules import explain, rules

__all__ = ["main"]


@click.group(
    "ptopt", cls=Group, invoke_without_command=True, context_settings={"help_option_names": ["-h", "--help"]}
)
@click.version_option(__version__, message="ptopt %(version)s")
@click.pass_context
def main(context: click.Context) -> None:
    """Find the PyTorch code that makes training or inference slow.

    Exit status: 0, or 1 with --exit-code when there are findings or files that do not parse, or 2 on an error.
    """
    if context.invoked_subcommand is None:
        click.echo(context.get_help())


for _command in (review, check, fix, audit, profile, prove, rules, explain, config, completion):
    main.add_command(_command)
