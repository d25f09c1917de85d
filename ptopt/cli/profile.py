"""`ptopt profile`: where the time of a recorded run goes; and the runs that `review` and `check` weigh with."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import click

from ptopt.cli.files import stream
from ptopt.cli.group import user_errors
from ptopt.cli.options import NewFile, Settings
from ptopt.cli.output import colored, say, width, write

if TYPE_CHECKING:
    from ptopt.change import ChangedFile
    from ptopt.config import Config
    from ptopt.findings import Finding, NotReviewed, Review
    from ptopt.profiles.profile import Profile
    from ptopt.profiles.snapshot import Memory

_FORMATS = ("terminal", "json", "markdown")
_ALL = 1 << 20  # findings
_TRACE = click.Path(exists=True, dir_okay=False, path_type=Path)


def profile_option(command: Callable[..., None]) -> Callable[..., None]:
    @click.option(
        "--profile", "profiles", multiple=True, metavar="TRACE", type=_TRACE,
        help="Order the findings by what their lines take of this recorded run; what takes 5 % of it is always one.",
    )  # fmt: skip
    @functools.wraps(command)
    def wrapped(profiles: Sequence[Path], **rest: Any) -> None:
        command(profiles=tuple(profiles), **rest)

    return wrapped


@click.command()
@click.argument("traces", nargs=-1, required=True, metavar="TRACE...", type=_TRACE)
@click.option(
    "--code", multiple=True, metavar="PATH", type=click.Path(exists=True, path_type=Path),
    help="Files or folders of the code that ran: names its lines, and reviews the files that the trace names.",
)  # fmt: skip
@click.option("--format", "format_", type=click.Choice(_FORMATS), default="terminal", show_default=True)
@click.option("--output", type=NewFile(), help="Write to this file.")
@click.option(
    "--top", type=click.IntRange(min=1, max=100), default=10, show_default=True, help="Rows of each table."
)
def profile(
    traces: Sequence[Path], code: Sequence[Path], format_: str, output: Path | None, top: int
) -> None:
    """Show where the time of a run went, and what to change first.

    TRACE is what torch.profiler, torch.cuda.memory._dump_snapshot or `nsys export --type sqlite` wrote.
    """
    import importlib

    from ptopt.profiles.lines import named_lines
    from ptopt.profiles.snapshot import Memory
    from ptopt.source.built import built

    with user_errors():
        files = _code(code)
        found = [read(path, files) for path in traces]
        pairs = [(one, () if isinstance(one, Memory) else named_lines(one, files)) for one in found]
        runs = [one for one in found if not isinstance(one, Memory)]
        review = _review(code, runs, files)
        module = importlib.import_module(f"ptopt.report.profile_{format_}")
        named = {line.path for _, lines in pairs for line in lines}
        how: dict[str, Any] = {"most": top, "built": built(files, named)}
        if format_ == "json":
            how["review"] = review
        elif format_ == "terminal" and output is None:
            how |= {"width": width(), "color": colored()}
        text = module.render(pairs, **how)
    if format_ != "json" and review is not None and review.findings:
        text += "\n" + _findings(review, format_, output is None)
    if output is not None:
        output.write_bytes(text.encode("utf-8", "backslashreplace"))
    else:
        write(text)


def read(path: Path, files: Iterable[str] = ()) -> Profile | Memory:
    """What the file at `path` says. A file that cannot be read is an error of the user's."""
    from ptopt.profiles.reading import profile_of
    from ptopt.profiles.trace import ProfileError
    from ptopt.report.text import visible

    try:
        return profile_of(path, list(files))
    except ProfileError as error:
        raise click.ClickException(visible(f"{path}: {error}")) from None


def runs_in(paths: Sequence[Path], files: Iterable[str] = ()) -> list[Profile]:
    """The recorded runs that a review of `files` is weighed with. Raises ClickException for memory snapshots: they have no steps."""
    if not paths:
        return []
    from ptopt.profiles.snapshot import Memory

    found, files = [], list(files)
    for path in paths:
        one = read(path, files)
        if isinstance(one, Memory):
            raise click.ClickException(f"{path}: a memory snapshot says nothing of time; see `ptopt profile`")
        found.append(one)
    return found


class Kept:
    """The files that pass by, of those that a trace names, and their texts."""

    def __init__(self, profiles: Sequence[Profile]) -> None:
        self._ends = {
            cost.place.frame.path.replace("\\", "/").rpartition("/")[2] for p in profiles for cost in p.costs
        }
        self.texts: dict[str, str] = {}
        self.files: list[ChangedFile] = []

    def __call__(self, files: Iterable[ChangedFile | NotReviewed]) -> Iterator[ChangedFile | NotReviewed]:
        for file in files:
            head = getattr(file, "head", None)
            if head is not None and file.path.rpartition("/")[2] in self._ends:
                self.texts[file.path] = head.decode("utf-8", "replace")
                self.files.append(cast("ChangedFile", file))
            yield file


def weighed_with(
    runs: Sequence[Profile], kept: Kept, review: Review, budget: int | None, config: Config, **how: Any
) -> Review:
    """The review, weighed with the recorded runs: what they show to be costly is a finding that the ranker cannot leave out.

    `how` is what the review was made with.
    """
    if not runs:
        return review
    from ptopt.profiles.attach import weighed
    from ptopt.profiles.lines import named_lines
    from ptopt.report.text import visible
    from ptopt.review import review_files

    for run in runs:
        if not named_lines(run, kept.texts):
            say(
                f"{visible(run.name)}: names no line of the files under review; is it of another program?",
                err=True,
            )
    everything = config.at_least(0.0).model_copy(update={"budget": _ALL})
    proposed = review_files(kept.files, config=everything, one_per_cause=False, **how)
    return weighed(review, runs, kept.texts, budget, proposed.findings)


def _code(paths: Sequence[Path]) -> dict[str, str]:
    """The Python files under `paths`, by path. A trace cannot have others opened."""
    if not paths:
        return {}
    _, files, _, _, _ = stream(paths, Settings(all_paths=True))
    texts = {}
    for file in files:
        head = getattr(file, "head", None)
        if head is not None and file.path.endswith(".py"):
            texts[file.path] = head.decode("utf-8", "replace")
    return texts


def _review(paths: Sequence[Path], runs: Sequence[Profile], files: dict[str, str]) -> Review | None:
    """The findings of the files that the traces name, with what was measured; those without a measure left out."""
    import dataclasses

    from ptopt.inputs import neighbours_in
    from ptopt.profiles.lines import named_lines
    from ptopt.review import review_files

    named = {line.path for run in runs for line in named_lines(run, files)}
    if not named:
        return None
    root, listed, config, facts, _ = stream(paths, Settings(all_paths=True))
    kept = Kept(runs)
    chosen = list(kept(file for file in listed if file.path in named))
    how: dict[str, Any] = {"facts": facts, "limit_to_change": False, "neighbours": neighbours_in(root)}
    review = weighed_with(runs, kept, review_files(chosen, config=config, **how), None, config, **how)
    return dataclasses.replace(review, findings=tuple(filter(_measured, review.findings)), left_out=None)


def _measured(finding: Finding) -> bool:
    return finding.measured is not None


def _findings(review: Review, format_: str, shown: bool) -> str:
    from ptopt.report import render

    if format_ == "terminal" and shown:
        return render("terminal", review, width=width(), color=colored())
    return render(format_, review)
