"""The project itself: what the wheel ships, what it needs, and that the example is a genuine pull request."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import zipfile
from email.parser import Parser
from pathlib import Path

import pytest
import unidiff
import yaml
from packaging.requirements import Requirement

import ptopt
from ptopt.pathkind import is_reviewable

ROOT = Path(__file__).resolve().parent.parent
PTOPT = [sys.executable, "-c", "from ptopt.cli import main; main()"]
EXAMPLE = ROOT / "examples" / "pull-request"


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> zipfile.ZipFile:
    # hatchling itself, as a build front end would call it, but without fetching anything.
    folder = tmp_path_factory.mktemp("wheel")
    build = f"from hatchling.build import build_wheel; build_wheel({str(folder)!r})"
    subprocess.run([sys.executable, "-c", build], cwd=ROOT, check=True, capture_output=True)
    (path,) = folder.iterdir()
    return zipfile.ZipFile(path)


def test_the_wheel_ships_the_package_alone(wheel: zipfile.ZipFile) -> None:
    tops = {name.split("/")[0] for name in wheel.namelist()}
    assert tops == {"ptopt", f"ptopt-{ptopt.__version__}.dist-info"}


def test_the_wheel_ships_every_file_of_the_package(wheel: zipfile.ZipFile) -> None:
    ours = {
        path.relative_to(ROOT).as_posix()
        for path in (ROOT / "ptopt").rglob("*")
        if path.is_file() and path.suffix != ".pyc"
    }
    assert ours == {name for name in wheel.namelist() if name.startswith("ptopt/")}
    assert "ptopt/py.typed" in ours


def test_the_metadata_of_the_wheel(wheel: zipfile.ZipFile) -> None:
    info = f"ptopt-{ptopt.__version__}.dist-info"
    metadata = Parser().parsestr(wheel.read(f"{info}/METADATA").decode())
    assert metadata["Version"] == ptopt.__version__
    assert metadata["License-Expression"] == "Apache-2.0"
    assert metadata["Requires-Python"] == ">=3.10"
    assert f"{info}/licenses/LICENSE" in wheel.namelist()
    assert "ptopt = ptopt.cli:main" in wheel.read(f"{info}/entry_points.txt").decode()


def test_torch_is_needed_by_an_extra_only(wheel: zipfile.ZipFile) -> None:
    metadata = wheel.read(f"ptopt-{ptopt.__version__}.dist-info/METADATA").decode()
    needs = [Requirement(text) for text in Parser().parsestr(metadata).get_all("Requires-Dist", [])]
    always = {need.name for need in needs if need.marker is None or need.marker.evaluate({"extra": ""})}
    assert always - {"tomli"} == {"click", "packaging", "pydantic", "pyyaml", "rich", "unidiff"}
    assert {str(need.specifier) for need in needs if need.name == "torch"} == {"<2.14,>=2.13"}


def test_the_example_patch_leads_to_the_example_tree() -> None:
    patch = unidiff.PatchSet.from_filename(EXAMPLE / "change.patch", encoding="utf-8")
    heads = {path.relative_to(EXAMPLE / "head").as_posix() for path in (EXAMPLE / "head").rglob("*.py")}
    assert {file.path for file in patch} == heads == {"train.py", "model.py"}
    for file in patch:
        text = (EXAMPLE / "head" / file.path).read_text(encoding="utf-8")
        ast.parse(text)
        lines = text.splitlines(keepends=True)
        for hunk in file:
            shown = [line.value for line in hunk if not line.is_removed]
            assert lines[hunk.target_start - 1 : hunk.target_start - 1 + hunk.target_length] == shown


def test_the_hooks_call_commands_that_the_wheel_has() -> None:
    hooks = (ROOT / ".pre-commit-hooks.yaml").read_text(encoding="utf-8")
    assert re.findall(r"^- id: (\S+)$", hooks, re.MULTILINE) == ["ptopt-check", "ptopt-fix"]
    for entry in re.findall(r"^  entry: (.+)$", hooks, re.MULTILINE):
        program, command, *_ = entry.split()
        assert program == "ptopt"
        run = subprocess.run([*PTOPT, command, "--help"], capture_output=True, text=True)
        assert run.returncode == 0, run.stderr


def test_the_hooks_get_the_files_that_are_reviewed() -> None:
    hooks = yaml.safe_load((ROOT / ".pre-commit-hooks.yaml").read_text(encoding="utf-8"))
    for hook in hooks:
        assert not {"types", "types_or"} & hook.keys()  # they would be asked besides
        for path in (
            "train.py",
            "a b/nb.ipynb",
            "conf/train.yaml",
            ".github/workflows/ci.yml",
            "ds_config.json",
            "Dockerfile",
            "docker/Dockerfile.cuda",
            "docker/gpu.Dockerfile",
            "Dockerfile-gpu",
            "Containerfile",
        ):
            assert is_reviewable(path) and re.search(hook["files"], path), path
        for path in ("README.md", "train.pyc", "Dockerfile.md", "run.sh", "yaml", "mydockerfiles/a.txt"):
            assert not is_reviewable(path), path
        assert not re.search(hook["files"], "README.md")


def test_the_demo_reviews_the_example() -> None:
    command = ["review", "--diff", str(EXAMPLE / "change.patch"), "--tree", str(EXAMPLE / "head")]
    run = subprocess.run([*PTOPT, *command], cwd=ROOT, capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    assert "train.py" in run.stdout
