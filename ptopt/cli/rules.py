"""`ptopt rules` and `ptopt explain`."""

from __future__ import annotations

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


@click.command()
@click.argument("rule", shell_complete=_complete_rule)
@click.option(
    "--format", "format_", type=click.Choice(("terminal", "markdown")), default="terminal", show_default=True
)
def explain(rule: str, format_: str) -> None:
    """Show the documentation of a rule, by its id or name; of a family, its rules."""
    from ptopt.address import absolute
    from ptopt.report.rulelist import as_table, page
    from ptopt.report.text import visible
    from ptopt.rules import all_rules, find_rule, known_names

    found = find_rule(rule)
    if found is None and known_names().get(rule.strip().lower()) == "family":
        family = [known for known in all_rules() if known.family == rule.strip().lower()]
        write(as_table(family, width(), colored()))
        return
    if found is None:
        names = [name for known in all_rules() for name in (known.id, known.name)]
        raise click.ClickException(f"unknown rule {visible(rule)!r}{nearest(rule, names)}")
    if format_ == "markdown":
        write(absolute(page(found)))
        return
    from ptopt.report.explained import render

    write(render(found, width(), colored()))
