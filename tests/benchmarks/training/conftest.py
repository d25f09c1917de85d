"""A random model of two layers, a dataset of a few samples, and a recipe for both."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.model import weights
from training.dataset.rows import Positive, Sample

PROBLEM = """def train{n}(model, loader, optimizer):
    total = 0.0
    for batch in loader:
        loss = model(batch).mean()
        loss.backward()
        optimizer.step()
        total += loss.item()
    return total / {n}
"""


def sample(n: int, *, slow: bool) -> Sample:
    text = PROBLEM.format(n=n)
    found = Positive(
        "item-every-step",
        7,
        7,
        "Waits for the GPU in every step.",
        "",
        7,
        7,
        "        total += loss.detach()",
    )
    return Sample(
        text=text if slow else text.replace("loss.item()", "loss.detach()"),
        context="import torch\n\n\n",
        path=f"project{n}/train.py",
        project=f"project{n}",
        licence="MIT",
        source="packages",
        provenance=f"project{n}==1:train.py",
        kind="mutated" if slow else "corrected",
        main_rule="item-every-step",
        positives=(found,) if slow else (),
        negatives=() if slow else ("item-every-step",),
        attributes={} if slow else {"lines of item-every-step": "7"},
    )


@pytest.fixture(scope="session")
def tiny_data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("data")
    (folder / "samples").mkdir()
    for split, start in (("train", 1), ("validation", 50), ("test", 70)):
        made = [sample(n, slow=n % 2 == 0) for n in range(start, start + 16)]
        (folder / "samples" / f"{split}.jsonl").write_text("".join(f"{s.to_json()}\n" for s in made))
    (folder / "dataset.json").write_text(json.dumps({"hash": "0" * 64}))
    return folder


@pytest.fixture(scope="session")
def tiny_base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("trl")
    return weights.tiny(tmp_path_factory.mktemp("base"))


@pytest.fixture
def tiny_config(tmp_path: Path, tiny_base: Path, tiny_data: Path) -> Path:
    file = tmp_path / "tiny.yaml"
    file.write_text(
        f"name: tiny\noutput: {tmp_path / 'runs'}\nmodel: {{base: '{tiny_base}'}}\nthreads: 1\n"
        f"data: {{folder: '{tiny_data}', packing: false, max_tokens: 320}}\n"
        "lora: {r: 4, dropout: 0.0}\nbatch: {size: 1, accumulation: 4}\ntracking: {mlflow: false}\n"
    )
    return file
