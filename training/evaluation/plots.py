"""The plots of a report."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from scipy.special import expit
from sklearn.calibration import calibration_curve
from sklearn.metrics import precision_recall_curve, roc_curve

from training.evaluation.study import Study

_BINS = 10
Plot = Callable[[Axes, Study], None]


def draw(folder: Path, study: Study) -> list[str]:
    """Write the plots that the study has the numbers for; returns their names."""
    drawn = []
    if 0 < study.right < study.questions:
        for name, plot in (
            ("roc", _roc),
            ("precision_recall", _precision_recall),
            ("reliability", _reliability),
        ):
            drawn.append(_save(folder, name, study, plot))
    if study.curves and any(truth.any() for truth, _ in study.curves.values()):
        drawn.append(_save(folder, "real_commits", study, _real_commits))
    return drawn


def _save(folder: Path, name: str, study: Study, plot: Plot) -> str:
    figure = Figure(figsize=(6, 5), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    plot(axes, study)
    axes.grid(alpha=0.3)
    axes.legend(fontsize="small")
    file = f"{name}.png"
    figure.savefig(folder / file, dpi=110, metadata={"Software": None})
    return file


def _roc(axes: Axes, study: Study) -> None:
    for name, scores in study.scores.items():
        wrong, right, _ = roc_curve(study.truth, scores)
        axes.plot(wrong, right, label=f"{name} ({study.judged[name].auc.value:.3f})")
    axes.plot([0, 1], [0, 1], ":", color="gray")
    axes.set(xlabel="no's taken for yes", ylabel="yes's found", title="Judge on held-out projects: ROC")


def _precision_recall(axes: Axes, study: Study) -> None:
    for name, scores in study.scores.items():
        precision, recall, _ = precision_recall_curve(study.truth, scores)
        axes.plot(recall, precision, label=name)
    axes.set(xlabel="recall", ylabel="precision", title="Judge on held-out projects: precision and recall")


def _reliability(axes: Axes, study: Study) -> None:
    for name, scores in study.scores.items():
        true, predicted = calibration_curve(study.truth, expit(scores), n_bins=_BINS, strategy="quantile")
        axes.plot(predicted, true, "o-", label=name)
    axes.plot([0, 1], [0, 1], ":", color="gray")
    axes.set(
        xlabel="probability said", ylabel="share that is yes", title="Judge on held-out projects: reliability"
    )


def _real_commits(axes: Axes, study: Study) -> None:
    for name, (truth, scores) in study.curves.items():
        if np.any(truth):
            precision, recall, _ = precision_recall_curve(truth, scores)
            axes.plot(recall[:-1], precision[:-1], label=name)
    axes.set(
        xlabel="recall of the right remarks", ylabel="precision (unknown = wrong)", title="Rules and judge on real commits",
    )  # fmt: skip
