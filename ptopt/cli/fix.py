"""`ptopt fix`."""

from __future__ import annotations

import dataclasses
import functools
import shlex
import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import click
from click.core import ParameterSource

from ptopt.cli.files import progress, stream, write_to
from ptopt.cli.options import Settings, Stdin, baseline_option, paths_options, settings_options
from ptopt.cli.output import colored, fixed_rules, in_hook, name_broken, path_from_here, say, write

if TYPE_CHECKING:
    from ptopt.change import ChangedFile
    from ptopt.findings import Finding, NotReviewed, Review
    from ptopt.fixes import FixedFile, Spot

_NAMED = 3  # paths in a hint
_MOST_ROUNDS = 10  # of fixes that other fixes bring up


@dataclass
class _Outcome:
    """What came of all files together, in findings as `check` counts them."""

    files: int = 0  # that were fixed
    found: list[Finding] = field(default_factory=list)  # before anything was fixed
    fixed: list[Finding] = field(default_factory=list)
    more: list[Finding] = field(default_factory=list)  # fixed, too: what only other fixes brought up
    left: list[Finding] = field(default_factory=list)
    beside: int = 0  # places that were fixed and have another finding, which stood behind the first one
    cured: int = 0  # other places that have no finding any more after these fixes
    hidden: int = 0  # places that the ranker left out
    lost: int = 0  # files that were not reviewed
    limit: int | None = None  # of the comments that a review of the change shows


@click.command()
@paths_options
@click.option("--unsafe", is_flag=True, help="Also apply fixes that rest on a stated assumption.")
@click.option("--diff", is_flag=True, help="Print the changes as a diff without writing them.")
@click.option(
    "--base", metavar="REV",
    help="Only what `ptopt review --base REV` finds: on lines that changed since the branch left REV.",
)  # fmt: skip
@baseline_option("Leave alone what this file lists.")
@settings_options
def fix(
    paths: Sequence[Path],
    unsafe: bool,
    diff: bool,
    base: str | None,
    baseline: Path | None,
    settings: Settings,
    stdin: Stdin | None = None,
) -> None:
    """Apply the fixes that do not change behaviour.

    Without PATHS it is the current folder, with --base the whole repository; - reads a file from stdin and writes it
    to stdout.
    """
    from ptopt.inputs import repository_root
    from ptopt.ranking import across_files

    if base is not None and stdin is not None:
        raise click.UsageError("--base needs files, not stdin")
    named = click.get_current_context().get_parameter_source("paths") is ParameterSource.COMMANDLINE
    if base is not None and not named:  # what `ptopt review` looks at from here
        paths = (repository_root(Path(".")),)
    outcome, broken = apply_fixes(
        paths, settings, unsafe=unsafe, diff=diff, base=base, baseline=baseline, stdin=stdin
    )
    shows = ["ptopt", "check"] if base is None else ["ptopt", "review", "--base", base]
    same = settings.arguments() + ([] if baseline is None else ["--baseline", str(baseline)])
    comments = len(across_files(outcome.left))
    if outcome.limit is not None and comments > outcome.limit:
        same += ["--budget", str(comments)]  # else it does not show all that is said to be left
    if base is None and named and stdin is None and len(paths) <= _NAMED:
        same += map(str, paths)
    summary = _summary(outcome, diff, unsafe, shlex.join([*shows, *same]), in_hook())
    say(summary, err=diff or stdin is not None)
    if settings.exit_code:
        name_broken(broken)
        if outcome.files or outcome.left or broken:
            click.get_current_context().exit(1)


def fix_before_check(
    paths: Sequence[Path], settings: Settings, *, unsafe: bool, baseline: Path | None
) -> None:
    """What `check --fix` does before it reviews what is left. What was fixed is said on stderr, beside the report."""
    outcome, _ = apply_fixes(paths, settings, unsafe=unsafe, baseline=baseline, quiet=True)
    say(f"{_done(outcome, False)}.", err=True)


def apply_fixes(
    paths: Sequence[Path],
    settings: Settings,
    *,
    unsafe: bool,
    diff: bool = False,
    base: str | None = None,
    baseline: Path | None = None,
    stdin: Stdin | None = None,
    quiet: bool = False,
) -> tuple[_Outcome, set[NotReviewed]]:
    """Write the fixes, or with `diff` print them; what came of it, and the files that do not parse.

    Each file that was written gets a line, unless `quiet`.
    """
    from ptopt.baseline import read_baseline
    from ptopt.change import whole_file
    from ptopt.findings import NotReviewed, places_of
    from ptopt.fixes import fix_file
    from ptopt.inputs import change_between, neighbours_in, with_head
    from ptopt.review import review_files

    known = read_baseline(baseline)
    root, streamed, config, facts, skipped = stream(paths, settings, stdin, baseline)
    files: Iterable[ChangedFile | NotReviewed] = streamed
    near = neighbours_in(root)
    change = None if base is None else change_between(root, base)
    around = change.around if change is not None else {}
    changed = {} if change is None else {file.path: file for file in change.files}
    lost: set[str] = set()
    broken: set[NotReviewed] = set()  # files that do not parse
    hidden: dict[str, int] = {}  # path -> places that the ranker left out

    def count_hidden(found: Review, file: ChangedFile) -> None:
        hidden[file.path] = sum(found.left_out.places.values()) if found.left_out else 0

    def review_one(file: ChangedFile, one_per_cause: bool = False) -> Review:
        found = review_files(
            [file],
            config=config,
            facts=facts,
            limit_to_change=False,
            one_per_cause=one_per_cause,
            around=around,
            neighbours=near if change is None else None,
            baseline=known,
        )
        lost.update(item.path for item in found.not_reviewed)
        broken.update(item for item in found.not_reviewed if item.syntax_error)
        if change is None:
            count_hidden(found, file)
        return found

    def of_the_change(reviewed: Mapping[str, ChangedFile]) -> Review:
        """Its files together, as a review of the change does it: they answer questions about one another."""
        heads = {path: file.head for path, file in reviewed.items() if file.head is not None}
        return review_files(
            list(reviewed.values()),
            config=config,
            facts=facts.with_texts(heads),
            limit_to_change=True,
            around={**around, **heads},
            baseline=known,
        )

    whole = None
    if change is not None:
        files = [f for f in streamed if isinstance(f, NotReviewed) or f.path in changed]
        named = {f.path for f in files}
        changed = {path: file for path, file in changed.items() if path in named}
        whole = of_the_change(changed)
        hidden[""] = sum(whole.left_out.places.values()) if whole.left_out else 0

    def reported(path: str) -> Callable[[bytes], list[Finding]]:
        """What `check`, or the review of the change, says of a version of the file."""

        @functools.cache
        def of_version(data: bytes) -> list[Finding]:
            if whole is None or base is None:
                return list(review_one(whole_file(path, data), True).findings)
            file = changed[path]
            found = whole
            if data != file.head:
                found = of_the_change(changed | {path: with_head(root, base, file, data)})
            return _in_file((*found.findings, *found.over_limit), path)

        return of_version

    outcome = _Outcome()
    after = b"" if stdin is None else stdin.data
    for file in progress(files, None):
        if isinstance(file, NotReviewed):
            lost.add(file.path)
            continue
        findings = reported(file.path)

        def shown(data: bytes, findings: Callable[[bytes], list[Finding]] = findings) -> frozenset[Spot]:
            return frozenset((p.rule, p.span.start) for finding in findings(data) for p in finding.places())

        only = None if change is None else shown
        result = fix_file(file, review_one, unsafe=unsafe, most_rounds=_MOST_ROUNDS, shown=only)
        # A file of a change may have findings that only its files together show.
        remaining = findings(result.after) if result.left or change is not None else []
        outcome.left += remaining
        if not result.fixed:
            outcome.found += remaining
        if stdin is not None:
            after = result.after
        if not result.fixed:
            continue
        for number, each in enumerate(result.rounds):
            several = findings(each.before)
            here = _at(several, each.places)
            outcome.found += [] if number else several
            (outcome.more if number else outcome.fixed).extend(here)
            if not number:
                after_it = findings(result.rounds[1].before) if len(result.rounds) > 1 else remaining
                outcome.cured += max(0, places_of(several) - places_of(here) - places_of(after_it))
            if len(result.rounds) == 1:
                outcome.beside += max(0, places_of(remaining) + places_of(here) - places_of(several))
        outcome.files += 1
        if diff:
            _write_diff(result)
        elif stdin is None:
            write_to(root, result)
            if not quiet:
                write(fixed_rules(result, path_from_here(root)))
    if stdin is not None and not diff:
        click.echo(after, nl=False)
    lost.update(item.path for item in skipped)
    if change is not None:
        lost &= {*changed, *(item.path for item in change.not_reviewed)}
    outcome.limit = None if change is None else config.budget
    outcome.lost = len(lost)
    outcome.hidden = sum(hidden.values())
    return outcome, broken


def _summary(outcome: _Outcome, diff: bool, unsafe: bool, shows: str, hook: bool = False) -> str:
    """What was fixed and what is left, on one line; `shows` is the command that lists the latter."""
    from ptopt.findings import Safety, places_of
    from ptopt.ranking import across_files
    from ptopt.report.text import code_span, count, counted, option

    done = _done(outcome, diff)
    left, in_places = across_files(outcome.left), _in_places(outcome)
    beside = outcome.beside if left and in_places else 0  # so that what was fixed and what is left add up
    others = places_of(left) - beside
    rest = []
    if left and others > 0:
        rest.append(f"{count(others, 'place') if in_places else counted(left)} left")
    if beside:
        has = "has" if beside == 1 else "have"
        rest.append(f"{beside:,} of the fixed places {has} another finding")
    assuming = sum(1 for finding in left if finding.fix is not None and finding.fix.safety is Safety.UNSAFE)
    if assuming and not unsafe:
        unit = count(assuming, "finding") if in_places else f"{assuming:,}"
        rest.append(f"{unit} with an unsafe fix ({option('`--unsafe`', hook)})")
    if outcome.hidden and not outcome.files:
        flag = option("`--min-confidence=0`" if hook else "`--min-confidence 0`", hook)
        rest.append(f"{count(outcome.hidden, 'place')} left out ({flag})")
    if outcome.lost:
        rest.append(f"{count(outcome.lost, 'file')} not reviewed")
    where = "the hook `ptopt-check`" if hook else code_span(shows)
    return f"{done}; {', '.join(rest)}, see {where}." if rest else f"{done}."


def _done(outcome: _Outcome, diff: bool) -> str:
    """What was fixed, without the full stop."""
    from ptopt.findings import places_of
    from ptopt.ranking import across_files
    from ptopt.report.text import count, counted

    if not outcome.files:
        return "Nothing to fix"
    fixed, found = across_files(outcome.fixed), across_files(outcome.found)
    several = f"{count(len(fixed), 'finding')} at {places_of(fixed):,} of {count(places_of(found), 'place')}"
    if outcome.cured:
        several += f", which cures {outcome.cured:,} more,"
    amount = several if _in_places(outcome) else counted(fixed)
    more = f", and {counted(across_files(outcome.more))} that these fixes brought up" if outcome.more else ""
    return f"{'Would fix' if diff else 'Fixed'} {amount} in {count(outcome.files, 'file')}{more}"


def _in_places(outcome: _Outcome) -> bool:
    """Are places counted? A finding of which some are fixed is both fixed and left; of places that is rare, and said."""
    from ptopt.findings import places_of
    from ptopt.ranking import across_files

    found, fixed, left = map(across_files, (outcome.found, outcome.fixed, outcome.left))
    return bool(fixed) and any(number(fixed) + number(left) != number(found) for number in (len, places_of))


def _in_file(findings: Iterable[Finding], path: str) -> list[Finding]:
    """The findings with their places in one file alone."""
    kept = []
    for finding in findings:
        places = [p for p in finding.places() if finding.path_of(p) == path]
        if places:
            kept.append(dataclasses.replace(finding, path=path, span=places[0].span, also=tuple(places[1:])))
    return kept


def _at(findings: Iterable[Finding], spots: Collection[Spot]) -> list[Finding]:
    """The findings as they are reported, with those of their places alone that are among `spots`: rules and first lines."""
    kept = []
    for finding in findings:
        places = [p for p in finding.places() if (p.rule, p.span.start) in spots]
        if places:
            kept.append(dataclasses.replace(finding, span=places[0].span, also=tuple(places[1:])))
    return kept


def _write_diff(result: FixedFile) -> None:
    """A patch in the bytes of the file, of a notebook one for each cell; on a terminal in colour, with control characters as
    escapes.
    """
    from ptopt.pathkind import is_notebook
    from ptopt.report.text import visible
    from ptopt.source.decode import decode_python

    notebook = is_notebook(result.path)
    lines = [line for name, old, new in _versions(result) for line in _diff(name, old, new)]
    if not sys.stdout.isatty():
        click.echo(b"".join(lines), nl=False)
        return
    encoding = "utf-8" if notebook else decode_python(result.before)[1].removesuffix("-sig")
    for line in lines:
        text = visible(line.decode(encoding, "replace"), keep="\n\t")
        color = {"+": "green", "-": "red", "@": "cyan"}.get(text[0])
        write(click.style(text, fg=color) if colored() and color else text)


def _versions(result: FixedFile) -> Iterator[tuple[str, bytes, bytes]]:
    """What is compared: the file, or each cell that was changed in a notebook, with its name."""
    from ptopt.pathkind import is_notebook

    if not is_notebook(result.path):
        yield result.path, result.before, result.after
        return
    from ptopt.notebook_edits import code_of_cells

    old, new = code_of_cells(result.before), code_of_cells(result.after)
    for number, code in old.items():
        if code != new[number]:
            # The last line of a cell ends without a newline as a rule, and it does not matter.
            before, after = (text.removesuffix("\n").encode() + b"\n" for text in (code, new[number]))
            yield f"{result.path}:cell {number}", before, after


def _diff(name: str, before: bytes, after: bytes) -> list[bytes]:
    import difflib

    old, new = (f"{side}/{name}".encode() for side in "ab")
    return [
        line if line.endswith(b"\n") else line + b"\n\\ No newline at end of file\n"
        for line in difflib.diff_bytes(difflib.unified_diff, _lines(before), _lines(after), old, new)
    ]


def _lines(data: bytes) -> list[bytes]:
    return [line + b"\n" for line in data.split(b"\n")[:-1]] + [
        last for last in data.split(b"\n")[-1:] if last
    ]
