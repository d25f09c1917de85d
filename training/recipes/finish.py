"""The end of a run: the adapter with its card, the plots, the report of where the time went, the closed record."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from training.recipes.bottleneck import figures_of, report, verdict
from training.recipes.live import LiveView
from training.recipes.run import Run, card_of
from training.recipes.setup import Setup
from training.recipes.tracking import Tracker, plots, read_metrics


def finish(
    recipe: str,
    setup: Setup,
    run: Run,
    trainer: Any,
    totals: dict[str, Any],
    view: LiveView | None,
    tracker: Tracker | None,
) -> Path:
    """Save the adapter with its card, draw the plots, close the record."""
    settings = setup.settings
    saved = run.scratch / "saved"
    trainer.save_model(str(saved))
    trainer.accelerator.wait_for_everyone()
    if view is not None and tracker is not None:
        lines = read_metrics(run.folder)
        tail = [line["loss"] for line in lines[-max(1, len(lines) // 10) :]]
        checks = [line["eval_loss"] for line in read_metrics(run.folder, "eval_loss")]
        metrics = {
            "steps": trainer.state.global_step,
            "loss": round(sum(tail) / len(tail), 4) if tail else None,
            **({"validation_loss": round(checks[-1], 4)} if checks else {}),
            **totals,
        }
        card = card_of(settings, recipe, setup.base_hash, setup.parent, metrics)
        adapter = run.write_adapter(saved, card)
        drawn = plots(run.folder, settings.name)
        if lines:
            drawn.append(run.folder / "time.md")
            drawn[-1].write_text(report(lines, settings), encoding="utf-8")
        tracker.finish([*drawn, adapter, run.folder / "settings.yaml"])
        view.print(
            f"adapter: {adapter}\n" + ", ".join(f"{k.replace('_', ' ')} {v}" for k, v in metrics.items())
        )
        if lines:
            view.print(str(verdict(figures_of(lines), settings)))
    trainer.accelerator.wait_for_everyone()
    return run.adapter
