"""`python -m training evaluate`: measure an adapter, its base model and the baselines, and write a report."""

from __future__ import annotations

import dataclasses
import datetime
import re
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from ptopt.model.advisor import Advisor
    from ptopt.model.calibration import Calibration
    from training.evaluation.cases import Pool
    from training.evaluation.study import Study

_FOLDER = click.Path(path_type=Path, exists=True, file_okay=False)
_IN_A_REGISTRY = re.compile(r"[0-9a-f]{64}")


@click.command()
@click.option(
    "--adapter",
    type=_FOLDER,
    help="Folder of the adapter. Without it, only baselines (and --base) are measured.",
)
@click.option("--base", help="Base model [default: what the card of the adapter says].")
@click.option("--data", type=_FOLDER, required=True, help="Folder of a dataset.")
@click.option(
    "--cases", type=_FOLDER, help="Folder of labelled real commits, as `benchmarks.quality` reads it."
)
@click.option(
    "--out",
    type=click.Path(path_type=Path, file_okay=False),
    help="Folder for the report [default: evaluation/DATE].",
)
@click.option(
    "--limit",
    type=click.IntRange(1),
    default=300,
    show_default=True,
    help="Samples of the validation and test split to judge.",
)
@click.option(
    "--learned",
    type=click.IntRange(1),
    default=4000,
    show_default=True,
    help="Samples to fit the baselines on.",
)
@click.option(
    "--advised",
    type=click.IntRange(0),
    default=40,
    show_default=True,
    help="Samples to generate findings for.",
)
@click.option(
    "--resamples",
    type=click.IntRange(10),
    default=1000,
    show_default=True,
    help="Of the bootstrap intervals.",
)
@click.option(
    "--threads", type=click.IntRange(1), default=1, show_default=True, help="Of the model, on a CPU."
)
@click.option(
    "--calibrate/--no-calibrate",
    default=True,
    show_default=True,
    help="Write the calibration into the adapter folder.",
)
def evaluate(
    adapter: Path | None, base: str | None, data: Path, cases: Path | None, out: Path | None, limit: int, learned: int,
    advised: int, resamples: int, threads: int, calibrate: bool,
) -> None:  # fmt: skip
    """Measure a judge and an adviser on held-out projects and on real commits; write a report."""
    try:
        from training.evaluation.study import Sizes
    except ModuleNotFoundError as error:
        raise click.ClickException(
            f"the evaluation needs the package {error.name}: pip install '.[training]'"
        ) from None
    from ptopt.model.interface import ModelUnavailableError

    day = datetime.datetime.now(datetime.timezone.utc).date().isoformat()
    sizes = Sizes(judged=limit, learned=learned, advised=advised, resamples=resamples)
    folder = out or Path("evaluation", day)
    try:
        decision = run(folder, adapter, base, data, cases, sizes, threads, day, calibrate=calibrate)
    except (FileNotFoundError, ModelUnavailableError) as error:
        raise click.ClickException(str(error)) from None
    click.echo(decision)
    click.echo(f"report: {folder / 'report.md'}")


def run(
    out: Path, adapter: Path | None, base: str | None, data: Path, cases: Path | None, sizes: Any, threads: int, day: str,
    *, calibrate: bool,
) -> str:  # fmt: skip
    """Measure, write the report and the calibration; returns the decision, in a sentence.

    Raises FileNotFoundError for data or cases that are not there, ModelUnavailableError for a model that cannot be used.
    """
    from training.dataset.files import read_info
    from training.evaluation import report
    from training.evaluation.cases import read_pool
    from training.evaluation.study import hash_of, study
    from training.progress import show_progress

    hashes = {"dataset": str(read_info(data)["hash"])}
    models = _models(adapter, base, threads, hashes)
    try:
        with show_progress() as progress:
            pool = None
            if cases is not None:
                pool = read_pool(cases, sizes.cases, progress)
                hashes["labels of the cases"] = hash_of(cases / "labels.jsonl")
            found = study(data, models, pool, sizes, progress)
    finally:
        for model in models.values():
            model.close()
    calibration, decision = decide(found, pool, adapter is not None, hashes["dataset"])
    command = shlex.join(["python", "-m", "training", *sys.argv[1:]])
    names = ("judged", "learned", "advised", "resamples")
    origin = report.Origin(command, day, hashes, {name: getattr(sizes, name) for name in names})
    report.write(out, found, origin, decision)
    if adapter is not None and calibrate:
        _write(adapter, found, calibration, decision)
    return decision


def decide(found: Study, pool: Pool | None, tuned: bool, dataset: str) -> tuple[Calibration, str]:
    """What of the model is enabled, and why, in some sentences."""
    from ptopt.model.calibration import Calibration
    from training.evaluation.study import TUNED
    from training.evaluation.thresholds import with_own_words

    if not tuned:
        return Calibration.off(), "No adapter was measured."
    on_cases = found.cases.get(TUNED)
    judge = on_cases.fit if on_cases is not None and on_cases.helps else None
    calibration, more = with_own_words(Calibration(judge=judge), found)
    if not calibration.silent:
        measured = f"validation and test split of dataset {dataset[:16]}"
        measured += "; real commits" if judge is not None else ""
        calibration = dataclasses.replace(calibration, measured_on=measured)
    return calibration, f"{_of_judge(found, pool)} {more}".strip()


def _of_judge(found: Study, pool: Pool | None) -> str:
    from training.evaluation.report import room
    from training.evaluation.study import TUNED

    if pool is None:
        return "The judge is off: it was not measured on real commits, and a score on synthetic data alone proves nothing."
    on_cases = found.cases[TUNED]
    gain = on_cases.certain.gain
    if on_cases.helps:
        return f"The judge is on: it raises precision at equal recall by {gain} on real commits."
    return (
        f"The judge is off: on real commits it changes precision at equal recall by {gain}, and the default settings find "
        f"{on_cases.at_default.found} problems with it and {found.rules.at_default.found if found.rules else 0} without; {room(pool)}."
    )


def _models(
    adapter: Path | None, base: str | None, threads: int, hashes: dict[str, str]
) -> dict[str, Advisor]:
    from ptopt.model.advisor import Advisor
    from ptopt.model.backends.open import open_backend
    from ptopt.model.calibration import Calibration
    from ptopt.model.region import JUDGE_TOKENS
    from training.evaluation.study import BASE, TUNED

    models: dict[str, Advisor] = {}
    tokens = JUDGE_TOKENS  # of code, the same for both
    if adapter is not None:
        from ptopt.model.backends.loading import read_adapter
        from training.evaluation.study import hash_of

        folder = read_adapter(adapter)
        base, tokens = base or folder.base, folder.judge_tokens
        hashes["weights of the adapter"] = hash_of(adapter / "adapter_model.safetensors")
    for name, spec in ((BASE, base), (TUNED, None if adapter is None else str(adapter))):
        if spec is not None:
            backend = open_backend(spec, threads=threads)
            models[name] = Advisor(backend, Calibration.off(), judge_tokens=tokens)
            hashes[name] = models[name].record.name
    return models


def _write(adapter: Path, found: Study, calibration: Calibration, decision: str) -> None:
    """Write what was decided beside the adapter. One in a registry is never changed."""
    from training.evaluation.calibrate import write
    from training.evaluation.study import TUNED, plain_values

    if _IN_A_REGISTRY.fullmatch(adapter.resolve().name):
        click.echo(f"{adapter} is in a registry and stays as it is: evaluate before it is added", err=True)
        return
    values = plain_values(found)
    metrics = {
        "held_out": values["judged"].get(TUNED), "advice": values["advised"].get(TUNED), "real_commits": values["cases"].get(TUNED),
    }  # fmt: skip
    write(adapter, calibration, decision, {"evaluation": metrics})
