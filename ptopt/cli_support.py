"""What the commands share: options, configuration, the stream of files, progress, output."""

from __future__ import annotations

import errno
import functools
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, TypeVar

import click

if TYPE_CHECKING:
    from ptopt.change import ChangedFile
    from ptopt.config import Config
    from ptopt.findings import NotReviewed, Review
    from ptopt.project.facts import ProjectFacts

FORMATS = ("terminal", "concise", "json", "sarif", "github", "gitlab", "rdjson", "markdown")
_STDIN = Path("-")
_MANY = 50  # files from which on progress is shown
_Item = TypeVar("_Item")


@dataclass(frozen=True)
class Settings:
    """What the command line says about the configuration."""

    config: Path | None = None
    select: tuple[str, ...] = ()
    extend_select: tuple[str, ...] = ()
    ignore: tuple[str, ...] = ()
    min_confidence: float | None = None
    all_paths: bool = False
    exit_code: bool = False


@dataclass(frozen=True)
class Stdin:
    """A file that is read from stdin, and the path it goes by."""

    path: Path
    data: bytes


@dataclass(frozen=True)
class ModelChoice:
    """What the command line says about the model. The repository under review has no say in it."""

    name: str | None
    server: str | None
    seconds: float


@dataclass(frozen=True)
class Output:
    """What the command line says about the report."""

    format: str
    file: Path | None
    budget: int | None
    explain: bool
    verbose: bool
    suppressed: bool


def complete_rules(context: click.Context, parameter: click.Parameter, typed: str) -> list[str]:
    """Ids, names and families that begin with the last of the comma-separated rules in `typed`."""
    from ptopt.rules import known_names

    before, comma, last = typed.rpartition(",")
    return [before + comma + name for name in known_names() if name.lower().startswith(last.lower())]


def settings_options(command: Callable[..., None]) -> Callable[..., None]:
    @click.option(
        "--config", type=click.Path(path_type=Path), help="Read this file, not .ptopt.toml or pyproject.toml."
    )
    @click.option(
        "--select", multiple=True, metavar="RULES", shell_complete=complete_rules,
        help="Only these rules, whatever the configuration selects and ignores: ids, names, families, ALL.",
    )  # fmt: skip
    @click.option(
        "--extend-select", multiple=True, metavar="RULES", shell_complete=complete_rules,
        help="These rules besides those that are on.",
    )  # fmt: skip
    @click.option(
        "--ignore", multiple=True, metavar="RULES", shell_complete=complete_rules,
        help="Do not report these rules.",
    )  # fmt: skip
    @click.option(
        "--min-confidence", type=click.FloatRange(0, 1), metavar="P",
        help="Only findings with at least this confidence, from 0 to 1; 0: all that the rules propose.",
    )  # fmt: skip
    @click.option("--all-paths", is_flag=True, help="Review tests, examples, demos and the like too.")
    @click.option("--exit-code", is_flag=True, help="Exit with 1 when there are findings.")
    @functools.wraps(command)
    def wrapped(
        config: Path | None,
        select: Sequence[str],
        extend_select: Sequence[str],
        ignore: Sequence[str],
        min_confidence: float | None,
        all_paths: bool,
        exit_code: bool,
        **rest: Any,
    ) -> None:
        chosen = (_split(select), _split(extend_select), _split(ignore))
        settings = Settings(config, *chosen, min_confidence, all_paths, exit_code)
        with user_errors():
            command(settings=settings, **rest)

    return wrapped


def paths_options(command: Callable[..., None]) -> Callable[..., None]:
    @click.argument("paths", nargs=-1, type=click.Path(path_type=Path))
    @click.option(
        "--stdin-filename", metavar="FILE", type=click.Path(path_type=Path),
        help="The path of the file that `-` reads from stdin.",
    )  # fmt: skip
    @functools.wraps(command)
    def wrapped(paths: Sequence[Path], stdin_filename: Path | None, **rest: Any) -> None:
        if _STDIN in paths:
            if len(paths) > 1:
                raise click.UsageError("- (stdin) cannot be combined with other paths")
            rest["stdin"] = Stdin(stdin_filename or Path("stdin.py"), sys.stdin.buffer.read())
        elif stdin_filename is not None:
            raise click.UsageError("--stdin-filename goes with -, which reads stdin")
        command(paths=paths or (Path("."),), **rest)

    return wrapped


def output_options(command: Callable[..., None]) -> Callable[..., None]:
    @click.option("--format", "format_", type=click.Choice(FORMATS), default="terminal", show_default=True)
    @click.option("--output", type=click.Path(dir_okay=False, path_type=Path), help="Write to this file.")
    @click.option(
        "--budget", type=click.IntRange(min=0), metavar="N",
        help="Show N findings at most.  [default: review: `budget` of the configuration; check: all]",
    )  # fmt: skip
    @click.option(
        "--statistics", is_flag=True, help="Show how many findings each rule has, not the findings."
    )
    @click.option("--explain", is_flag=True, help="Show what determined the confidence of each finding.")
    @click.option(
        "--show-suppressed",
        is_flag=True,
        help="List suppressed findings too; SARIF leaves them out otherwise.",
    )
    @click.option("-v", "--verbose", is_flag=True, help="List each file that was not reviewed.")
    @functools.wraps(command)
    def wrapped(
        format_: str,
        output: Path | None,
        budget: int | None,
        statistics: bool,
        explain: bool,
        show_suppressed: bool,
        verbose: bool,
        **rest: Any,
    ) -> None:
        if statistics and format_ != "terminal":
            raise click.UsageError(f"--statistics cannot be combined with --format {format_}")
        shown = "statistics" if statistics else format_
        command(output=Output(shown, output, budget, explain, verbose, show_suppressed), **rest)

    return wrapped


def model_options(command: Callable[..., None]) -> Callable[..., None]:
    @click.option(
        "--model", metavar="SPEC", envvar="PTOPT_MODEL", show_envvar=True,
        help="Review with this model: an adapter folder, a local or hub model, or a name that --model-server serves.",
    )  # fmt: skip
    @click.option(
        "--model-server", metavar="URL", envvar="PTOPT_MODEL_SERVER", show_envvar=True,
        help="The OpenAI-compatible server that runs it.  [default: in this process]",
    )  # fmt: skip
    @click.option(
        "--model-seconds", metavar="N", type=click.FloatRange(min=0, min_open=True), default=20.0,
        show_default=True, help="Seconds that the review waits for the model.",
    )  # fmt: skip
    @functools.wraps(command)
    def wrapped(model: str | None, model_server: str | None, model_seconds: float, **rest: Any) -> None:
        if model_server is not None and model is None:
            raise click.UsageError("--model-server needs --model, the name of what it serves")
        command(model=ModelChoice(model, model_server, model_seconds), **rest)

    return wrapped


def review_with(
    model: ModelChoice, files: Iterable[ChangedFile | NotReviewed], *, config: Config, facts: ProjectFacts,
    limit_to_change: bool, around: Mapping[str, bytes] = MappingProxyType({}),
    baseline: frozenset[str] = frozenset(),
) -> Review:  # fmt: skip
    """The review, reweighed by a model where one is named. A server that cannot be reached does not stop the review."""
    from ptopt.review import review_files

    review = functools.partial(
        review_files, files, config=config, facts=facts, limit_to_change=limit_to_change, around=around,
        baseline=baseline,
    )  # fmt: skip
    if model.name is None:
        return review()
    from ptopt.model.interface import ModelUnavailableError

    try:
        from ptopt.model.backends.open import open_advisor

        # A server that hangs while the adapter is loaded into it holds the review up, too.
        limits: dict[str, Any] = {} if model.server is None else {"timeout": min(20.0, model.seconds)}
        advisor = open_advisor(model.name, server=model.server, seconds=model.seconds, **limits)
    except ImportError as error:
        extra = "model" if model.server is None else "model-client"
        raise click.ClickException(
            f"--model needs {error.name or 'a package that is not installed'}: pip install 'ptopt[{extra}]'"
        ) from None
    except ModelUnavailableError as error:
        if model.server is None:
            raise click.ClickException(str(error)) from None
        return _without(model.name, str(error), review())
    try:
        if advisor.calibration.silent:
            click.echo(
                "ptopt: warning: the model has no calibration that enables it; reviewing with the rules alone.",
                err=True,
            )
        return review(advisor=advisor)
    finally:
        advisor.close()


def _without(name: str, note: str, review: Review) -> Review:
    import dataclasses

    from ptopt.findings import ModelRecord
    from ptopt.model.prompt import PROMPT_VERSION
    from ptopt.model.schema import SCHEMA_VERSION

    return dataclasses.replace(review, model=ModelRecord(name, "", PROMPT_VERSION, SCHEMA_VERSION, note=note))


def _split(values: Sequence[str]) -> tuple[str, ...]:
    return tuple(part.strip() for value in values for part in value.split(",") if part.strip())


@contextmanager
def user_errors() -> Iterator[None]:
    """Report what the user can fix as an error without a traceback."""
    from ptopt.baseline import BaselineError
    from ptopt.change import ChangeError
    from ptopt.config import ConfigError
    from ptopt.inputs import CheckoutError
    from ptopt.ranker.model import WeightsError
    from ptopt.report.text import visible

    try:
        yield
    except (BaselineError, CheckoutError, ChangeError, ConfigError, WeightsError) as error:
        raise click.ClickException(visible(str(error), keep="\n")) from None
    except OSError as error:
        if error.errno == errno.EPIPE:
            raise
        raise click.ClickException(visible(f"{error.filename or 'input'}: {error.strerror}")) from None


def load(root: Path, settings: Settings) -> tuple[Config, ProjectFacts]:
    """The configuration, overridden by the command line, and the facts of the project at `root`."""
    from ptopt.config import OWN_FILE, PROJECT_FILE
    from ptopt.inputs import project_files
    from ptopt.project.facts import FACT_FILES, read_facts
    from ptopt.rules import known_names

    files = project_files(root, [OWN_FILE, PROJECT_FILE, *FACT_FILES])
    known = known_names()
    config = _config_in(files, known) if settings.config is None else _config_from(settings.config, known)
    select, more, ignore = (
        tuple(known_rule(text, known) for text in texts)
        for texts in (settings.select, settings.extend_select, settings.ignore)
    )
    update: dict[str, object] = {
        "extend_select": (*config.extend_select, *more),
        "ignore": (*config.ignore, *ignore),
    }
    if select:
        update |= {"select": select, "extend_select": more, "ignore": ignore}
    if settings.min_confidence is not None:
        update["min_confidence"] = settings.min_confidence
    if settings.all_paths:
        update["skip"] = ()
    return config.model_copy(update=update), read_facts({n: c for n, c in files.items() if n in FACT_FILES})


def _config_in(files: Mapping[str, bytes], known: Mapping[str, str]) -> Config:
    from ptopt.config import OWN_FILE, PROJECT_FILE, load_config

    return load_config({name: files[name] for name in (OWN_FILE, PROJECT_FILE) if name in files}, known)


def _config_from(path: Path, known: Mapping[str, str]) -> Config:
    from ptopt.config import OWN_FILE, PROJECT_FILE, ConfigError, load_config

    name = PROJECT_FILE if path.name == PROJECT_FILE else OWN_FILE
    try:
        return load_config({name: path.read_bytes()}, known)
    except ConfigError as error:
        raise ConfigError(p.replace(name, str(path), 1) for p in error.problems) from None


def known_rule(text: str, known: Mapping[str, str]) -> str:
    from ptopt.config import ALL
    from ptopt.report.text import visible

    for name in (*known, ALL):
        if name.lower() == text.lower():
            return name
    raise click.ClickException(f"unknown rule {visible(text)!r}{nearest(text, known)}")


def nearest(text: str, known: Iterable[str]) -> str:
    """What the user may have meant, to stand behind the name of no rule."""
    from ptopt.report.text import did_you_mean

    return did_you_mean(text, known) or "; `ptopt rules` lists them"


def stream(
    paths: Sequence[Path], settings: Settings, stdin: Stdin | None = None
) -> tuple[Path, Iterator[ChangedFile | NotReviewed], Config, ProjectFacts, list[NotReviewed]]:
    """The root, and the files under `paths`; the list fills with those that the configuration leaves out.

    With `stdin`, that is the one file.
    """
    from ptopt.findings import NotReviewed
    from ptopt.inputs import change_from_paths, file_from_bytes

    root = root_of(paths[0] if stdin is None else _folder_above(stdin.path))
    config, facts = load(root, settings)
    skipped: list[NotReviewed] = []

    def wants(path: str) -> bool:
        reason = config.why_skipped(path)
        if reason is not None:
            skipped.append(NotReviewed(path, reason))
        return reason is None

    def chosen() -> Iterator[ChangedFile | NotReviewed]:
        for item in files:
            if isinstance(
                item, NotReviewed
            ):  # a review passes over what is no Python; here the user named it
                skipped.append(item)
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


def report(result: Review, output: Output, settings: Settings, root: Path) -> None:
    """Write the review. `root` is where its paths start; people and editors see them from the current folder on."""
    from ptopt.report import render

    if output.format in ("terminal", "concise"):
        result = _from_here(result, root)
    how: dict[str, Any] = {
        "explain": output.explain, "verbose": output.verbose, "suppressed": output.suppressed
    }  # fmt: skip
    if output.file is not None:
        text = render(output.format, result, **how)
        output.file.write_bytes(text.encode("utf-8", "backslashreplace"))
    else:
        write(render(output.format, result, width=width(), color=colored(), **how))
    if settings.exit_code and (result.findings or result.over_limit):
        click.get_current_context().exit(1)


def path_from_here(root: Path) -> Callable[[str], str]:
    """How a path below `root` is shown: relative to the current folder where that is inside `root`."""
    top, here = os.path.realpath(root), os.path.realpath(".")
    if top == here or not Path(here).is_relative_to(top):
        return lambda path: path
    return lambda path: (
        path if os.path.isabs(path) else os.path.relpath(os.path.join(top, path), here).replace(os.sep, "/")
    )


def _from_here(review: Review, root: Path) -> Review:
    import dataclasses

    shown = path_from_here(root)
    listed = ("findings", "over_limit", "suppressed", "in_baseline", "not_reviewed", "unused_suppressions")
    changes: dict[str, Any] = {
        name: tuple(dataclasses.replace(item, path=shown(item.path)) for item in getattr(review, name))
        for name in listed
    }
    changes |= {
        name: {shown(p): v for p, v in (getattr(review, name) or {}).items()} for name in ("sources", "cells")
    }
    return dataclasses.replace(review, **changes)


def width() -> int:
    import shutil

    return shutil.get_terminal_size((100, 24)).columns


def colored() -> bool:
    return sys.stdout.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def write(text: str) -> None:
    """Write to stdout what its encoding can say, and the rest as escapes."""
    encoding = sys.stdout.encoding or "utf-8"
    click.echo(text.encode(encoding, "backslashreplace").decode(encoding), nl=False, color=colored())
