"""Wheels are compared with the versions that ptopt takes for granted."""

from __future__ import annotations

import zipfile
from pathlib import Path

import pytest

from benchmarks.versions.added import main, outlived


def wheel(folder: Path, name: str, text: str) -> Path:
    path = folder / f"{name}-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("accelerate/accelerator.py", text)
    return path


HAS_IT = "class Accelerator:\n    def no_sync(self): ...\n"


@pytest.mark.parametrize(
    ("name", "text", "found"),
    [
        ("accelerate-0.10.0", HAS_IT, ""),
        ("accelerate-0.9.0", "", ""),
        ("accelerate-0.10.0", "", "accelerate 0.10.0 lacks `accelerator.no_sync`, from 0.10 on by ptopt"),
        ("accelerate-0.9.0", HAS_IT, "accelerate 0.9.0 has `accelerator.no_sync`, from 0.10 on by ptopt"),
    ],
)
def test_a_wheel_agrees_or_is_reported(
    name: str, text: str, found: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([str(wheel(tmp_path, name, text))]) == (1 if found else 0)
    assert capsys.readouterr().out.strip() == (found or "all wheels agree")


def test_lightning_has_one_history_under_both_names(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([str(wheel(tmp_path, "pytorch_lightning-2.0.0", "x = 'bf16'\n"))]) == 1
    assert capsys.readouterr().out.strip() == "lightning 2.0.0 lacks `bf16-mixed`, from 2.0 on by ptopt"


@pytest.mark.parametrize(
    ("name", "files", "found"),
    [
        ("torch-2.0.0", {}, ""),
        ("torch-2.0.0", {"torch/_six.py": "inf = 1"}, "torch 2.0.0 has `torch._six`, up to 1.13.1 by ptopt"),
        ("torch-1.13.1", {}, "torch 1.13.1 lacks `torch._six`, up to 1.13.1 by ptopt"),
        (
            "transformers-4.50.0",
            {"transformers/optimization.py": "class AdamW: ..."},
            "transformers 4.50.0 has `transformers.optimization.AdamW`, up to 4.49.0 by ptopt",
        ),
    ],
)
def test_what_a_wheel_still_has_is_reported(
    name: str, files: dict[str, str], found: str, tmp_path: Path
) -> None:
    path = tmp_path / f"{name}-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        for inner, text in files.items():
            archive.writestr(inner, text)
    said = outlived([path])
    assert found in said if found else not said
