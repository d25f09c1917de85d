"""Files that do not parse fail a check that must pass, as they do with other linters."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.command import run

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
