"""The options that several commands share, and what they come to."""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from ptopt.cli.group import user_errors

FORMATS = ("terminal", "concise", "json", "sarif", "github", "gitlab", "rdjson", "markdown")
_EXPLAINED = ("terminal", "json")  # they show what a finding was weighed by; JSON always
_STDIN = Path("-")


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
    force_exclude: bool = False

    def arguments(self) -> list[str]:
        """What says the same to another command, but for `--exit-code`."""
        said = [] if self.config is None else ["--config", str(self.config)]
        for option, rules in (
            ("--select", self.select),
            ("--extend-select", self.extend_select),
            ("--ignore", self.ignore),
        ):
            said += [option, ",".join(rules)] if rules else []
        if self.min_confidence is not None:
            said += ["--min-confidence", f"{self.min_confidence:g}"]
        said += ["--all-paths"] if self.all_paths else []
        return [*said, *(["--force-exclude"] if self.force_exclude else [])]


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
    quiet: bool


class NewFile(click.Path):
    """A file to write. That it cannot be written is said before the work, not after it."""

    def __init__(self) -> None:
        super().__init__(dir_okay=False, path_type=Path)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        path = Path(os.fsdecode(super().convert(value, param, ctx)))
        folder = path.parent
        if not folder.is_dir():
            self.fail(f"the folder {str(folder)!r} does not exist.", param, ctx)
        if not os.access(path if path.exists() else folder, os.W_OK):
            self.fail(f"{str(path)!r} cannot be written: permission denied.", param, ctx)
        return path


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
        help="Only these rules, whatever the configuration selects and ignores (its per-path-ignores stay): ids, starts "
        "of ids (PTO1), names, families, ALL. Of a rule that is named by itself all findings are shown, unless "
        "--min-confidence says otherwise.",
    )  # fmt: skip
    @click.option(
        "--extend-select", multiple=True, metavar="RULES", shell_complete=complete_rules,
        help="These rules besides those that are on, named and shown as with --select.",
    )  # fmt: skip
    @click.option(
        "--ignore", multiple=True, metavar="RULES", shell_complete=complete_rules,
        help="Do not report these rules.",
    )  # fmt: skip
    @click.option(
        "--min-confidence", type=click.FloatRange(0, 1), metavar="P",
        help="Findings with at least this confidence, from 0 to 1; 0: all that the rules propose.",
    )  # fmt: skip
    @click.option("--all-paths", is_flag=True, help="Review tests, examples, demos and the like too.")
    @click.option(
        "--exit-code", is_flag=True,
        help="Exit with 1 when there are findings (in an audit: critical or moderate ones), or files that do not parse.",
    )  # fmt: skip
    @functools.wraps(command)
    def wrapped(
        config: Path | None,
        select: Sequence[str],
        extend_select: Sequence[str],
        ignore: Sequence[str],
        min_confidence: float | None,
        all_paths: bool,
        exit_code: bool,
        force_exclude: bool = False,
        **rest: Any,
    ) -> None:
        chosen = (_split(select), _split(extend_select), _split(ignore))
        settings = Settings(config, *chosen, min_confidence, all_paths, exit_code, force_exclude)
        with user_errors():
            command(settings=settings, **rest)

    return wrapped


def paths_options(command: Callable[..., None]) -> Callable[..., None]:
    @click.argument("paths", nargs=-1, type=click.Path(path_type=Path))
    @click.option(
        "--stdin-filename", metavar="FILE", type=click.Path(path_type=Path),
        help="The path of the file that `-` reads from stdin.",
    )  # fmt: skip
    @click.option(
        "--force-exclude", is_flag=True,
        help="Skip tests, examples, demos and the like also where PATHS names them, as pre-commit does.",
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


def baseline_option(text: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """The option of a command that takes a baseline; `text` says what becomes of what the file lists."""
    return click.option("--baseline", metavar="FILE", type=click.Path(path_type=Path), help=text)


def output_options(command: Callable[..., None]) -> Callable[..., None]:
    @click.option("--format", "format_", type=click.Choice(FORMATS), default="terminal", show_default=True)
    @click.option("--output", type=NewFile(), help="Write to this file.")
    @click.option(
        "--budget", type=click.IntRange(min=0), metavar="N",
        help="Show the N best findings at most.  [default: review: `budget` of the configuration; check: all]",
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
    @click.option(
        "-v",
        "--verbose",
        is_flag=True,
        help="List the files that were reviewed, and those that were not; say why places are left out.",
    )
    @click.option(
        "-q", "--quiet", is_flag=True,
        help="Only the findings, and nothing about what was left out, on the terminal.",
    )  # fmt: skip
    @functools.wraps(command)
    def wrapped(
        format_: str,
        output: Path | None,
        budget: int | None,
        statistics: bool,
        explain: bool,
        show_suppressed: bool,
        verbose: bool,
        quiet: bool,
        **rest: Any,
    ) -> None:
        if quiet and verbose:
            raise click.UsageError("--quiet cannot be combined with --verbose")
        if statistics and format_ != "terminal":
            raise click.UsageError(f"--statistics cannot be combined with --format {format_}")
        if explain and (statistics or format_ not in _EXPLAINED):
            other = "--statistics" if statistics else f"--format {format_}"
            raise click.UsageError(f"--explain cannot be combined with {other}")
        shown = "statistics" if statistics else format_
        command(output=Output(shown, output, budget, explain, verbose, show_suppressed, quiet), **rest)

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


def _split(values: Sequence[str]) -> tuple[str, ...]:
    return tuple(part.strip() for value in values for part in value.split(",") if part.strip())
