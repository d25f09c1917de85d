"""What a command prints: the report, and lines in the encoding and the colours of the terminal."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ptopt.cli.options import Output, Settings

if TYPE_CHECKING:
    from ptopt.findings import NotReviewed, Review
    from ptopt.fixes import FixedFile

_NAMED = 3  # files in a hint


def report(
    result: Review,
    output: Output,
    settings: Settings,
    root: Path,
    fix_arguments: Sequence[str] = (),
    paths: Sequence[Path] = (),
) -> None:
    """Write the review. `root` is where its paths start; people and editors see them from the current folder on.

    `fix_arguments`, and the `paths` behind them, are those with which `ptopt fix` looks at the same code.
    """
    import dataclasses

    from ptopt.report import render

    same = [*settings.arguments(), *fix_arguments, *map(str, paths)]
    result = dataclasses.replace(result, fix_arguments=shlex.join(same), in_hook=in_hook())
    here = _from_here(result, root)
    if output.format in ("terminal", "concise", "statistics"):
        result = here
    how: dict[str, Any] = {
        "explain": output.explain, "verbose": output.verbose, "suppressed": output.suppressed, "quiet": output.quiet,
    }  # fmt: skip
    if output.file is not None:
        text = render(output.format, result, **how)
        output.file.write_bytes(text.encode("utf-8", "backslashreplace"))
    else:
        write(render(output.format, result, width=width(), color=colored(), **how))
    if output.format == "github" and not output.quiet:
        _count_rest(here)
    if settings.exit_code:
        name_broken(here.not_reviewed)
        if (result.findings or result.over_limit) and not output.quiet:
            _name_unsafe_fixes(here, settings, fix_arguments, paths)
        if result.findings or result.over_limit or any(item.syntax_error for item in result.not_reviewed):
            click.get_current_context().exit(1)


def in_hook() -> bool:
    """Does pre-commit run this? Its users pass options in its configuration, and need not have `ptopt` in their shell."""
    return bool(os.environ.get("PRE_COMMIT"))


def name_broken(not_reviewed: Iterable[NotReviewed]) -> None:
    """The files that do not parse, on stderr, a line each: a check that must pass has not seen them."""
    from ptopt.report.text import one_line, visible

    for item in sorted(not_reviewed):
        if item.syntax_error:
            click.echo(f"ptopt: error: {visible(item.path)}: {one_line(item.reason)}", err=True)


def _count_rest(result: Review) -> None:
    """A line on stderr with what `check` counts and annotations, which are findings alone, have no place for."""
    from ptopt.report.text import count, left_out_line, outcome

    rest = []
    if result.suppressed or result.in_baseline or result.left_out is not None:
        rest.append(f"{outcome(result)}.")
    if result.left_out is not None:
        rest.append(f"{left_out_line(result.left_out, result.in_hook)}.")
    if result.unused_suppressions:
        rest.append(f"{count(len(result.unused_suppressions), 'unused suppression')}.")
    if rest:
        say(" ".join(rest), err=True)


def _name_unsafe_fixes(
    result: Review, settings: Settings, fix_arguments: Sequence[str], paths: Sequence[Path]
) -> None:
    """How to apply what is left to fix, on stderr, where none of it is safe: `ptopt fix` alone would do nothing."""
    from ptopt.findings import Safety
    from ptopt.report.text import count, fix_command

    fixes = [(f.path, f.fix.safety) for f in (*result.findings, *result.over_limit) if f.fix is not None]
    files = list(dict.fromkeys(path for path, safety in fixes if safety is Safety.UNSAFE))
    if not files or any(safety is Safety.SAFE for _, safety in fixes):
        return
    if result.in_hook:
        say("The hook `ptopt-fix` with `args: [--unsafe]` applies fixes that state an assumption.", err=True)
        return
    named, rest = result.fix_arguments, ""
    if paths:  # those that have something to fix
        there = [Path(os.path.abspath(file)) for file in files]
        within = [path for path in paths if any(f.is_relative_to(os.path.abspath(path)) for f in there)]
        named = shlex.join([*settings.arguments(), *fix_arguments, *map(str, within or paths)])
    elif not fix_arguments:  # which say where
        named = shlex.join([*settings.arguments(), *files[:_NAMED]])
        rest = f", and {count(len(files) - _NAMED, 'other file')}" if len(files) > _NAMED else ""
    say(f"`{fix_command(named, unsafe=True)}` applies fixes that state an assumption{rest}.", err=True)


def limited(result: Review, most: int | None, skipped: Sequence[NotReviewed]) -> Review:
    """The review with at most so many findings (None: all), and the files that were left out before it."""
    import dataclasses

    shown = len(result.findings) if most is None else most
    left_out = result.left_out and dataclasses.replace(result.left_out, limit=most)
    return dataclasses.replace(
        result,
        findings=result.findings[:shown],
        over_limit=(*result.findings[shown:], *result.over_limit),
        not_reviewed=tuple(sorted({*result.not_reviewed, *skipped})),
        left_out=left_out,
    )


def path_from_here(root: Path) -> Callable[[str], str]:
    """How a path below `root` is shown: relative to the current folder where one of the two is inside the other."""
    top, here = os.path.realpath(root), os.path.realpath(".")
    if top == here or not (Path(here).is_relative_to(top) or Path(top).is_relative_to(here)):
        return lambda path: path
    return lambda path: (
        path if os.path.isabs(path) else os.path.relpath(os.path.join(top, path), here).replace(os.sep, "/")
    )


def _from_here(review: Review, root: Path) -> Review:
    import dataclasses

    shown = path_from_here(root)
    listed = ("findings", "over_limit", "suppressed", "in_baseline", "not_reviewed", "unused_suppressions")
    changes: dict[str, Any] = {
        name: tuple(_moved(item, shown) for item in getattr(review, name)) for name in listed
    }
    changes |= {
        name: {shown(p): v for p, v in (getattr(review, name) or {}).items()}
        for name in ("sources", "cells", "disk_lines")
    }
    return dataclasses.replace(review, reviewed=tuple(map(shown, review.reviewed)), **changes)


def _moved(item: Any, shown: Callable[[str], str]) -> Any:
    """The item with its path, and those of its places in other files, as they are shown."""
    import dataclasses

    changes: dict[str, Any] = {"path": shown(item.path)}
    if any(place.path for place in getattr(item, "also", ())):
        changes["also"] = tuple(
            dataclasses.replace(p, path=shown(p.path)) if p.path else p for p in item.also
        )
    return dataclasses.replace(item, **changes)


def width() -> int:
    import shutil

    return shutil.get_terminal_size((100, 24)).columns


def colored() -> bool:
    return sys.stdout.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def write(text: str) -> None:
    """Write to stdout what its encoding can say, and the rest as escapes."""
    encoding = sys.stdout.encoding or "utf-8"
    click.echo(text.encode(encoding, "backslashreplace").decode(encoding), nl=False, color=colored())


def say(text: str, *, err: bool = False) -> None:
    """A sentence of the command: in lines that fit the terminal, or one line where a program reads it."""
    from ptopt.report.text import wrapped

    stream = sys.stderr if err else sys.stdout
    click.echo(wrapped(text, width()) if stream.isatty() else text, err=err)


def fixed_rules(result: FixedFile, shown: Callable[[str], str]) -> str:
    """A line: the file, and how many findings of each rule were fixed or suppressed in it."""
    from collections import Counter

    from ptopt.report.text import visible

    tally = Counter((finding.rule, finding.name) for finding in result.fixed)
    fixes = ", ".join(f"{number} × {rule} {name}" for (rule, name), number in sorted(tally.items()))
    return f"{visible(shown(result.path))}: {fixes}\n"
