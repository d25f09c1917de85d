"""The files that a command reads, one at a time, and those that it writes."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from ptopt.cli.options import Settings, Stdin
from ptopt.cli.settings import load

if TYPE_CHECKING:
    from ptopt.change import ChangedFile
    from ptopt.config import Config
    from ptopt.findings import NotReviewed
    from ptopt.fixes import FixedFile
    from ptopt.project.facts import ProjectFacts

_MANY = 50  # files from which on progress is shown
_Item = TypeVar("_Item")


def stream(
    paths: Sequence[Path], settings: Settings, stdin: Stdin | None = None, baseline: Path | None = None
) -> tuple[Path, Iterator[ChangedFile | NotReviewed], Config, ProjectFacts, list[NotReviewed]]:
    """The root, and the files under `paths`; the list fills with those that the configuration leaves out. A file among `paths`
    is reviewed whatever its kind, unless the settings say otherwise.

    With `stdin`, that is the one file. The files of ptopt itself are passed over: its configuration, and the `baseline`.
    """
    from ptopt.config import OWN_FILE, PROJECT_FILE
    from ptopt.findings import NotReviewed
    from ptopt.inputs import change_from_paths, file_from_bytes, named_files
    from ptopt.inputs.heads import Tree
    from ptopt.pathkind import may_evaluate

    root = root_of(paths[0] if stdin is None else _folder_above(stdin.path))
    config, facts = load(root, settings)
    if stdin is None and not settings.force_exclude:
        config = config.naming(named_files(paths, root))
    skipped: list[NotReviewed] = []
    tree = Tree(root)
    own = {os.path.realpath(path) for path in (settings.config, baseline) if path is not None}

    def is_own(path: str) -> bool:
        place = os.path.realpath(root / path)
        return place in own or os.path.basename(place) in (OWN_FILE, PROJECT_FILE)

    def wants(path: str) -> bool:
        reason = config.why_skipped(path)
        if reason is not None and may_evaluate(path):  # what is in it decides
            data = tree(path) if stdin is None else stdin.data
            reason = config.why_skipped(path, data)
        if reason is not None:
            skipped.append(NotReviewed(path, reason))
        return reason is None

    def chosen() -> Iterator[ChangedFile | NotReviewed]:
        for item in files:
            if isinstance(item, NotReviewed):
                if is_own(item.path):  # pre-commit names each file of the commit
                    continue
                skipped.append(item)  # a review passes over what is no Python; here the user named it
            yield item

    if stdin is None:
        files = change_from_paths(paths, root, wants=wants)
    else:
        files = file_from_bytes(stdin.path, root, stdin.data, wants=wants)
    return root, chosen(), config, facts, skipped


def _folder_above(path: Path) -> Path:
    """The nearest folder above `path` that exists: an editor may not have saved a new file in a new folder yet."""
    return next(folder for folder in Path(os.path.realpath(path)).parents if folder.is_dir())


def root_of(path: Path) -> Path:
    """The repository of `path`, else the current folder when `path` is below it, else its own folder."""
    from ptopt.inputs import CheckoutError, repository_root

    real = Path(os.path.realpath(path))
    folder = real if real.is_dir() else real.parent
    if not folder.is_dir():
        raise CheckoutError(f"{path}: no such file or folder")
    try:
        return repository_root(folder)
    except CheckoutError:
        here = Path(os.path.realpath("."))
        return here if folder.is_relative_to(here) else folder


def progress(items: Iterable[_Item], total: int | None) -> Iterator[_Item]:
    """The items; on a terminal, with a bar on stderr from the 50th on."""
    if not sys.stderr.isatty():
        yield from items
        return
    bar: Any = None
    try:
        for number, item in enumerate(items):
            if number == _MANY:
                from rich.console import Console
                from rich.progress import Progress

                bar = Progress(console=Console(stderr=True), transient=True)
                task = bar.add_task("Reviewing", total=total)
                bar.start()
            if bar is not None:
                bar.update(task, completed=number, description=f"Reviewing {number + 1:,} files")
            yield item
    finally:
        if bar is not None:
            bar.stop()


def write_to(root: Path, result: FixedFile) -> None:
    """Write what became of a file, if nobody else wrote it meanwhile."""
    from ptopt.fixes import FileChangedError, write_fixed

    try:
        write_fixed(root / result.path, result)
    except FileChangedError as error:
        raise click.ClickException(str(error)) from None
    except OSError as error:  # which names the temporary file beside it
        from ptopt.report.text import visible

        why = f"cannot be written, and is as it was: {error.strerror}"
        raise click.ClickException(f"{visible(result.path)}: {why}") from None
