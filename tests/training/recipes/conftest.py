"""A model small enough to train in a second, and a dataset for it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.model import weights
from training.dataset.rows import Positive, Sample

REPOSITORY = Path(__file__).parents[3]


def a_sample(number: int) -> Sample:
    """A training step; every second one reads the loss on each step, and the others only now and then."""
    slow = number % 2 == 0
    read = "    total += loss.item()" if slow else "    if step % 100 == 0:\n        total += loss.item()"
    filler = "".join(f"    y{n} = layer{n}(batch)\n" for n in range(number % 7))
    text = f"def step_{number}(model, batch, total, step):\n{filler}    loss = model(batch)\n{read}\n    return total\n"
    line = text.split("\n").index(read.split("\n")[-1]) + 1
    found = Positive(
        "item-every-step", line, line, "`loss.item()` waits for the GPU on each step.",
        fix_start=line, fix_end=line, replacement="    total += loss.detach()",
    )  # fmt: skip
    return Sample(
        text=text, context="import torch\n\n\n", path="train.py", project="p", licence="MIT", source="packages",
        provenance="p==1:train.py", kind="mutated" if slow else "guarded", main_rule="item-every-step",
        positives=(found,) if slow else (), negatives=("row-loop",) if slow else ("item-every-step",),
    )  # fmt: skip


@pytest.fixture(autouse=True)
def _quiet_libraries() -> Any:
    """Warnings of the libraries are not ours to correct."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


@pytest.fixture(scope="session")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("dataset")
    (folder / "samples").mkdir()
    for split, numbers in {"train": range(48), "validation": range(48, 56)}.items():
        lines = "".join(a_sample(number).to_json() + "\n" for number in numbers)
        (folder / "samples" / f"{split}.jsonl").write_text(lines, encoding="utf-8")
    (folder / "dataset.json").write_text(json.dumps({"hash": "0" * 64}), encoding="utf-8")
    return folder


@pytest.fixture(scope="session")
def smollm2() -> Path:
    return weights.real()


@pytest.fixture(scope="session")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return weights.tiny(tmp_path_factory.mktemp("tiny"))


@pytest.fixture
def recipe(tiny: Path, dataset: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Path]:
    """`recipe("lora.r=4", ...)`: a YAML file for the tiny model."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))

    def make(*changes: str, base: str | None = None) -> Path:
        import yaml

        from training.recipes.settings import read, to_yaml

        path = tmp_path / "recipe.yaml"
        path.write_text(
            yaml.safe_dump(
                {
                    "name": "t",
                    "output": str(tmp_path / "runs"),
                    "model": {"base": base or str(tiny)},
                    "lora": {"r": 4, "dropout": 0.1},
                    "data": {"folder": str(dataset), "max_tokens": 384},
                    "batch": {"size": 1, "accumulation": 2},
                    "optimizer": {"lr": 0.01, "warmup": 0},
                    "limits": {"epochs": 10, "steps": 8},
                    "checkpoint": {"every": 3},
                    "tracking": {"mlflow": False},
                    "threads": 1,
                }
            ),
            encoding="utf-8",
        )
        path.write_text(to_yaml(read(path, changes)), encoding="utf-8")
        return path

    return make


def command(*args: str | Path) -> list[str]:
    return [sys.executable, "-m", "training", *map(str, args)]


def run(*args: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command(*args), cwd=REPOSITORY, capture_output=True, text=True, timeout=300, env=environment()
    )


def environment() -> dict[str, str]:
    return {**os.environ, "OMP_NUM_THREADS": "1", "OMP_WAIT_POLICY": "PASSIVE", "HF_HUB_OFFLINE": "1"}


def losses(run_folder: Path) -> list[tuple[int, float]]:
    from training.recipes.tracking import read_metrics

    return [(line["step"], line["loss"]) for line in read_metrics(run_folder)]
