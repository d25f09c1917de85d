"""`python -m training ablation`: the ranker with a judge against the ranker alone."""

from __future__ import annotations

import contextlib
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from training.evaluation.judges import Judge

_FOLDER = click.Path(path_type=Path, exists=True, file_okay=False)
_WORDS = 4000  # samples of the dataset that the words are learned from, as in `evaluate`


@click.command()
@click.option("--adapter", type=_FOLDER, help="Folder of an adapter. Without it, words alone are measured.")
@click.option("--data", type=_FOLDER, required=True, help="The dataset that it was trained on.")
@click.option(
    "--labels", type=_FOLDER, default=Path("benchmarks/quality/data"), show_default=True,
    help="Folder with verdicts/{work,calibrate,judge}.jsonl and found/work.jsonl.",
)  # fmt: skip
@click.option(
    "--clones", type=_FOLDER, required=True, help="Folder of git clones, as OWNER/NAME or OWNER+NAME."
)
@click.option("--resamples", type=click.IntRange(10), default=2000, show_default=True)
@click.option(
    "--threads", type=click.IntRange(1), default=1, show_default=True, help="Of the model, on a CPU."
)
def ablation(
    adapter: Path | None, data: Path, labels: Path, clones: Path, resamples: int, threads: int
) -> None:
    """Measure what a judge adds to the ranker, on the judged comments of the part *judge*; prints totals only."""
    try:
        from training.evaluation.ablation import ablation as measured
        from training.evaluation.ablation import read_comments, table
        from training.evaluation.baselines import TokenClassifier
        from training.evaluation.synthetic import questions, select_samples
        from training.ranker.fit import train
        from training.ranker.rows import read
    except ModuleNotFoundError as error:
        raise click.ClickException(
            f"this needs the package {error.name}: pip install '.[training]'"
        ) from None
    from ptopt.model.advisor import Advisor
    from ptopt.model.backends.loading import read_adapter
    from ptopt.model.backends.open import open_backend
    from ptopt.model.calibration import Calibration
    from ptopt.model.interface import ModelUnavailableError
    from ptopt.model.region import JUDGE_TOKENS
    from training.progress import show_progress

    verdicts = labels / "verdicts"
    missing: Counter[str] = Counter()
    try:
        ranker = train(
            read([verdicts / "work.jsonl"]) + read([labels / "found" / "work.jsonl"], drawn=False), []
        )
        tokens = JUDGE_TOKENS if adapter is None else read_adapter(adapter).judge_tokens
        with show_progress() as progress:
            calibrate, held = (
                read_comments(verdicts / f"{part}.jsonl", clones, missing, progress)
                for part in ("calibrate", "judge")
            )
            learned = questions(select_samples(data, "train", _WORDS), "reading train", progress)
            judges: dict[str, Judge] = {"TF-IDF": TokenClassifier(learned, tokens=tokens)}
            with contextlib.ExitStack() as opened:
                if adapter is not None:
                    model = Advisor(
                        open_backend(str(adapter), threads=threads), Calibration.off(), judge_tokens=tokens
                    )
                    opened.callback(model.close)
                    judges["model"] = model
                results = measured(ranker, judges, calibrate, held, resamples, progress)
    except (FileNotFoundError, ValueError, ModelUnavailableError) as error:
        raise click.ClickException(str(error)) from None
    for reason, number in sorted(missing.items()):
        if number:
            click.echo(f"not asked: {number:,}: {reason}", err=True)
    click.echo(table(results, held))
