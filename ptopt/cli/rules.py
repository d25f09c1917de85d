"""`ptopt rules` and `ptopt explain`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import click

from ptopt.cli.group import user_errors
from ptopt.cli.output import colored, width, write
from ptopt.cli.settings import nearest


def _complete_rule(context: click.Context, parameter: click.Parameter, typed: str) -> list[str]:
    from ptopt.rules import all_rules

    names = [name for rule in all_rules() for name in (rule.id, rule.name)]
    return [name for name in names if name.lower().startswith(typed.lower())]


@click.command()
@click.option("--format", "format_", type=click.Choice(("terminal", "json", "markdown")), default="terminal")
@click.option("--docs", type=click.Path(file_okay=False, path_type=Path), help="Write a page per rule here.")
def rules(format_: str, docs: Path | None) -> None:
    """List the rules."""
    from ptopt.report import rulelist
    from ptopt.rules import all_rules

    known = all_rules()
    if docs is not None:
        with user_errors():
            docs.mkdir(parents=True, exist_ok=True)
            for name, page in rulelist.pages(known).items():
                (docs / name).write_bytes(page.encode("utf-8"))
        click.echo(f"{len(known)} rules in {docs}")
    elif format_ == "json":
        write(rulelist.as_json(known))
    elif format_ == "markdown":
        write(rulelist.as_markdown(known))
    else:
        write(rulelist.as_table(known, width(), colored()))


@click.command(short_help="Show the documentation of rules.")
@click.argument("rules", metavar="RULE...", nargs=-1, required=True, shell_complete=_complete_rule)
@click.option(
    "--format", "format_", type=click.Choice(("terminal", "markdown")), default="terminal", show_default=True
)
def explain(rules: Sequence[str], format_: str) -> None:
    """Show the documentation of rules, by their ids or names; of a family, or the start of ids (PTO1), list the rules."""
    write("\n".join([_explained(rule, format_) for rule in rules]))


def _explained(text: str, format_: str) -> str:
    """Raises ClickException where nothing is called that."""
    from ptopt.address import absolute
    from ptopt.config import is_prefix
    from ptopt.report.rulelist import as_markdown, as_table, page
    from ptopt.report.text import visible
    from ptopt.rules import all_rules, find_rule

    found, wanted = find_rule(text), text.strip().lower()
    if found is None:
        start = wanted.upper()
        ids = start if is_prefix(start, [known.id for known in all_rules()]) else None
        several = [
            known for known in all_rules() if known.family == wanted or (ids and known.id.startswith(ids))
        ]
        if several:
            listed = as_markdown(several) if format_ == "markdown" else as_table(several, width(), colored())
            return listed.rstrip("\n") + "\n"
        names = [name for known in all_rules() for name in (known.id, known.name)]
        raise click.ClickException(f"unknown rule {visible(text)!r}{nearest(text, names)}")
    if format_ == "markdown":
        return absolute(page(found))
    from ptopt.report.explained import render

    return render(found, width(), colored())
