"""A release: its version stands in one place, and what the workflow publishes can be built."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest
import yaml

import ptopt
from tests.helm.tools import FOLDER, tool

ROOT = Path(__file__).resolve().parents[1]
WORKFLOW = yaml.safe_load((ROOT / ".github/workflows/release.yml").read_text())["jobs"]


def script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("release", ROOT / ".github/release.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


release = script()


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A copy of every file that has the version in it."""
    for glob in (release.SOURCE, release.CHANGELOG, *release.COPIES):
        for path in ROOT.glob(glob):
            copy = tmp_path / path.relative_to(ROOT)
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(path, copy)
    return tmp_path


def texts(root: Path) -> dict[str, str]:
    files = (path for glob in (release.SOURCE, *release.COPIES) for path in root.glob(glob))
    return {path.relative_to(root).as_posix(): path.read_text(encoding="utf-8") for path in files}


def test_the_version_is_the_same_everywhere(tree: Path) -> None:
    release.write(release.version(), tree)
    assert texts(tree) == texts(ROOT), "run `make version VERSION=X.Y.Z`"
    chart = yaml.safe_load((ROOT / "helm/ptopt/Chart.yaml").read_text())
    assert chart["version"] == chart["appVersion"] == ptopt.__version__ == release.version()


def test_another_version_is_written_everywhere(tree: Path) -> None:
    """Each pattern finds its place, and no other number is changed."""
    release.write("7.8.9", tree)
    for name, text in texts(tree).items():
        before = (ROOT / name).read_text(encoding="utf-8")
        assert text.replace("7.8.9", ptopt.__version__) == before
    for glob in (release.SOURCE, *release.COPIES):
        assert any("7.8.9" in path.read_text(encoding="utf-8") for path in tree.glob(glob)), glob
    left = re.compile(rf"(?<![\d.]){re.escape(ptopt.__version__)}(?![\d.])")
    assert not [name for name, text in texts(tree).items() if left.search(text)]
    assert release.version(tree) == "7.8.9"


@pytest.mark.parametrize("wrong", ["1.2", "v1.2.3", "1.2.3rc1", "1.2.3\n", ""])
def test_a_version_that_the_chart_could_not_have(wrong: str, tree: Path) -> None:
    with pytest.raises(ValueError, match="form"):
        release.write(wrong, tree)
    assert texts(tree) == texts(ROOT)


def test_what_a_tag_has_to_be(tree: Path) -> None:
    changelog = tree / release.CHANGELOG
    assert release.problems("v7.8.9", tree) == [
        f"ptopt/__init__.py has {ptopt.__version__}, and the tag is v7.8.9.",
        "CHANGELOG.md has no section for 7.8.9.",
    ]
    release.write("7.8.9", tree)
    older = changelog.read_text().partition("## [Unreleased]")
    changelog.write_text(
        "".join(
            (
                *older[:2],
                "\n\n## [7.8.9] - 2030-01-02\n\n### Added\n\n- This.\n\n## [7.8.8] - 2029-01-01\n\n- That.\n",
            )
        )
    )
    assert release.problems("v7.8.9", tree) == []
    assert release.notes("v7.8.9", tree) == "### Added\n\n- This."
    assert release.notes("v7.8.8", tree) == "- That."
    assert release.problems("7.8.9", tree) and release.problems("v7.8.8", tree)


def test_the_script_refuses_a_wrong_tag() -> None:
    done = subprocess.run(
        [sys.executable, ROOT / ".github/release.py", "check", "v99.0.0"], capture_output=True, text=True
    )
    assert done.returncode == 1 and "the tag is v99.0.0" in done.stderr


@pytest.mark.slow
def test_what_is_published_can_be_built(tmp_path: Path) -> None:
    """The steps of the workflow that run without GitHub: `make dist`, and Helm's package of the chart."""
    dist = tmp_path / "dist"
    make = ["make", "dist", f"DIST={dist}", f"BIN={Path(sys.executable).parent}", "-o", ".venv/.testable"]
    subprocess.run(make, cwd=ROOT, check=True, capture_output=True, env=os.environ | {"MAKEFLAGS": ""})
    names = {path.name for path in dist.iterdir()}
    version = ptopt.__version__
    assert names == {f"ptopt-{version}-py3-none-any.whl", f"ptopt-{version}.tar.gz", "ptopt.cdx.json"}
    sbom = json.loads((dist / "ptopt.cdx.json").read_text())
    assert sbom["metadata"]["component"]["name"] == "ptopt"
    listed = {(part["name"], part["version"]) for part in sbom["components"]}
    pinned = re.findall(r"^([\w.-]+)==(\S+)", (ROOT / "action-requirements.txt").read_text(), re.M)
    assert listed == set(pinned)

    helm = tool(FOLDER / "helm-4")
    packed = subprocess.run(
        [helm, "package", "helm/ptopt", "--destination", tmp_path], cwd=ROOT, capture_output=True
    )
    assert packed.returncode == 0 and (tmp_path / f"ptopt-{version}.tgz").is_file()


def test_nothing_is_published_before_all_of_it_is_tested() -> None:
    needs = {
        name: {job["needs"]} if isinstance(job.get("needs"), str) else set(job.get("needs", ()))
        for name, job in WORKFLOW.items()
    }

    def before(name: str) -> set[str]:
        return needs[name] | {each for need in needs[name] for each in before(need)}

    assert all("test" in before(name) for name in WORKFLOW if name != "test")
    assert before("release") >= {"build", "images", "chart", "pypi"}
    writers = {name for name, job in WORKFLOW.items() if job["permissions"].get("contents") == "write"}
    assert writers == {"release"}


def test_the_images_that_are_built_are_those_of_the_dockerfiles() -> None:
    built = {(each["file"], each["target"]) for each in WORKFLOW["images"]["strategy"]["matrix"]["include"]}
    for file, target in built:
        assert f" AS {target}\n" in (ROOT / file).read_text()
    pages = "".join(path.read_text() for path in (ROOT / "docs").glob("*.md"))
    assert {target for _, target in built} == set(re.findall(r"`ghcr\.io/ptopt/ptopt-([\w-]+)`", pages))
