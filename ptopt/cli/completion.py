"""`ptopt completion`."""

from __future__ import annotations

import click

from ptopt.cli.output import write


@click.command()
@click.argument("shell", type=click.Choice(("bash", "zsh", "fish")))
@click.pass_context
def completion(context: click.Context, shell: str) -> None:
    """Print the completion script for a shell.

    Put `eval "$(ptopt completion bash)"` into its start file.
    """
    from click.shell_completion import get_completion_class

    found = get_completion_class(shell)
    if found is None:
        raise click.ClickException(f"no completion for {shell}")
    write(found(context.find_root().command, {}, "ptopt", "_PTOPT_COMPLETE").source().strip() + "\n")
