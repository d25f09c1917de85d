"""The folder of a run: settings, metrics, checkpoints that are whole, and at the end the adapter.

runs/NAME-20260101-120000/
  settings.yaml  metrics.jsonl  plots/  adapter/
  time.md                         where the time went, and what bounds the run
  planned.json                    how many steps the minutes allow, where they end a run
  checkpoints/checkpoint-100/     what `--resume` goes on from
  .scratch/                       what is being written; never read
"""

from __future__ import annotations

import datetime
import json
import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from training.recipes.settings import Settings, to_yaml

if TYPE_CHECKING:
    from ptopt.model.backends.loading import AdapterFolder

ADAPTER_FILES = ("adapter_config.json", "adapter_model.safetensors")


class Run:
    """Paths of a run, and how its checkpoints and its adapter come to be."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.scratch = folder / ".scratch"
        self.adapter = folder / "adapter"
        self._checkpoints = folder / "checkpoints"

    @classmethod
    def new(cls, settings: Settings) -> Run:
        now = datetime.datetime.now(datetime.timezone.utc)
        folder = settings.output / f"{settings.name}-{now:%Y%m%d-%H%M%S}"
        number = 1
        while True:
            try:
                folder.mkdir(parents=True)
                break
            except FileExistsError:
                number += 1
                folder = settings.output / f"{settings.name}-{now:%Y%m%d-%H%M%S}-{number}"
        (folder / "settings.yaml").write_text(to_yaml(settings), encoding="utf-8")
        return cls(folder)

    def begin(self) -> None:
        """Clear away what a killed process left half-written. All processes of a run may do it at once."""
        self.scratch.mkdir(exist_ok=True)
        for left in self.scratch.iterdir():
            if left.is_dir():
                shutil.rmtree(left, ignore_errors=True)
            else:
                left.unlink(missing_ok=True)

    def planned_steps(self) -> tuple[int, int] | None:
        """The steps of the run in all, and the step that the plan holds from; None where no session planned any."""
        place = self.folder / "planned.json"
        if not place.is_file():
            return None
        plan = json.loads(place.read_text(encoding="utf-8"))
        return int(plan["steps"]), int(plan["since"])

    def plan_steps(self, steps: int, since: int) -> None:
        scratch = self.scratch / "planned.json"
        scratch.write_text(json.dumps({"steps": steps, "since": since}) + "\n", encoding="utf-8")
        scratch.replace(self.folder / "planned.json")

    def last_checkpoint(self) -> tuple[Path, int] | None:
        """The newest one, and its step."""
        found = [(int(path.name.rpartition("-")[2]), path) for path in self._checkpoints.glob("checkpoint-*")]
        return (max(found)[1], max(found)[0]) if found else None

    def publish(self, written: Path, keep: int) -> None:
        """Make a checkpoint out of the files of `written`: on the disk first, under its name then, at once."""
        for path in written.rglob("*"):
            if path.is_file():
                with path.open("rb") as file:
                    os.fsync(file.fileno())
        self._checkpoints.mkdir(exist_ok=True)
        place = self._checkpoints / written.name
        shutil.rmtree(place, ignore_errors=True)
        written.rename(place)
        checkpoints = sorted(
            self._checkpoints.glob("checkpoint-*"), key=lambda p: int(p.name.rpartition("-")[2])
        )
        for old in checkpoints[:-keep]:
            # Renamed first, so that a kill in between leaves no half of a checkpoint under a checkpoint's name.
            gone = self.scratch / old.name
            shutil.rmtree(gone, ignore_errors=True)
            old.rename(gone)
            shutil.rmtree(gone)

    def write_adapter(self, saved: Path, card: Mapping[str, Any]) -> Path:
        """The adapter folder, from the files that PEFT wrote to `saved`: whole, or not there."""
        from ptopt.model.calibration import Calibration

        made = self.scratch / "adapter"
        shutil.rmtree(made, ignore_errors=True)
        made.mkdir()
        for name in ADAPTER_FILES:
            shutil.copyfile(saved / name, made / name)
        config = json.loads((made / ADAPTER_FILES[0]).read_text(encoding="utf-8"))
        config["base_model_name_or_path"] = card["base"]  # a path of this machine tells nobody anything
        (made / ADAPTER_FILES[0]).write_text(
            json.dumps(config, indent=2, sort_keys=True) + "\n", encoding="utf-8"
        )
        (made / "card.json").write_text(json.dumps(card, indent=2) + "\n", encoding="utf-8")
        (made / "calibration.json").write_text(Calibration.off().to_json(), encoding="utf-8")
        (made / "README.md").write_text(readme(card), encoding="utf-8")
        shutil.rmtree(self.adapter, ignore_errors=True)
        made.rename(self.adapter)
        return self.adapter


def card_of(
    settings: Settings, recipe: str, base_hash: str, parent: AdapterFolder | None, metrics: Mapping[str, Any]
) -> dict[str, Any]:
    from ptopt.model.prompt import PROMPT_VERSION
    from ptopt.model.schema import SCHEMA_VERSION
    from training.recipes.tokens import dataset_hash

    # The rows of KTO are prompts that were cut for the adapter it starts from.
    judge_tokens = parent.judge_tokens if parent and recipe == "kto" else settings.data.judge_tokens
    return {
        "name": settings.name,
        "base": settings.model.base,
        "base_hash": base_hash,
        "dataset_hash": dataset_hash(settings.data.folder),
        "recipe": recipe,
        "prompt_version": PROMPT_VERSION,
        "schema_version": SCHEMA_VERSION,
        "judge_tokens": judge_tokens,
        "metrics": dict(metrics),
        "parent": parent.content if parent else None,
        "created": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
    }


def readme(card: Mapping[str, Any]) -> str:
    metrics = "\n".join(f"| {name.replace('_', ' ')} | {value} |" for name, value in card["metrics"].items())
    return f"""# {card["name"]}

A LoRA adapter of ptopt for `{card["base"]}`, made by the recipe `{card["recipe"]}` on {card["created"]}.

| | |
|---|---|
| dataset | `{card["dataset_hash"]}` |
| base model | `{card["base_hash"]}` |
| parent | {f"`{card['parent']}`" if card["parent"] else "none"} |
| prompt version | {card["prompt_version"]} |
| schema version | {card["schema_version"]} |
{metrics}

These are figures of the training. How good it is on code that it has not seen is what `python -m training evaluate`
says; until that has fitted `calibration.json`, the adapter changes no review.
"""
