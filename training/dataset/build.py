"""`data build`: from pinned packages to a dataset, in stages whose results are cached by their input."""

from __future__ import annotations

import gzip
import hashlib
import json
import multiprocessing
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor, as_completed
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

from training.dataset import dedup, rule_examples
from training.dataset.packages import Package, PackageError, fetch, packages
from training.dataset.rows import Sample
from training.dataset.shards import make_shard
from training.dataset.split import SPLITS, Sizes, assign, select
from training.progress import Progress
from training.sandbox.execute import Outcome, run_pair


@dataclass(frozen=True, slots=True)
class Preset:
    """The size of a dataset, and how much code it is built from."""

    name: str
    sizes: Sizes
    demo_packages: bool
    regions: int  # most regions of one package

    def packages(self) -> tuple[Package, ...]:
        return tuple(p for p in packages() if p.demo or not self.demo_packages)


PRESETS = {
    "demo": Preset("demo", Sizes(1_600, 250, 150), True, 150),
    "full": Preset("full", Sizes(16_000, 2_100, 1_100), False, 900),
}


@dataclass(slots=True)
class BuildResult:
    """The result of a build: the samples of each split, and what was left out."""

    splits: dict[str, list[Sample]] = field(default_factory=dict)
    dropped: Counter[str] = field(default_factory=Counter)
    outcomes: dict[str, Outcome] = field(default_factory=dict)
    refused: dict[str, str] = field(default_factory=dict)  # package -> reason
    used: list[Package] = field(default_factory=list)
    against: str = (
        ""  # hash of the evaluation's texts, of which nothing is in the data; "" where none were given
    )


def build(
    preset: Preset, cache_folder: Path, *, seed: int = 0, workers: int = 2, against: Sequence[Path] = (),
    extra: Sequence[Path] = (), execute: bool = True, progress: Progress = lambda *_: None,
) -> BuildResult:  # fmt: skip
    """Run all stages. Raises `FileNotFoundError` for a missing place in `against` or `extra`."""
    result = BuildResult()
    texts = list(dedup.evaluation_texts(against))
    evaluation = dedup.Evaluation(texts)
    if evaluation:
        result.against = hashlib.sha256("\0".join(sorted(texts)).encode("utf-8", "replace")).hexdigest()
    more = list(_extra(extra))
    wheels = _fetched(preset.packages(), cache_folder / "wheels", result, progress)
    shards = _shards(wheels, preset, cache_folder / "shards", workers, result, progress)
    if execute:
        result.outcomes = _executed(cache_folder / "executed", workers, progress)
    ours = [*rule_examples.examples(), *_pairs(result.outcomes)]
    pool = list(_clean(shards, [*ours, *more], evaluation, result, progress))
    weights = Counter(sample.project for sample in pool)
    split_of = assign(weights, preset.sizes, seed, frozenset({rule_examples.ORIGIN.project}))
    by_split: defaultdict[str, list[Sample]] = defaultdict(list)
    for sample in pool:
        by_split[sample.attributes.get("split") or split_of[sample.project]].append(sample)
    for done, split in enumerate(SPLITS, 1):
        result.splits[split] = select(by_split[split], preset.sizes.of(split), seed)
        progress("selecting", done, len(SPLITS))
    return result


# -- packages --------------------------------------------------------------------------------------------------


def _fetched(
    wanted: Sequence[Package], folder: Path, result: BuildResult, progress: Progress
) -> dict[Package, Path]:
    wheels: dict[Package, Path] = {}
    with ThreadPoolExecutor(4) as pool:
        running = {pool.submit(fetch, package, folder): package for package in wanted}
        for done, future in enumerate(as_completed(running), 1):
            package = running[future]
            try:
                wheels[package] = future.result()
            except (PackageError, OSError) as error:
                result.refused[package.provenance] = str(error)
            progress("fetching packages", done, len(wanted))
    return dict(sorted(wheels.items(), key=lambda item: item[0].name))


def _shards(
    wheels: dict[Package, Path],
    preset: Preset,
    folder: Path,
    workers: int,
    result: BuildResult,
    progress: Progress,
) -> list[Path]:
    """One file of samples for each package; those whose input is unchanged are there already."""
    folder.mkdir(parents=True, exist_ok=True)
    shards: list[Path] = []
    jobs = sorted(wheels.items(), key=lambda item: -item[1].stat().st_size)  # the long ones first
    with ProcessPoolExecutor(workers, multiprocessing.get_context("spawn")) as pool:
        running = {
            pool.submit(make_shard, package, wheel, folder, preset.regions): package
            for package, wheel in jobs
        }
        for done, future in enumerate(as_completed(running), 1):
            package = running[future]
            try:
                shards.append(future.result())
                result.used.append(package)
            except PackageError as error:
                result.refused[package.provenance] = str(error)
            progress("mutating", done, len(jobs))
    result.used.sort(key=lambda p: p.name)
    return sorted(shards)


# -- pairs of our own, and samples from elsewhere ------------------------------------------------------------------------


def _executed(folder: Path, workers: int, progress: Progress) -> dict[str, Outcome]:
    """The outcomes of the rules' benchmarks, by rule; measured once for each version of their code."""
    folder.mkdir(parents=True, exist_ok=True)
    outcomes: dict[str, Outcome] = {}
    jobs = {}
    for rule, pair in rule_examples.pairs():
        key = hashlib.sha256(json.dumps(asdict(pair)).encode()).hexdigest()[:16]
        place = folder / f"{rule.name}-{key}.json"
        if place.exists():
            outcomes[rule.name] = Outcome(**json.loads(place.read_text(encoding="utf-8")))
        else:
            jobs[rule.name] = (pair, place)
    with ThreadPoolExecutor(max(1, workers // 2)) as pool:  # fewer at a time: they are timed
        running = {pool.submit(run_pair, pair): (name, place) for name, (pair, place) in jobs.items()}
        for done, future in enumerate(as_completed(running), 1):
            name, place = running[future]
            outcomes[name] = outcome = future.result()
            if not outcome.skipped:
                place.write_text(json.dumps(asdict(outcome)), encoding="utf-8")
            progress("executing pairs", done, len(jobs))
    return dict(sorted(outcomes.items()))


def _pairs(outcomes: dict[str, Outcome]) -> Iterator[Sample]:
    for rule, pair in rule_examples.pairs():
        outcome = outcomes.get(rule.name)
        sample = rule_examples.measured(rule, pair, outcome) if outcome is not None else None
        if sample is not None:
            yield sample


def _extra(places: Iterable[Path]) -> Iterator[Sample]:
    """Samples that other sources wrote as JSON lines."""
    for place in places:
        if not place.exists():
            raise FileNotFoundError(f"{place}: no such file or folder of samples")
        for file in sorted(place.rglob("*.jsonl")) if place.is_dir() else [place]:
            with file.open(encoding="utf-8") as lines:
                yield from (Sample.from_json(line) for line in lines if line.strip())


# -- quality -----------------------------------------------------------------------------------------------------


def _clean(
    shards: Sequence[Path],
    others: Sequence[Sample],
    evaluation: dedup.Evaluation,
    result: BuildResult,
    progress: Progress,
) -> Iterator[Sample]:
    """The samples of all sources without near-duplicates, and without code of the evaluation cases."""
    seen = dedup.NearDuplicates()
    for sample in others:
        if evaluation and evaluation.contaminates(sample.text):
            result.dropped["in an evaluation set"] += 1
        elif not sample.group or seen.add(sample.group, dedup.signature(sample.text)):
            yield replace(sample, group=sample.group or sample.hash)
        else:
            result.dropped["near-duplicate of other code"] += 1
    for done, shard in enumerate(shards, 1):
        with gzip.open(shard, "rt", encoding="utf-8") as file:
            next(file)
            for line in file:
                entry = json.loads(line)
                if not seen.add(entry["group"], dedup.unpack(entry["minhash"])):
                    result.dropped["near-duplicate of other code"] += 1
                elif evaluation and evaluation.contaminates(entry["text"]):
                    result.dropped["in an evaluation set"] += 1
                else:
                    yield from map(Sample.from_json, entry["samples"])
        progress("removing duplicates", done, len(shards))
