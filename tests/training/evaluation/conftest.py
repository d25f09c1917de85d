"""A small dataset, a small folder of cases, and the small real model."""

from __future__ import annotations

import json
import warnings
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.model.conftest import base_model, make_adapter  # noqa: F401 (pytest finds fixtures by name)
from training.dataset.rows import Positive, Sample

CONTEXT = "import torch\n\n\n"
STEP = """\
def train(model, loader, optimizer, device):
    total = 0.0
    for step, batch in enumerate(loader):
        loss = model(batch.to(device)).loss
        loss.backward()
        optimizer.step()
        {read}
    return total
"""
SLOW, RARE = "total += loss.item()", "total += loss.item() if step % 100 == 0 else 0.0"
CORRECTED = "total += loss.detach()"


def a_sample(number: int, project: str) -> Sample:
    """A training step; every second one reads the loss on each step, and the others only now and then."""
    slow = number % 2 == 0
    text = STEP.format(read=SLOW if slow else RARE).replace("total", f"total_{number}")
    found = Positive(
        "item-every-step", 7, 7, "`loss.item()` makes Python wait for the GPU on every step.",
        fix_start=7, fix_end=7, replacement=f"        {CORRECTED}".replace("total", f"total_{number}"),
    )  # fmt: skip
    return Sample(
        text=text, context=CONTEXT, path="train.py", project=project, licence="MIT", source="packages",
        provenance=f"{project}==1:train.py", kind="mutated" if slow else "guarded", main_rule="item-every-step",
        positives=(found,) if slow else (), negatives=("factory-then-move",) if slow else ("item-every-step",),
        after=text.replace(".item()", ".detach()") if slow else None,
    )  # fmt: skip


@pytest.fixture(scope="session")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("dataset")
    (folder / "samples").mkdir()
    for split, numbers in {"train": range(24), "validation": range(24, 36), "test": range(36, 48)}.items():
        chosen = [a_sample(n, f"{split}-{n % 3}") for n in numbers]
        lines = "".join(f"{sample.to_json()}\n" for sample in chosen)
        (folder / "samples" / f"{split}.jsonl").write_text(lines, encoding="utf-8")
    (folder / "dataset.json").write_text(json.dumps({"hash": "0" * 64}), encoding="utf-8")
    return folder


@pytest.fixture(scope="session")
def cases(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two repositories with a problem each, one clean commit in each, and a file that nothing is known against."""
    folder = tmp_path_factory.mktemp("cases")
    given = [
        ("p1", "problem", "a/a", SLOW, None),
        ("p2", "problem", "b/b", SLOW, None),
        ("n1", "clean", "a/a", RARE, None),
        ("n2", "clean", "b/b", "total += step", None),
        ("w1", "whole", "a/a", RARE, None),
        ("w2", "whole", "b/b", SLOW, [{"category": "no-mixed-precision", "line": 8}]),
    ]
    labels = []
    for name, label, repository, read, expected in given:
        text = CONTEXT + STEP.format(read=read).replace("to(device)", "cuda()")
        tree = folder / "cases" / name / "tree"
        tree.mkdir(parents=True)
        (tree / "train.py").write_text(text)
        added = "".join(f"+{line}\n" for line in text.splitlines())
        head = f"--- /dev/null\n+++ b/train.py\n@@ -0,0 +1,{text.count(chr(10))} @@\n"
        (tree.parent / "change.diff").write_text(head + added)
        labels.append(
            {"name": name, "label": label, "repo": repository, "category": "host-device-sync", "path": "train.py"}
            | {"start": 10, "end": 10, "locality": "line", "difficulty": "easy", "expected": expected}
        )  # fmt: skip
    (folder / "labels.jsonl").write_text("".join(f"{json.dumps(label)}\n" for label in labels))
    return folder


@pytest.fixture(autouse=True)
def _quiet_libraries() -> Iterator[None]:
    """Warnings of the libraries are not ours to mend."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield
