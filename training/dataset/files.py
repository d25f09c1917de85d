"""The dataset on disk: Parquet files of rows and views, `dataset.json` with hashes, a card; and how to load it."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq

from training.dataset.build import BuildResult, Preset
from training.dataset.card import card
from training.dataset.rows import VIEWS, Sample, instruct_row
from training.dataset.shards import fingerprint
from training.dataset.views import view_rows

if TYPE_CHECKING:
    from datasets import Dataset

NAMES = ("rows", *VIEWS)
_TEXT, _FLAG = pa.string(), pa.bool_()
_METADATA = pa.struct(
    [
        ("optimization_type", _TEXT), ("expected_speedup", _TEXT), ("difficulty", _TEXT), ("rule", _TEXT), ("label", _TEXT),
        ("kind", _TEXT), ("project", _TEXT), ("license", _TEXT), ("source", _TEXT), ("provenance", _TEXT),
        ("executed", _FLAG), ("view", _TEXT), ("group", _TEXT), ("hash", _TEXT),
    ]
)  # fmt: skip
_SCHEMA = pa.schema([("instruction", _TEXT), ("input", _TEXT), ("output", _TEXT), ("metadata", _METADATA)])


def write(
    folder: Path, built: BuildResult, preset: Preset, seed: int, command: str, day: str
) -> dict[str, Any]:
    """Write rows, views, samples, `dataset.json` and the card; returns what `dataset.json` holds."""
    folder.mkdir(parents=True, exist_ok=True)
    files: dict[str, str] = {}
    counts: dict[str, dict[str, int]] = {}
    for split, samples in built.splits.items():
        for name, rows in _tables(samples).items():
            files[f"{name}/{split}.parquet"] = _write_table(folder / name / f"{split}.parquet", rows)
            counts.setdefault(name, {})[split] = len(rows)
        files[f"samples/{split}.jsonl"] = _write_lines(folder / "samples" / f"{split}.jsonl", samples)
    digest = hashlib.sha256(json.dumps(files, sort_keys=True).encode()).hexdigest()
    info = {
        "format": 1,
        "preset": preset.name,
        "seed": seed,
        "hash": digest,
        "code": fingerprint(),
        "against": built.against,
        "counts": counts,
        "files": files,
        "packages": {p.provenance: p.sha256 for p in built.used},
    }
    (folder / "dataset.json").write_text(json.dumps(info, indent=1, sort_keys=True) + "\n", encoding="utf-8")
    (folder / "README.md").write_text(card(built, info, command, day), encoding="utf-8")
    return info


def _tables(samples: Sequence[Sample]) -> dict[str, list[dict[str, Any]]]:
    tables: dict[str, list[dict[str, Any]]] = {name: [] for name in NAMES}
    for sample in samples:
        tables["rows"].append(instruct_row(sample))
        for row in view_rows(sample):
            tables[row["metadata"]["view"]].append(row)
    return tables


def _write_table(place: Path, rows: Sequence[dict[str, Any]]) -> str:
    place.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.Table.from_pylist(list(rows), schema=_SCHEMA), place, compression="zstd")
    return hashlib.sha256(place.read_bytes()).hexdigest()


def _write_lines(place: Path, samples: Sequence[Sample]) -> str:
    place.parent.mkdir(parents=True, exist_ok=True)
    data = "".join(f"{sample.to_json()}\n" for sample in samples).encode("utf-8", "surrogatepass")
    place.write_bytes(data)
    return hashlib.sha256(data).hexdigest()


def read_info(folder: Path) -> dict[str, Any]:
    """What `dataset.json` says. Raises `FileNotFoundError` for a folder without a dataset."""
    place = folder / "dataset.json"
    if not place.exists():
        raise FileNotFoundError(
            f"{folder} holds no dataset; make one with: python -m training data build --out {folder}"
        )
    info: dict[str, Any] = json.loads(place.read_text(encoding="utf-8"))
    return info


def load(folder: Path, name: str, split: str, cache: Path | None = None) -> Dataset:
    """Rows or a view of a split, memory-mapped. `name` is one of `NAMES`."""
    from datasets import load_dataset

    files = str(folder / name / f"{split}.parquet")
    data: Dataset = load_dataset(
        "parquet", data_files={split: files}, split=split, cache_dir=str(cache) if cache else None
    )
    return data


def samples(folder: Path, split: str) -> Iterator[Sample]:
    """The samples behind the rows of a split, in the same order."""
    with (folder / "samples" / f"{split}.jsonl").open(encoding="utf-8") as lines:
        yield from map(Sample.from_json, lines)
