"""`ptopt check`: whole files; what is old in them goes into a baseline, or gets a comment."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ptopt.cli.files import progress, stream, write_to
from ptopt.cli.fix import fix_before_check
from ptopt.cli.model import review_with
from ptopt.cli.options import (
    ModelChoice,
    NewFile,
    Output,
    Settings,
    Stdin,
    baseline_option,
    model_options,
    output_options,
    paths_options,
    settings_options,
)
from ptopt.cli.output import fixed_rules, limited, path_from_here, report, say, write
from ptopt.cli.profile import Kept, profile_option, runs_in, weighed_with

if TYPE_CHECKING:
    from ptopt.change import ChangedFile
    from ptopt.findings import Finding, Span
    from ptopt.fixes import FixedFile

_NAMED = 3  # paths in a hint
_REASON = "not reviewed yet"  # of a suppression that `--add-suppressions` writes


@click.command()
@paths_options
@baseline_option("Report only what this file does not list.")
@click.option(
    "--write-baseline", metavar="FILE", type=NewFile(),
    help="Write what is found to this file, for --baseline.",
)  # fmt: skip
@click.option(
    "--add-suppressions", is_flag=True, help="Write a comment that suppresses it above each finding."
)
@click.option("--reason", metavar="TEXT", help=f"The reason in these comments.  [default: {_REASON}]")
@click.option(
    "--fix", is_flag=True, help="Apply the safe fixes as `ptopt fix` does, and report what is left."
)
@click.option("--unsafe-fixes", is_flag=True, help="With --fix: also those that rest on a stated assumption.")
@profile_option
@output_options
@model_options
@settings_options
def check(
    paths: Sequence[Path],
    baseline: Path | None,
    write_baseline: Path | None,
    add_suppressions: bool,
    reason: str | None,
    fix: bool,
    unsafe_fixes: bool,
    profiles: Sequence[Path],
    output: Output,
    model: ModelChoice,
    settings: Settings,
    stdin: Stdin | None = None,
) -> None:
    """Review whole files and folders.

    Without PATHS it is the current folder; - reads a file from stdin.
    """
    from ptopt.baseline import read_baseline
    from ptopt.inputs import neighbours_in

    if write_baseline is not None and baseline is not None:
        raise click.UsageError("--write-baseline cannot be combined with --baseline")
    known = read_baseline(baseline)
    if reason is not None and not add_suppressions:
        raise click.UsageError("--reason goes with --add-suppressions")
    if reason is not None and not reason.isprintable():
        raise click.UsageError("--reason takes one line of text")
    if stdin is not None and (add_suppressions or fix or write_baseline is not None):
        raise click.UsageError("--fix, --write-baseline and --add-suppressions need files, not stdin")
    if unsafe_fixes and not fix:
        raise click.UsageError("--unsafe-fixes goes with --fix")
    if fix and (add_suppressions or write_baseline is not None):
        raise click.UsageError("--fix cannot be combined with --write-baseline or --add-suppressions")
    if write_baseline is not None:
        _write_baseline(paths, write_baseline, settings)
        return
    if add_suppressions:
        _add_suppressions(paths, known, settings, _REASON if reason is None else reason)
        return
    if fix:
        fix_before_check(paths, settings, unsafe=unsafe_fixes, baseline=baseline)
    root, files, config, facts, skipped = stream(paths, settings, stdin, baseline)
    runs = runs_in(profiles)
    kept = Kept(runs)
    how: dict[str, Any] = {
        "facts": facts, "limit_to_change": False, "neighbours": neighbours_in(root), "baseline": known,
    }  # fmt: skip
    result = review_with(model, kept(files), config=config, **how)
    result = weighed_with(runs, kept, result, None, config, **how)
    same = [] if baseline is None else ["--baseline", str(baseline)]
    named = paths != (Path("."),) and len(paths) <= _NAMED and stdin is None
    report(limited(result, output.budget, skipped), output, settings, root, same, paths if named else ())


def _write_baseline(paths: Sequence[Path], place: Path, settings: Settings) -> None:
    from ptopt.baseline import as_baseline, read_baseline
    from ptopt.findings import places_of
    from ptopt.inputs import neighbours_in
    from ptopt.report.text import count
    from ptopt.review import review_files

    if place.exists():
        read_baseline(place)  # an older one is replaced, another file never
    root, files, config, facts, _ = stream(paths, settings)
    found = review_files(
        progress(files, None), config=config, facts=facts, limit_to_change=False, one_per_cause=False,
        neighbours=neighbours_in(root),
    ).findings  # fmt: skip
    place.write_text(as_baseline(found), encoding="utf-8")
    say(
        f"{count(places_of(found), 'place')} written to {place}; `ptopt check --baseline {place}` reports new ones."
    )


def _add_suppressions(
    paths: Sequence[Path], baseline: frozenset[str], settings: Settings, reason: str
) -> None:
    """Each place gets a comment, and the files are reviewed again: what is left is reported as such."""
    from ptopt.findings import NotReviewed, places_of
    from ptopt.fixes import suppress_file
    from ptopt.inputs import neighbours_in
    from ptopt.report.text import count
    from ptopt.review import review_files

    root, files, config, facts, _ = stream(paths, settings)
    review = functools.partial(
        review_files,
        config=config,
        facts=facts,
        limit_to_change=False,
        one_per_cause=False,
        neighbours=neighbours_in(root),
        baseline=baseline,
    )
    done: list[FixedFile] = []
    left: list[str] = []
    shown = path_from_here(root)
    for file in progress(files, None):
        if isinstance(file, NotReviewed):
            continue
        result = suppress_file(file, lambda one: review([one]), reason)
        left += _named(file, result.left, shown)
        if result.fixed:
            done.append(result)
            write_to(root, result)
            write(fixed_rules(result, path_from_here(root)))
    number = sum(places_of(result.fixed) for result in done)
    several = sum(len(result.fixed) for result in done)
    named = f"{count(several, 'finding')} at " if several > number else ""  # the lines above count these
    rest = f"; {count(len(left), 'place')} left, where a comment cannot stand" if left else ""
    say(
        f"Suppressed {named}{count(number, 'place')} in {count(len(done), 'file')}{rest}{':' if left else '.'}"
    )
    for line in left:
        write(f"  {line}\n")


def _named(file: ChangedFile, left: Sequence[Finding], shown: Callable[[str], str]) -> list[str]:
    """A line for each place of the file that is left, with the rules there."""
    from ptopt.findings import Review
    from ptopt.pathkind import is_notebook
    from ptopt.report.text import one_line, where
    from ptopt.source.notebook import cell_lines

    path = shown(file.path)
    cells = {path: cell_lines(file.head or b"")} if is_notebook(file.path) and left else {}
    places: dict[Span, list[str]] = {}
    for finding in sorted(left, key=lambda finding: finding.sort_key()):
        places.setdefault(finding.span, []).append(f"{finding.rule} {one_line(finding.name)}")
    review = Review((), cells=cells)
    return [
        f"{where(review, path, span)}  {', '.join(dict.fromkeys(rules))}" for span, rules in places.items()
    ]
