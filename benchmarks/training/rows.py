"""The rows that a run trains on: a small dataset folder, cut from a real one, the same for every variant."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from itertools import islice
from pathlib import Path

from training.dataset.files import samples
from training.dataset.rows import Sample


def cut(data: Path, folder: Path, train: int, held_out: int) -> None:
    """The first samples, in the order of their hashes: a mixture of projects, the same every time."""
    (folder / "samples").mkdir(parents=True, exist_ok=True)
    digest = hashlib.sha256()
    for split, count in (("train", train), ("validation", held_out)):
        text = "".join(f"{sample.to_json()}\n" for sample in first(samples(data, split), count))
        written = text.encode("utf-8", "surrogatepass")
        (folder / "samples" / f"{split}.jsonl").write_bytes(written)
        digest.update(written)
    (folder / "dataset.json").write_text(json.dumps({"hash": digest.hexdigest()}) + "\n", encoding="utf-8")


def first(found: Iterable[Sample], count: int) -> list[Sample]:
    return list(islice(sorted(found, key=lambda sample: sample.hash), count))
