"""Command line of the training side: `python -m training --help`."""

from __future__ import annotations

import datetime
import json
import os
from collections.abc import Mapping
from pathlib import Path

import click

from training.demo import demo
from training.evaluation.ablation_cli import ablation
from training.evaluation.cli import evaluate
from training.evaluation.cost import cost
from training.evaluation.general_cli import calibrate
from training.feedback.cli import feedback
from training.recipes.cli import bottleneck, kto, sft
from training.registry_cli import registry


def _cache() -> Path:
    home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(home) / "ptopt" / "training"


class _Commands(click.Group):
    """With `sources`, `ranker` and `retrain` where what they need is installed: a worker's machine has the registry
    without it."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted([*super().list_commands(ctx), "ranker", "retrain", "sources"])

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name == "ranker":
            try:
                from training.ranker.cli import ranker
            except ModuleNotFoundError:
                return None
            return ranker
        if cmd_name == "retrain":
            try:
                from training.retrain.cli import retrain
            except ModuleNotFoundError as error:
                return _missing("retrain", f"{error.name} is missing: pip install '.[retraining]'")
            return retrain
        if cmd_name != "sources":
            return super().get_command(ctx, cmd_name)
        try:
            from training.sources.cli import sources_commands
        except ModuleNotFoundError:
            return None
        return sources_commands()


def _missing(name: str, why: str) -> click.Command:
    """A command that says why it is not there."""

    def fail(**_: object) -> None:
        raise click.ClickException(why)

    anything = {"ignore_unknown_options": True, "allow_extra_args": True}
    return click.Command(name, callback=fail, help=f"Not available: {why}", context_settings=anything)


@click.group(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"]})
def main() -> None:
    """Data, fine-tuning and evaluation of the model."""


@main.group()
def data() -> None:
    """Build a dataset, and look at one."""


@data.command()
@click.option("--preset", type=click.Choice(["demo", "full"]), default="demo", show_default=True)
@click.option(
    "--out",
    type=click.Path(path_type=Path, file_okay=False),
    help="Folder for the dataset [default: data/PRESET].",
)
@click.option("--seed", type=int, default=0, show_default=True)
@click.option(
    "--workers", type=click.IntRange(1), default=os.cpu_count() or 1, show_default="the number of CPUs"
)
@click.option(
    "--against", multiple=True, type=click.Path(path_type=Path, exists=True),
    help="Evaluation cases that must not be learned from: a folder, or JSON lines.",
)  # fmt: skip
@click.option(
    "--samples", "extra", multiple=True, type=click.Path(path_type=Path, exists=True),
    help="More samples, as JSON lines, from other sources.",
)  # fmt: skip
@click.option(
    "--execute/--no-execute", default=True, show_default=True, help="Run the rules' benchmarks in a sandbox."
)
@click.option(
    "--cache", "cache_folder", type=click.Path(path_type=Path, file_okay=False), help="Where stages are kept."
)
def build(
    preset: str, out: Path | None, seed: int, workers: int, against: tuple[Path, ...], extra: tuple[Path, ...],
    cache_folder: Path | None,
    execute: bool,
) -> None:  # fmt: skip
    """Build the dataset. A build that was stopped goes on where it was."""
    from training.dataset import build as builder
    from training.dataset.files import write
    from training.progress import show_progress

    chosen = builder.PRESETS[preset]
    folder = out or Path("data", preset)
    with show_progress() as progress:
        built = builder.build(
            chosen,
            cache_folder or _cache(),
            seed=seed,
            workers=workers,
            against=against,
            extra=extra,
            execute=execute,
            progress=progress,
        )
        options = "".join(f" --against {place.name}" for place in against)
        command = f"python -m training data build --preset {preset} --seed {seed}{options}"
        day = datetime.datetime.now(datetime.timezone.utc).date().isoformat()
        info = write(folder, built, chosen, seed, command, day)
    for package, why in sorted(built.refused.items()):
        click.echo(f"left out: {package}: {why}", err=True)
    click.echo(f"{folder}: {_counts(info['counts']['rows'])} rows, hash {info['hash'][:16]}")
    short = [s for s, rows in built.splits.items() if len(rows) < chosen.sizes.of(s)]
    if short:
        raise click.ClickException(f"too few samples for {', '.join(short)}: more packages are needed")


_LABELS = click.argument(
    "files", nargs=-1, required=True, type=click.Path(path_type=Path, exists=True, dir_okay=False)
)
_CLONES = click.option(
    "--clones", type=click.Path(path_type=Path, exists=True, file_okay=False), required=True,
    help="Folder of git clones, as OWNER/NAME or OWNER+NAME.",
)  # fmt: skip
_OUT = click.option("--out", type=click.Path(path_type=Path, dir_okay=False), required=True)


@data.command()
@_LABELS
@_CLONES
@_OUT
@click.option("--opt-in", "opted_in", multiple=True, metavar="LICENCE", help="A further licence to train on.")
def verdicts(files: tuple[Path, ...], clones: Path, out: Path, opted_in: tuple[str, ...]) -> None:
    """Make samples of a judge from verdicts on comments; FILES are work.jsonl and calibrate.jsonl."""
    from training.dataset.verdicts import judged_samples
    from training.progress import show_progress

    try:
        with show_progress() as progress:
            made = judged_samples(files, clones, opted_in, progress)
    except ValueError as error:
        raise click.ClickException(str(error)) from None
    _left_out(made.left_out)
    out.write_text("".join(f"{sample.to_json()}\n" for sample in made.samples), encoding="utf-8")
    yes = sum(len(sample.positives) for sample in made.samples)
    no = sum(len(sample.negatives) for sample in made.samples)
    click.echo(f"{out}: {len(made.samples):,} functions, {yes:,} yes, {no:,} no")


@data.command("held-out")
@_LABELS
@_CLONES
@_OUT
def held_out(files: tuple[Path, ...], clones: Path, out: Path) -> None:
    """Write the code that FILES of labels and verdicts speak of, for `build --against`."""
    from training.dataset.verdicts import held_out_texts
    from training.progress import show_progress

    try:
        with show_progress() as progress:
            made = held_out_texts(files, clones, progress)
    except ValueError as error:
        raise click.ClickException(str(error)) from None
    _left_out(made.left_out)
    out.write_text("".join(json.dumps({"text": text}) + "\n" for text in made.texts), encoding="utf-8")
    click.echo(f"{out}: {len(made.texts):,} functions")


def _left_out(reasons: Mapping[str, int]) -> None:
    for reason, number in sorted(reasons.items()):
        if number:
            click.echo(f"left out: {number:,}: {reason}", err=True)


@data.command()
@click.argument("folder", type=click.Path(path_type=Path, file_okay=False))
def show(folder: Path) -> None:
    """Show what a dataset holds, and one row of each table."""
    from datasets import disable_progress_bars

    from training.dataset.files import NAMES, load, read_info

    try:
        info = read_info(folder)
    except FileNotFoundError as error:
        raise click.ClickException(str(error)) from None
    click.echo(f"{folder}: preset {info['preset']}, seed {info['seed']}, hash {info['hash'][:16]}")
    for name in NAMES:
        click.echo(f"{name}: {_counts(info['counts'][name])}")
    disable_progress_bars()
    for name in NAMES:
        row = load(folder, name, "train")[0]
        click.echo(f"\n--- {name}\n{row['instruction']}\n\n{row['input']}\n\n{row['output']}")


@data.command()
@click.argument("folder", type=click.Path(path_type=Path, file_okay=False))
@click.option("--out", type=click.Path(path_type=Path, file_okay=False), required=True)
@click.option("--size", type=click.IntRange(1), default=200, show_default=True, help="Rows of each kind.")
@click.option(
    "--readers", type=click.IntRange(1), default=1, show_default=True, help="Files to deal them to."
)
@click.option("--seed", type=int, default=0, show_default=True)
def sheet(folder: Path, out: Path, size: int, readers: int, seed: int) -> None:
    """Draw answers, and questions of a judge, for people to read; the right answers are in a file of their own."""
    from training.dataset.sheets import write_sheets

    try:
        drawn = write_sheets(folder, out, size, readers, seed)
    except FileNotFoundError as error:
        raise click.ClickException(f"{error.filename}: no dataset is there") from None
    click.echo(f"{out}: {drawn['answers']} answers, {drawn['judge']} questions")


@data.command()
@click.argument("folder", type=click.Path(path_type=Path, file_okay=False, exists=True))
def sizes(folder: Path) -> None:
    """Print how many tokens the prompts of a dataset take, part by part (estimated without a tokenizer)."""
    from training.dataset.sizes import sizes as lines_of

    click.echo("\n".join(lines_of(folder)))


def _counts(splits: dict[str, int]) -> str:
    return " / ".join(f"{splits[s]:,} {s}" for s in ("train", "validation", "test"))


main.add_command(demo)
main.add_command(sft)
main.add_command(kto)
main.add_command(bottleneck)
main.add_command(evaluate)
main.add_command(ablation)
main.add_command(calibrate)
main.add_command(cost)
main.add_command(feedback)
main.add_command(registry)


if __name__ == "__main__":
    main(prog_name="python -m training")
