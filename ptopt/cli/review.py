"""`ptopt review`."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ptopt.cli.files import progress
from ptopt.cli.model import review_with
from ptopt.cli.options import (
    ModelChoice,
    Output,
    Settings,
    baseline_option,
    model_options,
    output_options,
    settings_options,
)
from ptopt.cli.output import report
from ptopt.cli.profile import Kept, profile_option, runs_in, weighed_with
from ptopt.cli.settings import load

if TYPE_CHECKING:
    from ptopt.change import ChangedFile
    from ptopt.findings import NotReviewed


class _Review(click.Command):
    """What looks like a range of git is no argument: the error names the two options instead."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        try:
            return super().parse_args(ctx, list(args))
        except click.UsageError as error:
            for given in args:
                base, dots, head = given.partition(".." if "..." not in given else "...")
                if (
                    dots
                    and base
                    and not given.startswith(("-", ".", "/"))
                    and "unexpected extra" in str(error)
                ):
                    sides = f"--base {base}" + (f" --head {head}" if head else "")
                    raise click.UsageError(f"{given} is a range; write {sides}", ctx) from None
            if "unexpected extra" in str(error):
                raise click.UsageError(
                    f"{error.format_message().rstrip('.')}: a review takes no paths; `ptopt check` reviews files",
                    ctx,
                ) from None
            raise


@click.command(cls=_Review)
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
@baseline_option("Report only what this file does not list: see `ptopt check --write-baseline`.")
@profile_option
@output_options
@model_options
@settings_options
def review(
    base: str | None,
    head: str | None,
    diff: Any,
    tree: Path | None,
    repo: Path,
    baseline: Path | None,
    profiles: Sequence[Path],
    output: Output,
    model: ModelChoice,
    settings: Settings,
) -> None:
    """Review a change: a branch of a git checkout, or a patch.

    With --head nothing is read from the working tree: settings are those of the base, as on GitHub.
    """
    from ptopt.baseline import read_baseline
    from ptopt.inputs import change_between, change_from_patch, default_base, repository_root

    known = read_baseline(baseline)
    if (diff is None) != (tree is None):
        raise click.UsageError("--diff FILE and --tree DIR go together")
    if diff is not None and tree is not None:
        if base is not None or head is not None:
            raise click.UsageError("--diff cannot be combined with --base and --head")
        patch = diff.read()
        if not patch.strip():
            name = getattr(diff, "name", "<stdin>")
            raise click.ClickException(f"{name}: the patch is empty; `git diff main...HEAD` makes one")
        change, root = change_from_patch(patch, tree), tree
    else:
        base = default_base(repo) if base is None else base
        change, root = change_between(repo, base, head), repository_root(repo)
    config, facts = load(root, settings, None if base is None or head is None else (base, head))
    if output.budget is not None:
        config = config.model_copy(update={"budget": output.budget})
    files: list[ChangedFile | NotReviewed] = [*change.files, *change.not_reviewed]
    runs = runs_in(profiles, (file.path for file in files))
    kept = Kept(runs)
    seen = kept(progress(files, len(files)))
    how: dict[str, Any] = {
        "facts": facts, "limit_to_change": True, "around": change.around, "baseline": known,
    }  # fmt: skip
    result = review_with(model, seen, config=config, **how)
    result = weighed_with(runs, kept, result, config.budget, config, **how)
    same = ["--base", base] if base is not None and head is None else []
    same += [] if baseline is None else ["--baseline", str(baseline)]
    report(dataclasses.replace(result, compared=change.compared), output, settings, root, same)
