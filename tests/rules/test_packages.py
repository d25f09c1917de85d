"""Rules of other packages: the template in `examples/rule-package`, installed as a user would."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

TEMPLATE = Path(__file__).parents[2] / "examples" / "rule-package"
CODE = """
import torch

for batch in loader:
    torch.manual_seed(0)
    loss = model(batch).mean()
    loss.backward()
    optimizer.step()
"""


@pytest.fixture(scope="session")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The template, built by the back end that it names."""
    folder = tmp_path_factory.mktemp("rule-package")
    source = folder / "source"
    shutil.copytree(TEMPLATE, source, ignore=shutil.ignore_patterns("__pycache__"))
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
    done = subprocess.run(build, cwd=source, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    (built,) = folder.glob("*.whl")
    return built


@pytest.fixture
def site(tmp_path: Path, wheel: Path) -> Path:
    """A folder with the wheel as an installer leaves it: a wheel of Python code alone is unpacked as it is."""
    folder = tmp_path / "site"
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder)
    return folder


def ptopt(site: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    path = os.pathsep.join([str(site), str(Path(__file__).parents[2])])
    return subprocess.run(
        [sys.executable, "-c", "from ptopt.cli import main; main()", *arguments],
        env={**os.environ, "PYTHONPATH": path},
        cwd=site.parent,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def test_a_rule_of_another_package_speaks_when_it_is_selected(site: Path) -> None:
    (site.parent / "train.py").write_text(CODE)
    off = ptopt(site, "check", "train.py")
    assert "ACME001" not in off.stdout, off.stderr
    on = ptopt(site, "check", "train.py", "--extend-select", "ACME001", "--min-confidence", "0")
    assert "ACME001 manual-seed-every-step" in on.stdout, on.stderr
    assert "Seed once, before the loop." in " ".join(on.stdout.split())


def test_the_ranker_takes_the_word_of_a_rule_that_it_has_learned_nothing_about(site: Path) -> None:
    (site.parent / "train.py").write_text(CODE)
    for options in (["--select", "ACME001"], ["--extend-select", "acme"], ["--select", "ALL"]):
        shown = ptopt(site, "check", "train.py", *options, "--format", "json", "--explain")
        found = [f for f in json.loads(shown.stdout)["findings"] if f["rule"] == "ACME001"]
        assert [f["confidence"] for f in found] == [0.7], (options, shown.stdout)  # what the rule states
    quiet = ptopt(site, "check", "train.py", "--select", "ACME001", "--min-confidence", "0.8")
    assert "No performance findings" in quiet.stdout


def test_its_examples_are_right_as_the_documentation_asks_for_it(site: Path) -> None:
    page = (Path(__file__).parents[2] / "docs" / "add-a-rule.md").read_text(encoding="utf-8")
    (code,) = re.findall(r"```python\n(from acme_rules.*?)```", page, re.S)
    done = subprocess.run(
        [sys.executable, "-c", f"{code}\ntest_examples()\nprint('fine')"],
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(site), str(Path(__file__).parents[2])])},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.stdout == "fine\n", done.stderr


@pytest.mark.parametrize(
    ("entry", "complaint"),
    [("nowhere.rules", "cannot be loaded"), ("json", "must name a module that defines rules")],
)
def test_a_package_that_cannot_be_loaded_is_named(site: Path, entry: str, complaint: str) -> None:
    (site / "acme_ptopt_rules-0.1.dist-info" / "entry_points.txt").write_text(
        f"[ptopt.rules]\nacme = {entry}\n"
    )
    done = ptopt(site, "rules")
    assert done.returncode == 2
    assert complaint in done.stderr and entry in done.stderr
