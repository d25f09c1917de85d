"""The `ptopt` command. Everything but click is imported where it is used: `ptopt --version` must be quick."""

from __future__ import annotations

import dataclasses
import errno
import functools
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ptopt import __version__
from ptopt.cli_support import (
    ModelChoice,
    Output,
    Settings,
    Stdin,
    colored,
    load,
    model_options,
    nearest,
    output_options,
    path_from_here,
    paths_options,
    progress,
    report,
    review_with,
    root_of,
    settings_options,
    stream,
    user_errors,
    width,
    write,
)

if TYPE_CHECKING:
    from ptopt.change import ChangedFile
    from ptopt.config import Config
    from ptopt.findings import Finding, NotReviewed, Review
    from ptopt.fixes import FixedFile


class _Group(click.Group):
    """Errors are one line each on stderr, and exit 2; so is nothing but errors."""

    def main(self, *args: Any, **extra: Any) -> Any:
        standalone = extra.pop("standalone_mode", True)
        extra["standalone_mode"] = False
        if not standalone:
            return super().main(*args, **extra)
        try:
            code = super().main(*args, **extra)
        except click.UsageError as error:
            text = " ".join(error.format_message().split())
            where = error.ctx.command_path if error.ctx is not None else "ptopt"
            click.echo(f"ptopt: error: {text.rstrip('.')}; see `{where} --help`", err=True)
            code = 2
        except click.ClickException as error:
            for line in error.format_message().splitlines():
                click.echo(f"ptopt: error: {line}", err=True)
            code = 2
        except RuntimeError as error:
            from ptopt.rules import RulePackageError

            if not isinstance(error, RulePackageError):
                raise
            click.echo(f"ptopt: error: {error}", err=True)
            code = 2
        except (click.Abort, KeyboardInterrupt):
            code = 130
        except OSError as error:
            if error.errno != errno.EPIPE:
                raise
            sys.stdout = open(os.devnull, "w")  # noqa: SIM115 - the reader is gone; Python flushes at exit
            code = 1
        sys.exit(code if isinstance(code, int) else 0)


@click.group(
    "ptopt", cls=_Group, invoke_without_command=True, context_settings={"help_option_names": ["-h", "--help"]}
)
@click.version_option(__version__, message="ptopt %(version)s")
@click.pass_context
def main(context: click.Context) -> None:
    """Find the PyTorch code that makes training or inference slow.

    Exit status: 0, or 1 with --exit-code when there are findings, or 2 on an error.
    """
    if context.invoked_subcommand is None:
        click.echo(context.get_help())


@main.command()
@click.option(
    "--base", metavar="REV",
    help="The branch to merge into.  [default: the default branch of origin, else main or master]",
)  # fmt: skip
@click.option(
    "--head", metavar="REV", help="The branch.  [default: the working tree, with files not tracked yet]"
)
@click.option(
    "--diff", metavar="FILE", type=click.File("rb"), help="Review this patch; - reads it from stdin."
)
@click.option(
    "--tree", metavar="DIR", type=click.Path(path_type=Path), help="The folder of the patched files."
)
@click.option("--repo", metavar="DIR", type=click.Path(path_type=Path), default=".", help="A git checkout.")
@output_options
@model_options
@settings_options
def review(
    base: str | None,
    head: str | None,
    diff: Any,
    tree: Path | None,
    repo: Path,
    output: Output,
    model: ModelChoice,
    settings: Settings,
) -> None:
    """Review a change: a branch of a git checkout, or a patch."""
    from ptopt.inputs import change_between, change_from_patch, comparison, default_base, repository_root

    if (diff is None) != (tree is None):
        raise click.UsageError("--diff FILE and --tree DIR go together")
    compared = ""
    if diff is not None and tree is not None:
        if base is not None or head is not None:
            raise click.UsageError("--diff cannot be combined with --base and --head")
        change, root = change_from_patch(diff.read(), tree), tree
    else:
        base = default_base(repo) if base is None else base
        change, root = change_between(repo, base, head), repository_root(repo)
        compared = comparison(root, base, head)
    config, facts = load(root, settings)
    if output.budget is not None:
        config = config.model_copy(update={"budget": output.budget})
    files: list[ChangedFile | NotReviewed] = [*change.files, *change.not_reviewed]
    seen = progress(files, len(files))
    result = review_with(model, seen, config=config, facts=facts, limit_to_change=True, around=change.around)
    report(dataclasses.replace(result, compared=compared), output, settings, root)


@main.command()
@paths_options
@click.option(
    "--baseline", metavar="FILE", type=click.Path(path_type=Path),
    help="Report what this file does not list.",
)  # fmt: skip
@click.option(
    "--write-baseline", metavar="FILE", type=click.Path(path_type=Path, dir_okay=False),
    help="Write what is found to this file, for --baseline.",
)  # fmt: skip
@click.option(
    "--add-suppressions", is_flag=True, help="Write a comment that suppresses it above each finding."
)
@output_options
@model_options
@settings_options
def check(
    paths: Sequence[Path],
    baseline: Path | None,
    write_baseline: Path | None,
    add_suppressions: bool,
    output: Output,
    model: ModelChoice,
    settings: Settings,
    stdin: Stdin | None = None,
) -> None:
    """Review whole files and folders.

    Without PATHS it is the current folder; - reads a file from stdin.
    """
    from ptopt.baseline import read_baseline

    if write_baseline is not None and baseline is not None:
        raise click.UsageError("--write-baseline cannot be combined with --baseline")
    known = frozenset[str]() if baseline is None else read_baseline(baseline)
    if stdin is not None and (add_suppressions or write_baseline is not None):
        raise click.UsageError("--write-baseline and --add-suppressions need files, not stdin")
    if write_baseline is not None:
        _write_baseline(paths, write_baseline, settings)
        return
    if add_suppressions:
        _add_suppressions(paths, known, settings)
        return
    root, files, config, facts, skipped = stream(paths, settings, stdin)
    result = review_with(
        model,
        progress(files, None),
        config=config,
        facts=facts,
        limit_to_change=False,
        baseline=known,
    )
    shown = len(result.findings) if output.budget is None else output.budget
    result = dataclasses.replace(
        result,
        findings=result.findings[:shown],
        over_limit=(*result.findings[shown:], *result.over_limit),
        not_reviewed=tuple(sorted({*result.not_reviewed, *skipped})),
    )
    report(result, output, settings, root)


def _write_baseline(paths: Sequence[Path], place: Path, settings: Settings) -> None:
    from ptopt.baseline import as_baseline
    from ptopt.report.text import count
    from ptopt.review import review_files

    _, files, config, facts, _ = stream(paths, settings)
    found = review_files(
        progress(files, None), config=config, facts=facts, limit_to_change=False, one_per_cause=False
    ).findings
    place.write_text(as_baseline(found), encoding="utf-8")
    click.echo(
        f"{count(len(found), 'place')} written to {place}; `ptopt check --baseline {place}` reports new ones."
    )


def _add_suppressions(paths: Sequence[Path], baseline: frozenset[str], settings: Settings) -> None:
    """Each place gets a comment, and the files are reviewed again: what is left is reported as such."""
    from ptopt.findings import NotReviewed
    from ptopt.fixes import suppress_file
    from ptopt.report.text import count
    from ptopt.review import review_files

    root, files, config, facts, _ = stream(paths, settings)
    review = functools.partial(
        review_files,
        config=config,
        facts=facts,
        limit_to_change=False,
        one_per_cause=False,
        baseline=baseline,
    )
    done: list[FixedFile] = []
    left = 0
    for file in progress(files, None):
        if isinstance(file, NotReviewed):
            continue
        result = suppress_file(file, lambda one: review([one]))
        left += len(result.left)
        if result.fixed:
            done.append(result)
            _write_to(root, result)
            write(_fixed_rules(result, path_from_here(root)))
    places = sum(len(result.fixed) for result in done)
    rest = f"; {count(left, 'place')} left, where a comment cannot stand" if left else ""
    click.echo(f"Suppressed {count(places, 'place')} in {count(len(done), 'file')}{rest}.")


# -- fix ---------------------------------------------------------------------------------------------------------


@main.command()
@paths_options
@click.option("--unsafe", is_flag=True, help="Also apply fixes that rest on a stated assumption.")
@click.option("--diff", is_flag=True, help="Print the changes as a diff without writing them.")
@settings_options
def fix(
    paths: Sequence[Path], unsafe: bool, diff: bool, settings: Settings, stdin: Stdin | None = None
) -> None:
    """Apply the fixes that do not change behaviour.

    Without PATHS it is the current folder; - reads a file from stdin and writes it to stdout.
    """
    from ptopt.change import whole_file
    from ptopt.findings import NotReviewed, Safety
    from ptopt.fixes import fix_file
    from ptopt.report.text import count, counted
    from ptopt.review import review_files

    root, files, config, facts, _ = stream(paths, settings, stdin)
    lost: set[str] = set()

    def review_one(file: ChangedFile, one_per_cause: bool = False) -> Review:
        found = review_files(
            [file], config=config, facts=facts, limit_to_change=False, one_per_cause=one_per_cause
        )
        lost.update(item.path for item in found.not_reviewed)
        return found

    results: list[FixedFile] = []
    left: list[Finding] = []
    after = b"" if stdin is None else stdin.data
    for file in progress(files, None):
        if isinstance(file, NotReviewed):
            lost.add(file.path)
            continue
        result = fix_file(file, review_one, unsafe=unsafe)
        if result.left:  # counted as `check` counts
            left += review_one(whole_file(file.path, result.after), True).findings
        if stdin is not None:
            after = result.after
        if not result.fixed:
            continue
        results.append(dataclasses.replace(result, before=b"", after=b""))
        if diff:
            _write_diff(result)
        elif stdin is None:
            _write_to(root, result)
            write(_fixed_rules(result, path_from_here(root)))
    if stdin is not None and not diff:
        click.echo(after, nl=False)
    places = sum(len(result.fixed) for result in results)
    fixed = sum(len({finding.rule for finding in result.fixed}) for result in results)
    at = f" at {places:,} places" if places > fixed else ""
    done = (
        f"{'Would fix' if diff else 'Fixed'} {count(fixed, 'finding')}{at} in {count(len(results), 'file')}"
    )
    if not fixed:
        done = "Nothing to fix"
    rest = [f"{counted(left)} left"] if left else []
    assuming = sum(1 for finding in left if finding.fix is not None and finding.fix.safety is Safety.UNSAFE)
    rest += [f"{assuming:,} with an unsafe fix (`--unsafe`)"] if assuming and not unsafe else []
    rest += [f"{count(len(lost), 'file')} not reviewed"] if lost else []
    click.echo(
        f"{done}{'; ' if rest else ''}{', '.join(rest)}{', see `ptopt check`' if rest else ''}.",
        err=diff or stdin is not None,
    )
    if settings.exit_code and (fixed or left):
        click.get_current_context().exit(1)


def _write_to(root: Path, result: FixedFile) -> None:
    from ptopt.fixes import FileChangedError, write_fixed

    try:
        write_fixed(root / result.path, result)
    except FileChangedError as error:
        raise click.ClickException(str(error)) from None


def _fixed_rules(result: FixedFile, shown: Callable[[str], str]) -> str:
    from collections import Counter

    from ptopt.report.text import visible

    tally = Counter((finding.rule, finding.name) for finding in result.fixed)
    fixes = ", ".join(f"{number} × {rule} {name}" for (rule, name), number in sorted(tally.items()))
    return f"{visible(shown(result.path))}: {fixes}\n"


def _write_diff(result: FixedFile) -> None:
    """A patch in the bytes of the file; on a terminal in colour, with control characters as escapes."""
    import difflib

    from ptopt.report.text import visible
    from ptopt.source.decode import decode_python

    before, after = (f"{side}/{result.path}".encode() for side in "ab")
    old, new = _lines(result.before), _lines(result.after)
    lines = [
        line if line.endswith(b"\n") else line + b"\n\\ No newline at end of file\n"
        for line in difflib.diff_bytes(difflib.unified_diff, old, new, before, after)
    ]
    if not sys.stdout.isatty():
        click.echo(b"".join(lines), nl=False)
        return
    encoding = decode_python(result.before)[1].removesuffix("-sig")
    for line in lines:
        text = visible(line.decode(encoding, "replace"), keep="\n\t")
        color = {"+": "green", "-": "red", "@": "cyan"}.get(text[0])
        write(click.style(text, fg=color) if colored() and color else text)


def _lines(data: bytes) -> list[bytes]:
    return [line + b"\n" for line in data.split(b"\n")[:-1]] + [
        last for last in data.split(b"\n")[-1:] if last
    ]


# -- rules, configuration, completion ----------------------------------------------------------------------------


def _complete_rule(context: click.Context, parameter: click.Parameter, typed: str) -> list[str]:
    from ptopt.rules import all_rules

    names = [name for rule in all_rules() for name in (rule.id, rule.name)]
    return [name for name in names if name.lower().startswith(typed.lower())]


@main.command()
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


@main.command()
@click.argument("rule", shell_complete=_complete_rule)
def explain(rule: str) -> None:
    """Show the documentation of a rule, by its id or name."""
    from ptopt.report.rulelist import page
    from ptopt.report.text import visible
    from ptopt.rules import all_rules, find_rule, known_names

    found = find_rule(rule)
    if found is None and known_names().get(rule.strip().lower()) == "family":
        raise click.ClickException(f"{visible(rule)!r} is a family; `ptopt rules` lists the rules of each")
    if found is None:
        names = [name for known in all_rules() for name in (known.id, known.name)]
        raise click.ClickException(f"unknown rule {visible(rule)!r}{nearest(rule, names)}")
    if not sys.stdout.isatty():
        write(page(found))
        return
    from rich.console import Console
    from rich.markdown import Markdown

    Console(no_color=not colored()).print(Markdown(page(found)))


@main.group(invoke_without_command=True)
@click.pass_context
def config(context: click.Context) -> None:
    """Inspect the configuration."""
    if context.invoked_subcommand is None:
        click.echo(context.get_help())


@config.command()
def schema() -> None:
    """Print the JSON schema of .ptopt.toml."""
    import json

    from ptopt.config import config_schema

    write(json.dumps(config_schema(), indent=2) + "\n")


@config.command("check")
@click.argument("path", type=click.Path(path_type=Path), default=".")
def config_check(path: Path) -> None:
    """Check the configuration of a folder, or one file."""
    loaded = _configuration(path)
    click.echo(
        f"{loaded.origin}: no problems" if loaded.origin else "No configuration file; the defaults apply"
    )


@config.command()
@click.argument("path", type=click.Path(path_type=Path), default=".")
def show(path: Path) -> None:
    """Print the effective settings of a folder, or those of one file."""
    from ptopt.report.settings import as_toml
    from ptopt.report.text import visible
    from ptopt.rules import all_rules

    loaded = _configuration(path)
    known = all_rules()
    on = sum(loaded.enabled(*rule.keys(), rule.default, "") for rule in known)
    write(
        f"# {visible(loaded.origin) or 'No configuration file; the defaults apply'}; {on} of {len(known)} rules are on\n"
    )
    write(visible(as_toml(loaded), keep="\n"))


def _configuration(path: Path) -> Config:
    with user_errors():
        if not path.exists():
            raise click.ClickException(f"{path}: no such file or folder")
        if path.is_file():
            return load(path.parent, Settings(config=path))[0]
        return load(root_of(path), Settings())[0]


@main.command()
@click.argument("shell", type=click.Choice(("bash", "zsh", "fish")))
def completion(shell: str) -> None:
    """Print the completion script for a shell.

    Put `eval "$(ptopt completion bash)"` into its start file.
    """
    from click.shell_completion import get_completion_class

    found = get_completion_class(shell)
    if found is None:
        raise click.ClickException(f"no completion for {shell}")
    write(found(main, {}, "ptopt", "_PTOPT_COMPLETE").source().strip() + "\n")


if __name__ == "__main__":
    main(prog_name="ptopt")
