"""`python -m training ranker`: fit the ranker to judged comments, and say how well it orders unseen ones."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

import click
import numpy as np
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression

from ptopt.ranker.model import Ranker
from training.evaluation.metrics import auc, calibration_error
from training.ranker.fit import Matrix, as_text, train
from training.ranker.rows import Row, read

WEIGHTS = Path("ptopt/ranker/weights.json")
FC = TypeVar("FC", bound=Callable[..., Any])


def _rows(name: str, text: str, required: bool = False) -> Callable[[FC], FC]:
    """An option that takes files of judged comments; its first letter is its short name."""
    paths = click.Path(path_type=Path, exists=True)
    return click.option(f"--{name}", f"-{name[0]}", type=paths, multiple=True, required=required, help=text)


@click.command()
@_rows(
    "work", "Judged comments to learn from (JSON lines with repo, rule, verdict, features).", required=True
)
@_rows(
    "fixes",
    "What ptopt proposes on labelled fixes and clean commits, to learn from as well: no threshold is set by them.",
)
@_rows("calibrate", "Judged comments of other repositories, to calibrate on.")
@_rows("judge", "Judged comments that were used for nothing else: only totals are printed.")
@click.option("--out", type=click.Path(path_type=Path), default=WEIGHTS, show_default=True)
def ranker(
    work: Sequence[Path],
    fixes: Sequence[Path],
    calibrate: Sequence[Path],
    judge: Sequence[Path],
    out: Path,
) -> None:
    """Fit the ranker to comments that people judged.

    Repositories of one part must not occur in another.
    """
    try:
        parts = [read(work) + read(fixes, drawn=False), read(calibrate), read(judge)]
    except ValueError as error:
        raise click.ClickException(str(error)) from error
    _separate(parts)
    training, calibration, judged = parts
    if len({row.useful for row in training}) < 2:
        raise click.ClickException("the rows to learn from need both useful and other comments")
    fitted = train(training, calibration)
    for name, rows in (("calibrate", calibration), ("judge", judged)):
        if rows:
            click.echo(_table(name, fitted, training, rows))
    counts = " ".join(f"{verdict} {sum(row.verdict == verdict for row in training)}" for verdict in "RTW")
    out.write_text(as_text(fitted, f"{len(training)} judged comments ({counts})"), encoding="utf-8")
    click.echo(
        f"wrote {out}: {len(fitted.useful.weights)} features, from {len(training)} comments ({counts}); "
        f"threshold {fitted.threshold}"
    )


def _separate(parts: Sequence[Sequence[Row]]) -> None:
    seen: dict[str, int] = {}
    for number, rows in enumerate(parts):
        for row in rows:
            if seen.setdefault(row.repo, number) != number:
                raise click.ClickException(f"{row.repo} occurs in two parts; a repository belongs to one")


def _table(name: str, fitted: Ranker, training: Sequence[Row], rows: Sequence[Row]) -> str:
    """How well each way of ordering comments tells the useful ones, on `rows`."""
    useful = np.array([row.useful for row in rows])
    ways = {
        "stated confidence": np.array([row.features.get("stated confidence", 0.0) for row in rows]),
        "ranker": np.array([fitted.useful.probability(row.features) for row in rows]),
    }
    if all(row.text for row in (*training, *rows)):
        words, both = _tfidf(training, rows)
        ways |= {"TF-IDF of the message": words, "ranker and TF-IDF": both}
    lines = [
        f"{name}: {len(rows)} comments, {useful.mean():.0%} useful, {np.mean([not r.right for r in rows]):.0%} wrong"
    ]
    lines.append(f"  {'ordered by':24}{'AUC':>6}{'error':>7}{'upper half':>12}{'lower half':>12}")
    for way, score in ways.items():
        order = np.argsort(-score, kind="stable")
        half = len(order) // 2
        upper, lower = useful[order[:half]].mean(), useful[order[half:]].mean()
        odds = np.log(np.clip(score, 1e-6, 1 - 1e-6) / np.clip(1 - score, 1e-6, 1))
        lines.append(
            f"  {way:24}{auc(useful, score):6.2f}{calibration_error(useful, odds):7.2f}{upper:12.0%}{lower:12.0%}"
        )
    score = ways["ranker"]
    lines.append(f"  {'threshold':>12}{'comments':>10}{'useful':>8}{'wrong':>7}")
    for threshold in sorted({0.25, 0.3, 0.4, 0.5, fitted.threshold}):
        kept = [r for r, p in zip(rows, score, strict=True) if p >= threshold and fitted.is_sure(r.features)]
        if kept:
            good, wrong = np.mean([row.useful for row in kept]), np.mean([not row.right for row in kept])
            lines.append(f"  {threshold:12.2f}{len(kept):10}{good:8.0%}{wrong:7.0%}")
    return "\n".join(lines)


def _tfidf(training: Sequence[Row], rows: Sequence[Row]) -> tuple[Matrix, Matrix]:
    """P(useful) (rows,) from the words of the message alone, and from words and features."""
    from scipy.sparse import csr_matrix, hstack

    from training.ranker.fit import Columns

    words = TfidfVectorizer(min_df=3, sublinear_tf=True)
    of_training, of_rows = (
        words.fit_transform([r.text for r in training]),
        words.transform([r.text for r in rows]),
    )
    columns = Columns(training)
    answers = [row.useful for row in training]

    def predicted(known: csr_matrix, asked: csr_matrix, strength: float) -> Matrix:
        found: Matrix = (
            LogisticRegression(C=strength, max_iter=2000).fit(known, answers).predict_proba(asked)[:, 1]
        )
        return found

    known, asked = (
        hstack([csr_matrix(columns.matrix(part)), text])
        for part, text in ((training, of_training), (rows, of_rows))
    )
    return predicted(of_training, of_rows, 1.0), predicted(known, asked, 0.03)
