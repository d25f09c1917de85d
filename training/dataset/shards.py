"""A shard: the samples of one package in a file, rebuilt only when the package or our code changed."""

from __future__ import annotations

import gzip
import hashlib
import json
import os
import re
import sys
from collections.abc import Sequence
from functools import cache
from pathlib import Path

import ptopt
from training.dataset import dedup
from training.dataset.packages import Package, sources
from training.dataset.regions import Region, regions
from training.dataset.rows import Sample
from training.dataset.synthesis import Origin, samples_of

# What most rules are about, and most code of a package lacks.
_TRAINING_CODE = re.compile(
    r"backward\(|DataLoader|no_grad|inference_mode|zero_grad|autocast|scaled_dot_product|optim\.|log_softmax|cross_entropy"
    r"|register_buffer|__getitem__|collate|need_weights|torch\.load|training_step"
)


def make_shard(package: Package, wheel: Path, folder: Path, most: int) -> Path:
    """Write the samples of one package, each piece of code with its MinHash. Raises `PackageError`."""
    key = hashlib.sha256(f"{package.sha256}:{most}:{fingerprint()}".encode()).hexdigest()[:16]
    place = folder / f"{package.name.lower()}-{key}.jsonl.gz"
    if place.exists():
        return place
    found = _select_regions(package, wheel, most)
    origin = Origin(package.name, package.licence, "packages", package.provenance)
    lines = []
    for region in found:
        samples = samples_of(region, origin)
        if samples:
            lines.append(_line(region, samples))
    for old in folder.glob(f"{package.name.lower()}-{'?' * 16}.jsonl.gz"):
        if _limit_of(old) == most:
            old.unlink()
    scratch = place.with_suffix(f".{os.getpid()}")
    with scratch.open("wb") as raw, gzip.GzipFile("", "wb", 6, raw, mtime=0) as out:
        out.write(json.dumps({"regions": most}).encode() + b"\n" + b"".join(lines))
    scratch.replace(place)
    return place


def _select_regions(package: Package, wheel: Path, most: int) -> list[Region]:
    """`most` different regions, in source order: first those that train, load or evaluate, then others by their hash."""
    found = {region.group: region for path, text in sources(package, wheel) for region in regions(path, text)}
    drawn = sorted(
        found.values(),
        key=lambda r: (_TRAINING_CODE.search(r.text) is None, hashlib.sha256(r.group.encode()).digest()),
    )
    return sorted(drawn[:most], key=lambda r: (r.path, r.symbol, r.group))


def _limit_of(shard: Path) -> int:
    try:
        with gzip.open(shard, "rt", encoding="utf-8") as file:
            return int(json.loads(file.readline())["regions"])
    except (OSError, ValueError, KeyError, EOFError):
        return -1


def _line(region: Region, samples: Sequence[Sample]) -> bytes:
    minhash = dedup.pack(dedup.signature(region.text))
    entry = {
        "group": region.group,
        "text": region.text,
        "minhash": minhash,
        "samples": [s.to_json() for s in samples],
    }
    return json.dumps(entry).encode() + b"\n"


@cache
def fingerprint() -> str:
    """Hash of the code that decides what a package gives: rules, analysis, mutators."""
    digest = hashlib.sha256(f"{sys.version_info[:2]}".encode())
    ours = Path(__file__).parent
    library = Path(ptopt.__file__).parent
    names = ("shards.py", "regions.py", "rows.py", "synthesis.py", "packages.py", "licences.py", "dedup.py")
    files = [
        *(ours / name for name in names),
        *ours.with_name("mutators").glob("*.py"),
        *library.glob("*.py"),
    ]
    files += [
        library / "model" / "deletions.py",
        *(library / "rules").rglob("*.py"),
        *(library / "source").rglob("*.py"),
        *(library / "project").rglob("*.py"),
    ]
    for file in sorted(files):
        digest.update(file.read_bytes())
    return digest.hexdigest()[:16]
