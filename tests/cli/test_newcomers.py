"""What somebody stumbles over who runs the commands for the first time."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.command import OPS, TRAIN, command, findings, run, unwrapped

BROKEN = "import torch\ntorch.log(torch.softmax(\n"


@pytest.mark.parametrize("format_", ["terminal", "concise", "json", "github"])
def test_a_check_that_must_pass_fails_on_a_file_that_does_not_parse(tmp_path: Path, format_: str) -> None:
    (tmp_path / "broken.py").write_text(BROKEN)
    assert run("check", tmp_path).exit_code == 0
    result = run("check", tmp_path, "--exit-code", "--format", format_)
    assert result.exit_code == 1
    assert "ptopt: error: " in result.stderr and "broken.py: does not parse" in result.stderr
    fixed = run("fix", tmp_path, "--exit-code")
    assert fixed.exit_code == 1 and "broken.py: does not parse" in fixed.stderr


def test_json_says_which_files_do_not_parse(tmp_path: Path) -> None:
    (tmp_path / "broken.py").write_text(BROKEN)
    (tmp_path / "bytes.py").write_bytes(b"import torch\0")
    (tmp_path / "plain.py").write_text("print 'no rule asks for it'\n")
    data = json.loads(run("check", tmp_path, "--format", "json").stdout)
    assert {item["path"]: item["syntax_error"] for item in data["not_reviewed"]} == {
        "broken.py": True,
        "bytes.py": False,
        "plain.py": True,
    }


def test_a_review_that_must_pass_fails_on_a_file_that_does_not_parse(checkout: Path) -> None:
    (checkout / "train.py").write_text(BROKEN)
    result = run("review", "--repo", checkout, "--base", "main", "--exit-code")
    assert result.exit_code == 1 and "train.py: does not parse" in result.stderr


@pytest.mark.parametrize("patch", [b"", b"\n"])
def test_an_empty_patch_is_wrong_input(tree: Path, patch: bytes) -> None:
    result = run("review", "--diff", "-", "--tree", tree, stdin=patch)
    assert (result.exit_code, result.stderr, result.stdout) == (2, "ptopt: error: the diff is empty\n", "")


def test_a_branch_without_changes_is_clean(checkout: Path) -> None:
    result = run("review", "--repo", checkout, "--base", "HEAD", "--exit-code")
    assert result.exit_code == 0
    assert "No Python, notebooks or configurations to review (HEAD...working tree)." in unwrapped(result)


def test_annotations_say_on_stderr_what_they_have_no_place_for(tmp_path: Path) -> None:
    (tmp_path / "ops.py").write_text(
        OPS.replace("dim=-1))", "dim=-1))  # ptopt: ignore[log-of-softmax]")
        + "\n\nx = 1  # ptopt: ignore[item-every-step]\n"
    )
    (tmp_path / "train.py").write_text(TRAIN)
    result = run("check", tmp_path, "--format", "github")
    (line,) = result.stderr.splitlines()
    assert "1 suppressed" in line and "1 unused suppression." in line
    assert "places left out" in line or "place left out" in line
    assert "1 suppressed" not in result.stdout
    concise = run("check", tmp_path, "--format", "concise")
    assert concise.stderr == "" and concise.stdout.endswith(
        "line 12: unused suppression of item-every-step.\n"
    )
    (tmp_path / "train.py").unlink()
    (tmp_path / "ops.py").write_text("import torch\n")
    assert run("check", tmp_path, "--format", "github").stderr == ""


def test_config_takes_a_file_as_the_other_commands_do(checkout: Path) -> None:
    (checkout / ".ptopt.toml").write_text("budget = 3\n")
    other = checkout / "other.toml"
    other.write_text("budget = 9\n")
    shown = run("config", "show", "--config", other, checkout)
    assert shown.exit_code == 0 and "\nbudget = 9\n" in shown.stdout
    other.write_text("budget = -1\n")
    assert run("config", "check", checkout).exit_code == 0
    assert run("config", "check", "--config", other, checkout).exit_code == 2


def test_own_files_that_pre_commit_names_are_passed_over(tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tree)
    (tree / ".ptopt.toml").write_text("budget = 3\n")
    (tree / "pyproject.toml").write_text("[tool.ptopt]\n")
    run("check", "--write-baseline", "ptopt-baseline.json")
    own = (".ptopt.toml", "pyproject.toml", "ptopt-baseline.json")
    result = run("check", "--baseline", "ptopt-baseline.json", *own, "ops.py", "-v")
    assert "Not reviewed" not in result.stdout and "not reviewed" not in result.stdout
    assert "not reviewed" not in run("fix", "--baseline", "ptopt-baseline.json", *own).stdout
    other = run("check", "--baseline", "ptopt-baseline.json", "README.md", "-v")
    assert other.exit_code == 2
    (tree / "README.md").write_text("# Title\n")
    assert "README.md" in run("check", "README.md").stdout


def test_explain_says_where_to_read_on(tree: Path) -> None:
    text = unwrapped(run("check", tree / "ops.py", "--explain"))
    assert "docs/ranking.md" in text and "`ptopt explain PTO407`" in text
    assert "docs/ranking.md" not in run("check", tree / "ops.py").stdout
    (tree / "ops.py").write_text("import torch\n")
    assert "No finding to explain" in run("check", tree / "ops.py", "--explain").stdout


def test_the_package_runs_as_a_module(tree: Path) -> None:
    module = [sys.executable, "-m", "ptopt", "check", str(tree / "ops.py"), "--format", "json"]
    done = subprocess.run(module, capture_output=True, check=True)
    assert done.stdout == command("check", tree / "ops.py", "--format", "json").stdout
    assert findings(run("check", tree / "ops.py", "--format", "json"))
