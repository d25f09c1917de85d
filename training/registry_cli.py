"""`python -m training registry`: which adapters there are, and which of them the reviewers use."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import click

from ptopt.model.adapter_folder import RegistryError
from ptopt.model.registry import ALIASES, CHAMPION, Entry, Registry
from ptopt.report.text import one_line

_FORCE = click.option("--force", is_flag=True, help="Even if this version of ptopt cannot use it.")
_ALIAS = click.argument("alias", type=click.Choice(ALIASES), default=CHAMPION)


@click.group()
@click.option(
    "--folder", type=click.Path(path_type=Path, file_okay=False), default=Path("registry"), show_default=True,
    envvar="PTOPT_MODEL_REGISTRY", show_envvar=True, help="The registry.",
)  # fmt: skip
@click.pass_context
def registry(context: click.Context, folder: Path) -> None:
    """Adapters, and which of them the reviewers use: `champion`, and `challenger` for some repositories.

    Workers follow a promotion without a restart.
    """
    context.obj = Registry(folder)


@registry.command("list")
@click.pass_obj
def list_(found: Registry) -> None:
    """List the adapters, oldest first."""
    with _reported_errors():
        entries = found.entries()
    for entry in entries:
        click.echo(_line(entry))
    if not entries:
        click.echo(f"No adapter in {found.folder}.")


@registry.command()
@click.argument("name")
@click.pass_obj
def show(found: Registry, name: str) -> None:
    """Show an adapter (alias, hash, or the beginning of one): its card, and what was done with it."""
    with _reported_errors():
        entry = found.show(name)
        events = [event for event in found.history() if event.hash == entry.hash]
    click.echo(f"hash: {entry.hash}\nstate: {entry.state.value}")
    if entry.problem:
        click.echo(f"problem: {one_line(entry.problem)}")
    click.echo(f"folder: {found.folder / 'adapters' / entry.hash}")
    for event in events:
        click.echo(f"{event.at} {event.action} {event.alias}{' (forced)' if event.forced else ''}".rstrip())
    click.echo(json.dumps(entry.card, indent=2, sort_keys=True))  # ASCII: no card speaks to the terminal


@registry.command()
@click.argument("folder", type=click.Path(path_type=Path, exists=True, file_okay=False))
@click.pass_obj
def add(found: Registry, folder: Path) -> None:
    """Copy an adapter folder into the registry, and print its hash."""
    with _reported_errors():
        click.echo(found.add(folder))


@registry.command()
@click.argument("name")
@_ALIAS
@_FORCE
@click.pass_obj
def promote(found: Registry, name: str, alias: str, force: bool) -> None:
    """Let the adapter NAME be the champion, or the challenger."""
    with _reported_errors():
        event = found.promote(name, alias, force=force)
        hash_ = found.find(name)
    click.echo(f"{hash_[:12]} is the {alias} {'already' if event is None else 'now'}.")


@registry.command()
@_ALIAS
@_FORCE
@click.pass_obj
def rollback(found: Registry, alias: str, force: bool) -> None:
    """Take the last promotion back; once more, the one before it."""
    with _reported_errors():
        event = found.rollback(alias, force=force)
    click.echo(f"{event.hash[:12]} is the {alias} again." if event.hash else f"There is no {alias} now.")


def _line(entry: Entry) -> str:
    words = (
        entry.hash[:12],
        f"{entry.state.value:9}",
        f"{','.join(entry.aliases) or '-':19}",
        one_line(str(entry.card.get("name", "?"))),
        one_line(str(entry.card.get("created", ""))),
        f"[{one_line(entry.problem)}]" if entry.problem else "",
    )
    return " ".join(words).rstrip()


@contextmanager
def _reported_errors() -> Iterator[None]:
    try:
        yield
    except RegistryError as error:
        raise click.ClickException(str(error)) from None
    except OSError as error:
        raise click.ClickException(f"{error.filename}: {error.strerror}") from None
