"""`python -m training sources`: list them, pull from them, show what was pulled."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path
from typing import Any, get_origin

import click

from training.sources.base import Page, SourceError
from training.sources.registry import SOURCES, SourceContext, make
from training.sources.store import Store, pull

_STORE = click.option(
    "--store",
    "store_path",
    type=click.Path(dir_okay=False, path_type=Path),
    default=Path("data/sources.sqlite"),
    show_default=True,
    help="SQLite file for documents and cursors.",
)


def sources_commands() -> click.Group:
    """The group, for the command line of `training`."""
    return sources


@click.group()
def sources() -> None:
    """Pull training data from where it is, within its terms."""


@sources.command("list")
def list_sources() -> None:
    """Name the sources and their options."""
    for name, entry in SOURCES.items():
        click.echo(f"{name:14} {entry.summary}")
        for option, info in entry.options.model_fields.items():
            default = "required" if info.is_required() else _shown(info.default)
            about = f"; {info.description}" if info.description else ""
            click.echo(f"{'':16}{option} ({default}{about})")


@sources.command("pull")
@click.argument("names", nargs=-1, required=True)
@_STORE
@click.option(
    "--limit", type=click.IntRange(1), default=1000, show_default=True, help="Documents of each source."
)
@click.option(
    "--option", "options", multiple=True, metavar="NAME=VALUE", help="Of the source; repeat it for a list."
)
@click.option("--opt-in", multiple=True, metavar="LICENCE", help="Train on text under these terms, too.")
@click.option(
    "--contact", default="", help="Contact address in the User-Agent, for the operators of the hosts."
)
@click.option("--cache", type=click.Path(dir_okay=False, path_type=Path), help="Cache file for responses.")
@click.option(
    "--max-requests", type=click.IntRange(1), default=10_000, show_default=True, help="Of each source."
)
@click.option("--restart", is_flag=True, help="Start over instead of resuming the last pull.")
def pull_sources(
    names: tuple[str, ...],
    store_path: Path,
    limit: int,
    options: tuple[str, ...],
    opt_in: tuple[str, ...],
    contact: str,
    cache: Path | None,
    max_requests: int,
    restart: bool,
) -> None:
    """Pull from the named sources, each from where its last pull ended."""
    context = SourceContext(cache, contact, frozenset(opt_in), max_requests)
    with context.clients, Store(store_path) as store:
        for name in names:
            try:
                source = make(name, _options(name, options), context)
                if restart:
                    store.forget(source.name)
                pulled = pull(source, store, limit, _report)
            except SourceError as error:
                raise click.ClickException(f"{name}: {error}") from None
            click.echo(
                f"{name}: {pulled.documents:,} documents{f'; stopped: {pulled.stopped}' * bool(pulled.stopped)}"
            )


@sources.command("show")
@_STORE
def show_sources(store_path: Path) -> None:
    """Count what was pulled, by source and licence."""
    if not store_path.exists():
        raise click.ClickException(f"{store_path}: no such file; pull first")
    with Store(store_path) as store:
        for name, counts in store.counts().items():
            click.echo(
                f"{name}: {counts.pop('documents'):,} documents, {counts.pop('trainable'):,} of them for training"
            )
            for licence, number in counts.most_common():
                click.echo(f"    {number:>7,}  {licence}")


def _report(page: Page) -> None:
    for note in page.notes:
        click.echo(f"  left out: {note}", err=True)


def _options(name: str, given: tuple[str, ...]) -> dict[str, Any]:
    """The options as the source's model wants them: those that are lists collect their values."""
    fields = SOURCES[name].options.model_fields if name in SOURCES else {}
    found: dict[str, Any] = {}
    lists: defaultdict[str, list[str]] = defaultdict(list)
    for text in given:
        option, equals, value = text.partition("=")
        if not equals:
            raise SourceError(f"--option {text}: write NAME=VALUE")
        if option in fields and get_origin(fields[option].annotation) is tuple:
            lists[option].append(value)
        else:
            found[option] = value
    return found | lists


def _shown(value: object) -> str:
    if isinstance(value, tuple):
        return f"{len(value)} by default" if value else "none"
    text = str(value)
    return (text if len(text) <= 60 else text[:57] + "…") or "none"
