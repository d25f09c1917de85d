"""The record of a run: metrics by step, plots, and the same in MLflow (SQLite, no server)."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from training.recipes.live import PHASES
from training.recipes.settings import Settings


class Tracker:
    """Writes `metrics.jsonl` in the folder of a run, and to MLflow's database beside all runs."""

    def __init__(
        self, folder: Path, *, name: str, experiment: str, mlflow: bool, params: Mapping[str, Any]
    ) -> None:
        self._folder = folder
        self._file = folder / "metrics.jsonl"
        self._client: Any = None
        self._run_id = ""
        if mlflow:
            self._open(name, experiment, params)

    @classmethod
    def of(cls, folder: Path, settings: Settings) -> Tracker:
        tracking = settings.tracking
        params = settings.model_dump(mode="json")
        return cls(
            folder, name=folder.name, experiment=tracking.experiment, mlflow=tracking.mlflow, params=params
        )

    def back_to(self, step: int) -> None:
        """Forget what came after a step: a run that resumes there writes it anew."""
        kept = [line for line in _all(self._folder) if line["step"] <= step]
        scratch = self._file.with_suffix(".part")
        scratch.write_text("".join(json.dumps(line) + "\n" for line in kept), encoding="utf-8")
        scratch.replace(self._file)

    def log(self, line: Mapping[str, Any]) -> None:
        with self._file.open("a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")
        if self._client is not None:
            flat = {**line, **{f"time.{name}": share for name, share in line.get("time", {}).items()}}
            for key, value in flat.items():
                if key != "step" and isinstance(value, (int, float)):
                    self._client.log_metric(self._run_id, key, float(value), step=int(line["step"]))

    def finish(self, artifacts: Sequence[Path], status: str = "FINISHED") -> None:
        if self._client is None:
            return
        for path in artifacts:
            if path.is_dir():
                self._client.log_artifacts(self._run_id, str(path), path.name)
            else:
                self._client.log_artifact(self._run_id, str(path))
        self._client.set_terminated(self._run_id, status)

    def _open(self, name: str, experiment: str, params: Mapping[str, Any]) -> None:
        from mlflow.tracking import MlflowClient

        home = self._folder.parent.resolve()
        self._client = MlflowClient(tracking_uri=f"sqlite:///{home / 'mlflow.db'}")
        found = self._client.get_experiment_by_name(experiment)
        number = (
            found.experiment_id
            if found is not None
            else self._client.create_experiment(experiment, artifact_location=(home / "mlflow").as_uri())
        )
        kept = self._folder / "mlflow-run"
        if kept.is_file():  # the run goes on
            self._run_id = kept.read_text(encoding="utf-8")
            self._client.update_run(self._run_id, status="RUNNING")
            return
        self._run_id = self._client.create_run(number, run_name=name).info.run_id
        kept.write_text(self._run_id, encoding="utf-8")
        for key, value in flatten(params).items():
            self._client.log_param(self._run_id, key, str(value)[:500])


def flatten(params: Mapping[str, Any], above: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for key, value in params.items():
        if isinstance(value, Mapping):
            flat |= flatten(value, f"{above}{key}.")
        else:
            flat[above + key] = value
    return flat


def read_metrics(folder: Path, kind: str = "loss") -> list[dict[str, Any]]:
    """The metrics of a run that have this one: `loss` (a line a step) or `eval_loss`. A line cut by a kill is left out."""
    return [line for line in _all(folder) if kind in line]


def _all(folder: Path) -> list[dict[str, Any]]:
    try:
        text = (folder / "metrics.jsonl").read_text(encoding="utf-8")
    except FileNotFoundError:
        return []
    complete = text.rpartition("\n")[0]
    return [json.loads(line) for line in complete.split("\n") if line]


def plots(run: Path, title: str) -> list[Path]:
    """Draw loss, tokens/s and the split of time of a run in its folder `plots`; returns the files."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    folder = run / "plots"
    folder.mkdir(exist_ok=True)
    lines, checked = read_metrics(run), read_metrics(run, "eval_loss")
    steps = [line["step"] for line in lines]
    made = []

    def new_axes(name: str, label: str) -> Any:
        figure, axes = pyplot.subplots(figsize=(7, 3.5), layout="constrained")
        axes.set(title=f"{title}: {name.replace('-', ' ')}", xlabel="optimizer step", ylabel=label)
        axes.grid(alpha=0.3)
        made.append((figure, folder / f"{name}.png"))
        return axes

    axes = new_axes("loss", "nats per label, rows alike")
    axes.plot(steps, [line["loss"] for line in lines], label="training")
    if checked:
        axes.plot(
            [line["step"] for line in checked],
            [line["eval_loss"] for line in checked],
            "o-",
            label="validation",
        )
        axes.legend()
    new_axes("tokens-per-second", "unpadded tokens per second").plot(
        steps, [line["tokens_per_s"] for line in lines]
    )
    axes = new_axes("time", "share of the step")
    axes.stackplot(steps, [[line["time"][name] for line in lines] for name in PHASES], labels=PHASES)
    axes.legend(loc="center right")
    for figure, path in made:
        figure.savefig(path, dpi=110)
        pyplot.close(figure)
    return [path for _, path in made]
