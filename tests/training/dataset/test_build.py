from __future__ import annotations

import hashlib
import json
import zipfile
from dataclasses import dataclass
from pathlib import Path

import pytest
from click.testing import CliRunner

from training.__main__ import main
from training.dataset.build import BuildResult, Preset, build
from training.dataset.files import NAMES, load, read_info, samples, write
from training.dataset.packages import Package
from training.dataset.split import SPLITS, Sizes

pytestmark = pytest.mark.slow

METADATA = "Metadata-Version: 2.4\nName: {}\nVersion: 1\nLicense-Expression: MIT\n"
FILE = """\
import torch
from torch import nn
import torch.nn.functional as F


def train_{n}(model_{n}, loader, optimizer, {n}_rate):
    for step, ({n}_x, {n}_y) in enumerate(loader):
        loss = F.cross_entropy(model_{n}({n}_x.cuda()) * {n}_rate, {n}_y.cuda())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        {n}_rate = {n}_rate * 0.9


class Net{n}(nn.Module):
    def forward(self, {n}_x):
        {n}_h = self.{n}_proj({n}_x)
        {n}_pos = torch.arange({n}_h.size(1), device={n}_h.device)
        return F.log_softmax({n}_h + self.{n}_emb({n}_pos), dim=-1)
"""
NAMES_OF_PROJECTS = ("alpha", "bravo", "carol", "delta", "early", "frost", "giant", "hotel")


@dataclass(frozen=True, slots=True)
class Local(Preset):
    """A preset whose wheels are on disk."""

    wheels: tuple[Package, ...] = ()

    def packages(self) -> tuple[Package, ...]:
        return self.wheels


@pytest.fixture(scope="module")
def preset_and_cache(tmp_path_factory: pytest.TempPathFactory) -> tuple[Local, Path]:
    cache = tmp_path_factory.mktemp("cache")
    (cache / "wheels").mkdir()
    pins = []
    for name in NAMES_OF_PROJECTS:
        place = cache / "wheels" / f"{name}-1-py3-none-any.whl"
        with zipfile.ZipFile(place, "w") as archive:
            archive.writestr(zipfile.ZipInfo(f"{name}-1.dist-info/METADATA"), METADATA.format(name))
            archive.writestr(zipfile.ZipInfo(f"{name}/code.py"), FILE.replace("{n}", name))
        pins.append(Package(name, "1", place.name, hashlib.sha256(place.read_bytes()).hexdigest(), "MIT"))
    return Local("test", Sizes(60, 16, 16), False, 100, tuple(pins)), cache


@pytest.fixture(scope="module")
def built(preset_and_cache: tuple[Local, Path]) -> BuildResult:
    preset, cache = preset_and_cache
    return build(preset, cache, workers=1, execute=False)


@pytest.fixture(scope="module")
def folder(
    built: BuildResult, preset_and_cache: tuple[Local, Path], tmp_path_factory: pytest.TempPathFactory
) -> Path:
    out = tmp_path_factory.mktemp("dataset")
    write(out, built, preset_and_cache[0], 0, "the command", "2026-01-01")
    return out


def test_no_project_is_in_two_splits(built: BuildResult) -> None:
    projects = [{s.project for s in built.splits[split]} for split in SPLITS]
    assert sum(map(len, projects)) == len(set().union(*projects))
    assert all(projects)
    assert [p.name for p in built.used] == list(NAMES_OF_PROJECTS)


def test_the_same_seed_gives_the_same_bytes_and_old_stages_are_kept(
    built: BuildResult, folder: Path, preset_and_cache: tuple[Local, Path], tmp_path: Path
) -> None:
    preset, cache = preset_and_cache
    shards = {place: place.stat().st_mtime_ns for place in (cache / "shards").iterdir()}
    assert len(shards) == len(NAMES_OF_PROJECTS)
    again = build(preset, cache, workers=1, execute=False)
    assert {place: place.stat().st_mtime_ns for place in (cache / "shards").iterdir()} == shards
    write(tmp_path, again, preset, 0, "the command", "2026-01-02")
    for name in read_info(folder)["files"]:
        assert (tmp_path / name).read_bytes() == (folder / name).read_bytes(), name
    assert read_info(tmp_path) == read_info(folder)
    other = build(preset, cache, seed=1, workers=1, execute=False)
    assert [s.hash for s in other.splits["train"]] != [s.hash for s in built.splits["train"]]


def test_a_lost_shard_is_made_again(built: BuildResult, preset_and_cache: tuple[Local, Path]) -> None:
    preset, cache = preset_and_cache
    lost = sorted((cache / "shards").iterdir())[0]
    content = lost.read_bytes()
    lost.unlink()
    build(preset, cache, workers=1, execute=False)
    assert lost.read_bytes() == content


def test_rows_and_views_load_memory_mapped(folder: Path, tmp_path: Path) -> None:
    info = read_info(folder)
    for name in NAMES:
        data = load(folder, name, "train", tmp_path)
        assert len(data) == info["counts"][name]["train"] > 0
        assert data.cache_files  # the rows stay on disk
        assert set(data.column_names) == {"instruction", "input", "output", "metadata"}
    row = load(folder, "rows", "train", tmp_path)[0]
    assert row["metadata"]["hash"] == next(samples(folder, "train")).hash


def test_the_info_and_the_card_say_what_there_is(folder: Path) -> None:
    info = read_info(folder)
    for name, digest in info["files"].items():
        assert hashlib.sha256((folder / name).read_bytes()).hexdigest() == digest
    card = (folder / "README.md").read_text()
    assert info["hash"] in card
    assert all(f"| {name}==1 | MIT |" in card for name in NAMES_OF_PROJECTS)
    assert "`the command`" in card


def test_what_the_evaluation_holds_is_left_out(preset_and_cache: tuple[Local, Path], tmp_path: Path) -> None:
    preset, cache = preset_and_cache
    (tmp_path / "case.jsonl").write_text(json.dumps({"head": FILE.replace("{n}", "bravo")}) + "\n")
    result = build(preset, cache, workers=1, execute=False, against=[tmp_path])
    assert result.dropped["in an evaluation set"] >= 2
    assert all(s.project != "bravo" for split in result.splits.values() for s in split)


def test_samples_of_other_sources_come_in(
    built: BuildResult, preset_and_cache: tuple[Local, Path], tmp_path: Path
) -> None:
    preset, cache = preset_and_cache
    text = "def other(zulu, yankee):\n    total = zulu.sum() * yankee\n    return total.mean() + zulu.max()\n"
    from dataclasses import replace

    strange = replace(built.splits["train"][0], text=text, project="elsewhere", source="forum", group="")
    (tmp_path / "more.jsonl").write_text(strange.to_json() + "\n")
    result = build(preset, cache, workers=1, execute=False, extra=[tmp_path / "more.jsonl"])
    assert any(s.source == "forum" and s.group for split in result.splits.values() for s in split)
    with pytest.raises(FileNotFoundError, match="no such file"):
        build(preset, cache, workers=1, execute=False, extra=[tmp_path / "none"])


def test_a_package_that_cannot_be_used_is_told(preset_and_cache: tuple[Local, Path], tmp_path: Path) -> None:
    preset, _ = preset_and_cache
    (tmp_path / "wheels").mkdir()
    (tmp_path / "wheels" / preset.wheels[0].file).write_bytes(b"something else")
    from dataclasses import replace

    result = build(replace(preset, wheels=preset.wheels[:1]), tmp_path, workers=1, execute=False)
    assert "not the pinned file" in result.refused["alpha==1"]


def test_show_prints_a_row_of_each_table(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_DATASETS_CACHE", str(tmp_path))
    done = CliRunner().invoke(main, ["data", "show", str(folder)])
    assert done.exit_code == 0, done.output
    assert all(f"--- {name}" in done.output for name in NAMES)
    missing = CliRunner().invoke(main, ["data", "show", str(tmp_path)])
    assert missing.exit_code == 1
    assert "holds no dataset" in missing.output
