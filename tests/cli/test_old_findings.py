from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from tests.cli.command import OPS, TRAIN, findings, run, unwrapped


def test_suppressed_findings_are_shown_on_demand(tree: Path) -> None:
    (tree / "train.py").write_text(TRAIN.replace("loss.item()", "loss.item()  # ptopt: ignore"))
    assert "1 place suppressed" in run("check", tree).stdout
    assert "Suppressed:\n  train.py:13  PTO101" in run("check", tree, "--show-suppressed").stdout
    sarif = json.loads(run("check", tree, "--show-suppressed", "--format", "sarif").stdout)
    assert [r.get("suppressions") for r in sarif["runs"][0]["results"]] == [None, [{"kind": "inSource"}]]


def test_a_baseline_leaves_new_findings(tree: Path) -> None:
    baseline = tree / "baseline.json"
    done = run("check", tree, "--write-baseline", baseline)
    assert done.exit_code == 0
    assert done.stdout.startswith(f"3 places written to {baseline}; ")
    old = run("check", tree, "--baseline", baseline, "--exit-code")
    assert (old.exit_code, old.stdout.partition("\n")[0]) == (
        0, "No performance findings in 2 files, 3 places in the baseline."
    )  # fmt: skip
    moved = "# a line\n" + OPS.replace(
        "def two(x):", "def more(x):\n    return torch.log(torch.softmax(x, 2))\n\n\ndef two(x):"
    )
    (tree / "ops.py").write_text(moved)
    result = run("check", tree, "--baseline", baseline, "--format", "json", "--exit-code")
    assert result.exit_code == 1
    (finding,) = json.loads(result.stdout)["findings"]
    assert (finding["start_line"], finding["also"]) == (10, [])
    assert finding["fix"]["diff"].count("log_softmax") == 1  # of the new place alone
    assert run("check", tree, "--baseline", tree / "ops.py").stderr.startswith("ptopt: error: ")
    fixed = run("fix", tree, "--baseline", baseline)
    assert (
        fixed.stdout.splitlines()[-1]
        == f"Fixed 1 finding in 1 file; 1 file not reviewed, see `ptopt check --baseline {baseline} {tree}`."
    )
    assert (tree / "ops.py").read_text() == moved.replace(
        "torch.log(torch.softmax(x, 2))", "torch.log_softmax(x, 2)"
    )


def test_review_leaves_what_the_baseline_lists(checkout: Path) -> None:
    baseline = checkout / "baseline.json"
    run("check", checkout, "--write-baseline", baseline)
    old = run("review", "--repo", checkout, "--baseline", baseline, "--exit-code")
    assert old.exit_code == 0
    assert "No performance findings in 1 file (main...working tree), 1 place in the baseline." in unwrapped(
        old
    )
    (checkout / "new.py").write_text(OPS)
    new = run("review", "--repo", checkout, "--baseline", baseline, "--format", "json")
    assert {path for _, path, _ in findings(new)} == {"new.py"}


def test_suppressions_are_added_above_the_statements(tree: Path) -> None:
    (tree / "ops.py").write_bytes(OPS.replace("\n", "\r\n").encode())
    result = run("check", tree, "--add-suppressions")
    assert result.exit_code == 0
    assert result.stdout.splitlines() == [
        "ops.py: 2 × PTO407 log-of-softmax",
        "train.py: 1 × PTO101 item-every-step",
        "Suppressed 3 places in 2 files.",
    ]
    assert (tree / "ops.py").read_bytes().count(
        b"\r\n    # ptopt: ignore[log-of-softmax] not reviewed yet\r\n    return "
    ) == 2
    assert (
        "        # ptopt: ignore[item-every-step] not reviewed yet\n        total += "
        in (tree / "train.py").read_text()
    )
    result = run("check", tree, "--exit-code")
    assert (result.exit_code, "Unused" in result.stdout) == (0, False)
    assert run("check", tree, "--add-suppressions").stdout == "Suppressed 0 places in 0 files.\n"


@pytest.mark.parametrize(
    ("reason", "end"), [("größer → later, see #12", " größer \\u2192 later, see #12"), ("", "")]
)
def test_suppressions_are_added_with_a_reason(tree: Path, reason: str, end: str) -> None:
    (tree / "ops.py").write_text(f"# coding: latin-1\n{OPS}", encoding="latin-1")
    assert run("check", tree, "--add-suppressions", "--reason", reason).exit_code == 0
    written = (tree / "ops.py").read_text(encoding="latin-1")
    assert f"    # ptopt: ignore[log-of-softmax]{end}\n    return " in written
    assert run("check", tree, "--exit-code").exit_code == 0


def test_a_suppression_of_an_unknown_rule_is_reported(tree: Path) -> None:
    (tree / "train.py").write_text(
        TRAIN.replace("loss.item()", "loss.item()  # ptopt: ignore[item-every-stp]")
    )
    assert (
        "train.py:13  unknown rule item-every-stp (did you mean item-every-step" in run("check", tree).stdout
    )


def test_two_of_a_rule_on_one_line_are_one_place_everywhere(tree: Path) -> None:
    (tree / "train.py").unlink()
    line = "torch.log(torch.softmax(x, -1)) + torch.log(torch.softmax(x, 1))"
    (tree / "ops.py").write_text(f"import torch\n\n\ndef both(x):\n    return {line}\n")
    assert "1 performance finding in 1 file" in run("check", tree).stdout
    baseline = tree / "baseline.json"
    assert run("check", tree, "--write-baseline", baseline).stdout.startswith("1 place written")
    assert "1 place in the baseline" in run("check", tree, "--baseline", baseline).stdout
    assert "Suppressed 1 place in 1 file." in run("check", tree, "--add-suppressions").stdout


def test_only_a_baseline_is_written_over(tree: Path, tmp_path: Path) -> None:
    readme = tmp_path / "README.md"
    readme.write_text("# Mine\n")
    refused = run("check", tree, "--write-baseline", readme)
    assert refused.exit_code == 2
    assert "README.md: not a baseline" in refused.stderr and readme.read_text() == "# Mine\n"


def test_what_was_suppressed_and_what_is_suppressed_are_counted_alike(tmp_path: Path) -> None:
    """A place with several rules is one place; the lines of the files count findings."""
    (tmp_path / "train.py").write_text(Path("examples/pull-request/head/train.py").read_text())
    done = run("check", tmp_path, "--add-suppressions", "--min-confidence", "0").stdout
    of = re.search(r"Suppressed (\d+) findings at (\d+) places in 1 file", done)
    assert of is not None, done
    assert sum(map(int, re.findall(r"(\d+) × ", done))) == int(of[1]) > int(of[2])
    said = run("check", tmp_path, "--min-confidence", "0").stdout
    assert f"No performance findings in 1 file, {of[2]} places suppressed." in said


def test_suppressed_findings_are_listed_with_their_reason(tree: Path) -> None:
    code = TRAIN.replace(
        "loss.item()\n", "loss.item()  # ptopt: ignore[item-every-step] needed to stop early\n"
    )
    (tree / "train.py").write_text(code)
    same = ("check", tree / "train.py", "--show-suppressed")
    assert "train.py:13  PTO101 item-every-step  needed to stop early\n" in run(*same).stdout
    line = "train.py, line 13: suppressed PTO101 item-every-step (needed to stop early).\n"
    assert line in run(*same, "--format", "concise").stdout
    assert (
        "Suppressed: PTO101 at train.py:13 (needed to stop early)\n"
        in run(*same, "--format", "github").stdout
    )
    assert '"justification": "needed to stop early"' in run(*same, "--format", "sarif").stdout
    assert "suppressed PTO101" not in run(*same[:2], "--format", "concise").stdout


def test_a_limit_of_none_counts_what_it_hides(tree: Path) -> None:
    said = run("check", tree, "--budget", "0").stdout
    assert "2 performance findings at 3 places in 2 files, none shown (comment limit reached)" in " ".join(
        said.split()
    )
    assert not said.startswith("0 ")
    first, _, second = run("check", tree, "--budget", "0").stdout.partition("shows them in full")
    assert "--budget 2" in first and "left out" in second
