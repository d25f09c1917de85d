from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from ptopt import __version__
from ptopt.cli import main

TRAIN = """\
import torch
from torch import nn


def train(model, loader, optimizer):
    model.cuda()
    total = 0.0
    for x, y in loader:
        loss = nn.functional.cross_entropy(model(x.cuda()), y.cuda())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        total += loss.item()
    return total
"""
OPS = """\
import torch


def one(x):
    return torch.log(torch.softmax(x, dim=-1))


def two(x):
    return torch.log(torch.softmax(x, dim=1))
"""


def run(*args: str | Path, stdin: bytes | None = None) -> Result:
    return CliRunner().invoke(main, [str(arg) for arg in args], input=stdin)


def command(*args: str | Path, **options: Any) -> subprocess.CompletedProcess[bytes]:
    full = [sys.executable, "-m", "ptopt.cli", *map(str, args)]
    return subprocess.run(full, capture_output=True, check=False, **options)


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    (tmp_path / "train.py").write_text(TRAIN)
    (tmp_path / "ops.py").write_text(OPS)
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests" / "test_train.py").write_text(TRAIN)
    return tmp_path


@pytest.fixture
def checkout(tree: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A branch that brings `loss.item()` into the loop of `main`."""
    for name in ("GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE"):
        monkeypatch.delenv(name, raising=False)

    def git(*args: str) -> None:
        identity = ("-c", "user.name=a", "-c", "user.email=a@example.org", "-c", "commit.gpgsign=false")
        subprocess.run(["git", *identity, *args], cwd=tree, check=True, capture_output=True)

    git("init", "-q", "-b", "main")
    (tree / "train.py").write_text(TRAIN.replace("        total += loss.item()\n", ""))
    git("add", ".")
    git("commit", "-q", "-m", "one")
    git("checkout", "-q", "-b", "branch")
    (tree / "train.py").write_text(TRAIN)
    git("commit", "-q", "-a", "-m", "two")
    return tree


def unwrapped(result: Result) -> str:
    return " ".join(result.stdout.split())


def findings(result: Result) -> list[tuple[str, str, int]]:
    assert result.exit_code in (0, 1), result.output
    return [(f["rule"], f["path"], f["start_line"]) for f in json.loads(result.stdout)["findings"]]


# -- check --------------------------------------------------------------------------------------------------------


def test_check_reviews_whole_files(tree: Path) -> None:
    result = run("check", tree, "--format", "json")
    assert set(findings(result)) == {("PTO101", "train.py", 13), ("PTO407", "ops.py", 5)}
    document = json.loads(result.stdout)
    assert document["files_reviewed"] == 2
    assert [n["path"] for n in document["not_reviewed"]] == ["tests/test_train.py"]


def test_all_paths_reviews_tests_too(tree: Path) -> None:
    assert ("PTO101", "tests/test_train.py", 13) in findings(
        run("check", tree, "--all-paths", "--format", "json")
    )


def test_rules_are_chosen_on_the_command_line(tree: Path) -> None:
    assert [f[0] for f in findings(run("check", tree, "--ignore", "pto101", "--format", "json"))] == [
        "PTO407"
    ]
    assert findings(run("check", tree, "--ignore", "sync,ops", "--format", "json")) == []
    result = run("check", tree, "--ignore", "item-every-stp")
    assert result.exit_code == 2
    assert result.stderr.startswith(
        "ptopt: error: unknown rule 'item-every-stp', did you mean item-every-step"
    )


def test_select_replaces_and_extend_select_adds(tree: Path) -> None:
    def rules(*options: str) -> list[str]:
        return sorted(f[0] for f in findings(run("check", tree, *options, "--format", "json")))

    assert rules("--select", "log-of-softmax") == ["PTO407"]
    assert rules("--select", "sync", "--extend-select", "PTO407") == ["PTO101", "PTO407"]
    assert rules("--extend-select", "log-of-softmax") == ["PTO101", "PTO407"]
    assert rules("--select", "ALL", "--ignore", "sync") == ["PTO407"]
    (tree / ".ptopt.toml").write_text('select = ["sync"]\nignore = ["PTO407"]\n')
    assert rules() == ["PTO101"]
    assert rules("--select", "PTO407") == ["PTO407"]  # over all that the file says of rules
    (tree / ".ptopt.toml").write_text('select = []\nextend-select = ["PTO407"]\n')
    assert rules() == ["PTO407"]


def test_the_configuration_file_is_read_and_can_be_another_one(tree: Path) -> None:
    (tree / ".ptopt.toml").write_text('ignore = ["PTO101"]\n')
    result = run("check", tree, "--format", "json")
    assert [f[0] for f in findings(result)] == ["PTO407"]
    assert json.loads(result.stdout)["config_path"] == ".ptopt.toml"
    other = tree / "other.toml"
    other.write_text('ignore = ["PTO407"]\n')
    assert [f[0] for f in findings(run("check", tree, "--config", other, "--format", "json"))] == ["PTO101"]


def test_a_broken_configuration_is_an_error_per_problem(tree: Path) -> None:
    (tree / ".ptopt.toml").write_text('budgt = 3\nignore = ["PTO100001"]\n')
    result = run("check", tree)
    assert result.exit_code == 2
    lines = result.stderr.splitlines()
    assert len(lines) == 2
    assert lines[0].startswith("ptopt: error: .ptopt.toml: ")
    assert "did you mean 'budget'?" in result.stderr


def test_a_budget_withholds_and_says_so(tree: Path) -> None:
    document = json.loads(run("check", tree, "--budget", "1", "--format", "json").stdout)
    assert (len(document["findings"]), len(document["over_limit"])) == (1, 1)
    assert "1 not shown (comment limit reached)" in unwrapped(run("check", tree, "--budget", "1"))


def test_min_confidence(tree: Path) -> None:
    assert findings(run("check", tree, "--min-confidence", "1", "--format", "json")) == []


def test_exit_status(tree: Path) -> None:
    assert run("check", tree).exit_code == 0
    assert run("check", tree, "--exit-code").exit_code == 1
    assert run("check", tree, "--exit-code", "--budget", "0").exit_code == 1
    assert run("check", tree, "--exit-code", "--ignore", "sync,ops").exit_code == 0


@pytest.mark.parametrize(
    "args",
    [
        ["check", "missing.py"],
        ["check", "missing/also.py"],
        ["check", "--stdin-filename", "a.py", "."],
        ["check", "-", "."],
        ["check", "-", "--add-suppressions"],
        ["check", ".", "--baseline", "missing.json"],
        ["check", ".", "--baseline", "a", "--write-baseline", "b"],
        ["check", ".", "--statistics", "--format", "json"],
        ["check", ".", "--budget", "-1"],
        ["check", ".", "--config", "missing.toml"],
        ["check", ".", "--output", "missing/out.txt"],
        ["review", "--diff", "missing.patch", "--tree", "."],
        ["review", "--tree", "."],
        ["review", "--repo", "missing"],
        ["explain", "nothing-like-it"],
        ["config", "check", "missing"],
        ["config", "show", "missing"],
        ["completion", "csh"],
        ["completion"],
        ["review", "main"],
        ["nonsense"],
        ["--nonsense"],
    ],
)
def test_errors_are_one_line_and_exit_2(
    args: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    result = run(*args)
    assert result.exit_code == 2
    assert result.stdout == ""
    assert result.stderr.startswith("ptopt: error: ")
    assert result.stderr.count("\n") == 1


def test_output_goes_to_a_file(tree: Path) -> None:
    out = tree / "report.sarif"
    result = run("check", tree, "--format", "sarif", "--output", out)
    assert result.stdout == ""
    assert json.loads(out.read_text())["version"] == "2.1.0"


def test_a_file_that_is_not_python_is_told(tree: Path) -> None:
    (tree / "bad.py").write_text("import torch\nx = loss.item(\nprint 'ptopt: '\n")
    result = run("check", tree)
    assert result.exit_code == 0
    assert "2 files not reviewed (-v lists them): does not parse with Python 3." in unwrapped(result)
    assert ": 1; tests are skipped by default (`skip`): 1." in unwrapped(result)
    assert "bad.py" not in result.stdout
    assert "bad.py" in run("check", tree, "-v").stdout.partition("Not reviewed:")[2]


def test_paths_are_relative_to_the_repository(checkout: Path) -> None:
    (checkout / "pkg").mkdir()
    (checkout / "pkg" / "ops.py").write_text(OPS)
    assert findings(run("check", checkout / "pkg", "--format", "json")) == [("PTO407", "pkg/ops.py", 5)]


def test_the_current_folder_is_the_default(tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tree)
    assert run("check").stdout == run("check", ".").stdout
    assert "Would fix 1 finding at 2 places in 1 file" in run("fix", "--diff").stderr


def test_paths_are_shown_as_seen_from_the_current_folder(
    checkout: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (checkout / "pkg").mkdir()
    (checkout / "pkg" / "ops.py").write_text(OPS)
    monkeypatch.chdir(checkout / "pkg")
    text = run("review").stdout
    assert text.startswith("ops.py:5  PTO407")
    assert "\n../train.py:13  PTO101" in text
    assert "12 │" in text  # with the code
    assert run("check", "--format", "concise").stdout.startswith("ops.py:5: PTO407")
    assert [f[1] for f in findings(run("check", "--format", "json"))] == ["pkg/ops.py"]
    assert run("fix").stdout.startswith("ops.py: 2 × PTO407")


def test_check_reads_stdin(tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tree)
    source = OPS.encode()
    assert findings(run("check", "-", "--format", "json", stdin=source)) == [("PTO407", "stdin.py", 5)]
    named = ["check", "-", "--format", "json", "--stdin-filename"]
    assert findings(run(*named, "pkg.py", stdin=source)) == [("PTO407", "pkg.py", 5)]
    assert findings(run(*named, "no/folder/yet.py", stdin=source)) == [("PTO407", "no/folder/yet.py", 5)]
    assert findings(run(*named, tree / "ops.py", stdin=source)) == [("PTO407", "ops.py", 5)]
    assert findings(run(*named, tree / "new" / "a.py", stdin=source)) == [("PTO407", "new/a.py", 5)]
    assert findings(run(*named, "tests/test_a.py", stdin=source)) == []  # as the file itself would be
    assert "not a Python file or a notebook" in run(*named, "a.txt", stdin=source).stdout


def test_fix_filters_stdin(tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tree)
    done = command("fix", "-", "--stdin-filename", "ops.py", input=OPS.replace("\n", "\r\n").encode())
    assert done.stdout.count(b"torch.log_softmax(x, dim=") == 2
    assert done.stdout.count(b"\r\n") == OPS.count("\n")
    assert done.stderr == b"Fixed 1 finding at 2 places in 1 file.\n"
    for name, text in {"tests/a.py": OPS, "b.py": "import torch\ntorch.log(torch.softmax(\n"}.items():
        done = command("fix", "-", "--stdin-filename", name, input=text.encode())
        assert done.stdout.decode() == text  # an editor puts stdout in place of its text
    assert (tree / "ops.py").read_text() == OPS


def test_one_unit_of_counting(tree: Path) -> None:
    assert "2 performance findings at 3 places in 2 files" in unwrapped(run("check", tree))
    assert "Would fix 1 finding at 2 places in 1 file; 1 finding left" in run("fix", "--diff", tree).stderr


def test_statistics(tree: Path) -> None:
    expected = (
        "findings  places  rule\n"
        "       1       2  PTO407 log-of-softmax\n"
        "       1       1  PTO101 item-every-step\n"
        "2 performance findings at 3 places in 2 files.\n"
    )
    assert run("check", tree, "--statistics").stdout == expected
    assert run("check", tree, "--statistics", "--budget", "1").stdout == expected  # the total of the table


def test_suppressed_findings_are_shown_on_demand(tree: Path) -> None:
    (tree / "train.py").write_text(TRAIN.replace("loss.item()", "loss.item()  # ptopt: ignore"))
    assert "1 suppressed" in run("check", tree).stdout
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
        b"\r\n    # ptopt: ignore[log-of-softmax]\r\n    return "
    ) == 2
    assert "        # ptopt: ignore[item-every-step]\n        total += " in (tree / "train.py").read_text()
    result = run("check", tree, "--exit-code")
    assert (result.exit_code, "Unused" in result.stdout) == (0, False)
    assert run("check", tree, "--add-suppressions").stdout == "Suppressed 0 places in 0 files.\n"


def test_a_suppression_of_an_unknown_rule_is_reported(tree: Path) -> None:
    (tree / "train.py").write_text(
        TRAIN.replace("loss.item()", "loss.item()  # ptopt: ignore[item-every-stp]")
    )
    assert (
        "train.py:13  unknown rule item-every-stp, did you mean item-every-step" in run("check", tree).stdout
    )


# -- review -------------------------------------------------------------------------------------------------------


def test_review_of_a_branch(checkout: Path) -> None:
    result = run("review", "--repo", checkout, "--format", "json")
    assert findings(result) == [("PTO101", "train.py", 13)]
    assert findings(run("review", "--repo", checkout, "--base", "HEAD", "--format", "json")) == []
    result = run("review", "--repo", checkout, "--base", "main", "--head", "branch", "--format", "json")
    assert findings(result) == [("PTO101", "train.py", 13)]


def test_review_of_a_patch(checkout: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    diff = subprocess.run(["git", "diff", "main"], cwd=checkout, check=True, capture_output=True).stdout
    patch = tmp_path_factory.mktemp("patch") / "change.patch"
    patch.write_bytes(diff)
    expected = [("PTO101", "train.py", 13)]
    assert findings(run("review", "--diff", patch, "--tree", checkout, "--format", "json")) == expected
    assert (
        findings(run("review", "--diff", "-", "--tree", checkout, "--format", "json", stdin=diff)) == expected
    )


def test_review_refuses_what_is_no_diff_and_an_unknown_revision(checkout: Path) -> None:
    result = run("review", "--diff", "-", "--tree", checkout, stdin=b"@@@ -1,1 -1,1 +1,1 @@@\n")
    assert (result.exit_code, result.stdout) == (2, "")
    result = run("review", "--repo", checkout, "--base", "no-such")
    assert result.exit_code == 2
    assert "no-such" in result.stderr
    result = run("review", "--diff", "-", "--tree", checkout, "--base", "main", stdin=b"")
    assert result.stderr == (
        "ptopt: error: --diff cannot be combined with --base and --head; see `ptopt review --help`\n"
    )


def test_review_keeps_to_the_budget(checkout: Path) -> None:
    document = json.loads(run("review", "--repo", checkout, "--budget", "0", "--format", "json").stdout)
    assert (len(document["findings"]), len(document["over_limit"])) == (0, 1)


def test_review_says_what_it_compared(checkout: Path) -> None:
    (checkout / "new.py").write_text(OPS)
    result = run("review", "--repo", checkout)
    assert (
        "2 performance findings at 3 places in 2 files (main...working tree, with 1 untracked file)"
        in unwrapped(result)
    )
    subprocess.run(["git", "update-ref", "refs/remotes/origin/develop", "HEAD"], cwd=checkout, check=True)
    ref = ["git", "symbolic-ref", "refs/remotes/origin/HEAD", "refs/remotes/origin/develop"]
    subprocess.run(ref, cwd=checkout, check=True)
    result = run("review", "--repo", checkout)
    assert "1 performance finding at 2 places in 1 file (origin/develop...working tree" in unwrapped(result)
    (checkout / "new.py").unlink()
    result = run("review", "--repo", checkout)
    assert result.stdout == "No Python files or notebooks to review (origin/develop...working tree).\n"
    document = json.loads(run("review", "--repo", checkout, "--format", "json").stdout)
    assert document["compared"] == "origin/develop...working tree"


def test_a_wrong_tree_is_an_error(checkout: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    diff = subprocess.run(["git", "diff", "main"], cwd=checkout, check=True, capture_output=True).stdout
    result = run("review", "--diff", "-", "--tree", tmp_path_factory.mktemp("other"), stdin=diff)
    assert (result.exit_code, result.stdout) == (2, "")
    assert "holds no Python file of the patch, such as 'train.py'" in result.stderr


# -- fix ----------------------------------------------------------------------------------------------------------


def test_fix_writes_the_safe_fixes_once(tree: Path) -> None:
    (tree / "ops.py").write_bytes(OPS.replace("\n", "\r\n").encode())
    (tree / "ops.py").chmod(0o755)
    (tree / "link.py").symlink_to("ops.py")
    result = run("fix", tree)
    assert result.exit_code == 0
    assert "ops.py: 2 × PTO407 log-of-softmax\n" in result.stdout
    assert result.stdout.endswith(
        "Fixed 1 finding at 2 places in 1 file; 1 finding left, 1 with an unsafe fix (`--unsafe`), "
        "1 file not reviewed, see `ptopt check`.\n"
    )
    after = OPS.replace("torch.log(torch.softmax(x, dim=-1))", "torch.log_softmax(x, dim=-1)")
    after = after.replace("torch.log(torch.softmax(x, dim=1))", "torch.log_softmax(x, dim=1)")
    assert (tree / "ops.py").read_bytes() == after.replace("\n", "\r\n").encode()
    assert stat.S_IMODE((tree / "ops.py").stat().st_mode) == 0o755
    assert (tree / "train.py").read_text() == TRAIN
    assert sorted(p.name for p in tree.iterdir()) == ["link.py", "ops.py", "tests", "train.py"]
    rest = "1 finding left, 1 with an unsafe fix (`--unsafe`), 1 file not reviewed, see `ptopt check`"
    assert run("fix", tree).stdout == f"Nothing to fix; {rest}.\n"


def test_fix_unsafe(tree: Path) -> None:
    result = run("fix", "--unsafe", tree / "train.py", "--exit-code")
    assert result.exit_code == 1
    assert "total += loss.detach()" in (tree / "train.py").read_text()


def test_fix_diff_is_a_patch_and_changes_nothing(tree: Path) -> None:
    (tree / "ops.py").write_text(OPS.rstrip("\n"))
    done = command("fix", "--diff", tree)
    assert done.returncode == 0
    assert (tree / "ops.py").read_text() == OPS.rstrip("\n")
    subprocess.run(["git", "apply", "-"], cwd=tree, input=done.stdout, check=True)
    run("fix", tree)
    assert command("fix", "--diff", tree).stdout == b""
    assert "log_softmax" in (tree / "ops.py").read_text()


def test_fix_follows_a_named_link_and_keeps_it(tree: Path) -> None:
    link = tree / "named.py"
    link.symlink_to("ops.py")
    run("fix", link)
    assert link.is_symlink()
    assert "log_softmax" in (tree / "ops.py").read_text()


# -- notebooks ----------------------------------------------------------------------------------------------------


@pytest.fixture
def notebook(tmp_path: Path) -> Path:
    def cell(kind: str, source: str) -> dict[str, Any]:
        return {"cell_type": kind, "metadata": {}, "source": source.splitlines(keepends=True)}

    one, two = OPS.split("\n\n\n")[1:]
    cells = [cell("markdown", "# Title\n"), cell("code", f"%matplotlib inline\n{TRAIN}")]
    cells += [cell("code", f"import torch\n\n{one}\n"), cell("code", two.rstrip("\n"))]
    document = {"cells": cells, "metadata": {}, "nbformat": 4, "nbformat_minor": 5}
    (tmp_path / "nb.ipynb").write_text(json.dumps(document, indent=1))
    return tmp_path / "nb.ipynb"


def test_a_notebook_is_named_by_cell_with_its_code_and_its_fix(notebook: Path) -> None:
    text = run("check", notebook).stdout
    assert text.startswith("nb.ipynb:cell 3:4  PTO407 log-of-softmax")
    assert (
        "\n  3 │ def one(x):\n  4 ┃     return torch.log(torch.softmax(x, dim=-1))\n\n  Also at cell 4:2\n"
        in text
    )
    assert (
        "\n  4 - return torch.log(torch.softmax(x, dim=-1))\n    + return torch.log_softmax(x, dim=-1)\n"
        in text
    )
    assert "nb.ipynb:cell 2:14  PTO101 item-every-step" in text
    assert "of the loop at line 9 of cell 2." in " ".join(text.split())
    assert "\n  line 12 of cell 2: the training step: `loss.backward()`\n" in text
    assert "Fix (apply by hand; assumes that `total` becomes a tensor" in text
    markdown = run("check", notebook, "--format", "markdown").stdout
    assert "### `nb.ipynb:cell 3:4` PTO407" in markdown
    assert "line 12 of cell 2: the training step" in markdown
    assert "No newline" not in markdown


def test_lines_of_a_notebook_in_formats_for_programs_are_those_of_the_file(notebook: Path) -> None:
    lines = notebook.read_text().split("\n")
    (first, second) = json.loads(run("check", notebook, "--format", "json").stdout)["findings"]
    assert "torch.log(torch.softmax(x, dim=-1))" in lines[first["start_line"] - 1]
    assert first["cell"] == {"number": 3, "start_line": 4, "end_line": 4}
    assert (first["fix"]["safety"], second["fix"]["safety"]) == ("display", "display")
    assert (
        run("fix", notebook.parent).stdout
        == "Nothing to fix; 2 findings at 3 places left, see `ptopt check`.\n"
    )
    assert run("check", notebook, "--add-suppressions").stdout == (
        "Suppressed 0 places in 0 files; 3 places left, where a comment cannot stand.\n"
    )
    assert notebook.read_text().split("\n") == lines


# -- the rest -----------------------------------------------------------------------------------------------------


def test_rules_lists_every_rule() -> None:
    listed = json.loads(run("rules", "--format", "json").stdout)
    assert {"id", "name", "family", "severity", "default", "since", "until", "summary"} == set(listed[0])
    assert [rule["id"] for rule in listed] == sorted(rule["id"] for rule in listed)
    table = run("rules").stdout
    assert all(rule["id"] in table and rule["name"] in table for rule in listed)
    assert run("rules", "--format", "markdown").stdout.count("\n| PTO") == len(listed)


def test_rules_docs_writes_a_page_per_rule(tmp_path: Path) -> None:
    assert run("rules", "--docs", tmp_path / "pages").exit_code == 0
    assert (tmp_path / "pages" / "item-every-step.md").read_text() == run("explain", "PTO101").stdout
    assert "(./item-every-step.md)" in (tmp_path / "pages" / "README.md").read_text()


def test_explain_knows_ids_and_names_and_near_misses() -> None:
    page = run("explain", "PTO101").stdout
    assert page == run("explain", "item-every-step").stdout
    assert "Why it is slow" in page
    error = run("explain", "item-evry-step").stderr
    assert error.startswith("ptopt: error: unknown rule 'item-evry-step', did you mean item-every-step")
    error = run("explain", "loader-without").stderr
    assert error.endswith("did you mean loader-without-pinning or loader-without-workers?\n")
    error = run("explain", "sync").stderr
    assert error == "ptopt: error: 'sync' is a family; `ptopt rules` lists the rules of each\n"


def test_config_schema_and_check(tmp_path: Path) -> None:
    schema = json.loads(run("config", "schema").stdout)
    assert "min-confidence" in schema["properties"]
    assert run("config", "check", tmp_path).stdout == "No configuration file; the defaults apply\n"
    own = tmp_path / ".ptopt.toml"
    own.write_text("budget = 3\n")
    assert run("config", "check", tmp_path).stdout == ".ptopt.toml: no problems\n"
    own.write_text("budget = -3\n")
    assert run("config", "check", own).exit_code == 2


def test_config_show_prints_what_a_run_would_use(checkout: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shown = run("config", "show", checkout).stdout
    assert shown.startswith("# No configuration file; the defaults apply; ")
    assert "\n# select: the rules that are on by default\n" in shown
    (checkout / ".ptopt.toml").write_text(
        'budget = 3\nselect = ["PTO101"]\n[per-path-ignores]\n"a b/" = ["sync"]\n'
    )
    (checkout / "pkg").mkdir()
    monkeypatch.chdir(checkout / "pkg")  # the settings of the repository hold in all its folders
    shown = run("config", "show").stdout
    assert shown.startswith("# .ptopt.toml; 1 of ")
    assert '\nselect = ["PTO101"]\n' in shown
    assert "\nbudget = 3\n" in shown
    assert "\nignore = []  # default\n" in shown
    again = checkout / "shown.toml"
    again.write_text(shown)  # it is a configuration
    assert run("config", "check", again).exit_code == 0
    assert "\nbudget = 3\n" in run("config", "show", again).stdout


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("ptopt explain item-e", {"item-every-step"}),
        ("ptopt explain pto101", {"PTO101"}),
        ("ptopt check --select sync,item-e", {"sync,item-every-step"}),
        ("ptopt fix --ignore syn", {"sync", "synchronize-every-step", "synchronous-save-every-step"}),
    ],
)
def test_rule_names_are_completed(words: str, expected: set[str]) -> None:
    number = str(words.count(" "))
    env = os.environ | {"_PTOPT_COMPLETE": "bash_complete", "COMP_WORDS": words, "COMP_CWORD": number}
    code = "from ptopt.cli import main; main(prog_name='ptopt')"
    done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, check=True)
    assert expected <= {line.partition(",")[2] for line in done.stdout.splitlines()}


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion(shell: str) -> None:
    script = run("completion", shell).stdout
    assert "_PTOPT_COMPLETE" in script
    word = "che" if shell == "fish" else "1"  # fish gives the word itself, the others its place
    env = os.environ | {"_PTOPT_COMPLETE": f"{shell}_complete", "COMP_WORDS": "ptopt che", "COMP_CWORD": word}
    code = "from ptopt.cli import main; main(prog_name='ptopt')"
    done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, check=True)
    assert "check" in done.stdout


def test_version_and_help() -> None:
    assert run("--version").stdout == f"ptopt {__version__}\n"
    assert run().stdout == run("--help").stdout
    for name in ("review", "check", "fix", "rules", "explain", "config", "completion"):
        assert name in run("--help").stdout
        assert run(name, "--help").exit_code == 0


def test_version_imports_nothing_heavy() -> None:
    code = "import sys; from ptopt.cli import main; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = {name.partition(".")[0] for name in done.stdout.split()}
    assert not loaded & {"rich", "pydantic", "unidiff", "tomllib", "tomli", "packaging", "json", "asyncio"}
    assert not {name for name in done.stdout.split() if name.startswith("ptopt.") and "cli" not in name}


def test_a_pull_request_is_reviewed_without_rich_for_json(checkout: Path) -> None:
    code = "import sys; from ptopt.cli import main\ntry: main()\nfinally: print('rich' in sys.modules, file=sys.stderr)"
    args = [sys.executable, "-c", code, "review", "--repo", str(checkout), "--format", "json"]
    assert subprocess.run(args, capture_output=True, text=True, check=True).stderr == "False\n"


@pytest.mark.parametrize(
    ("variables", "colored"), [({}, True), ({"NO_COLOR": "1"}, False), ({"TERM": "dumb"}, False)]
)
def test_colour_and_progress_on_a_terminal(tree: Path, variables: dict[str, str], colored: bool) -> None:
    for number in range(60):
        (tree / f"more{number}.py").write_text("x = 1\n")
    primary, secondary = pytest.importorskip("pty").openpty()
    env = (
        {k: v for k, v in os.environ.items() if k != "NO_COLOR"}
        | {"TERM": "xterm", "COLUMNS": "90"}
        | variables
    )
    process = subprocess.Popen(
        [sys.executable, "-m", "ptopt.cli", "check", str(tree)],
        stdout=secondary,
        stderr=subprocess.PIPE,
        env=env,
    )
    os.close(secondary)
    seen = b""
    while True:
        try:
            part = os.read(primary, 65536)
        except OSError:  # Linux: the other side is closed
            break
        if not part:
            break
        seen += part
    os.close(primary)
    assert process.wait() == 0
    assert process.stderr is not None
    assert process.stderr.read() == b""  # no progress: stderr is no terminal
    process.stderr.close()
    assert (b"\x1b[" in seen) is colored
    assert b"PTO407" in seen


@pytest.mark.slow
def test_a_closed_pipe_and_an_ascii_stdout_are_no_crash(tree: Path) -> None:
    for number in range(300):
        (tree / f"ops{number}.py").write_text(OPS)
    script = f"{sys.executable} -m ptopt.cli check {tree} | head -n 1"
    done = subprocess.run(["bash", "-c", script], capture_output=True, check=True)
    assert b"Traceback" not in done.stderr
    done = command(
        "check", tree / "train.py", env=os.environ | {"PYTHONIOENCODING": "ascii", "PYTHONUTF8": "0"}
    )
    assert done.returncode == 0
    assert b"\\u2503" in done.stdout


def test_a_group_without_a_command_prints_its_help() -> None:
    result = run("config")
    assert (result.exit_code, result.stderr) == (0, "")
    assert result.stdout.startswith("Usage: ")


def test_a_named_file_that_is_no_python_is_told(tmp_path: Path) -> None:
    (tmp_path / "Makefile").write_text("all:\n")
    result = run("check", tmp_path / "Makefile")
    assert result.stdout.startswith("No files reviewed.\nNot reviewed:\n")
    assert "not a Python file or a notebook: Makefile" in result.stdout


def test_the_diff_of_a_fix_has_the_bytes_of_the_file(tmp_path: Path) -> None:
    before = f"# coding: latin-1\n{OPS}# größer".encode("latin-1").replace(b"\n", b"\r\n")
    (tmp_path / "a b.py").write_bytes(before)
    done = command("fix", "--diff", tmp_path)
    subprocess.run(["git", "init", "-q"], cwd=tmp_path, check=True)
    subprocess.run(["git", "apply", "-"], cwd=tmp_path, check=True, input=done.stdout)
    assert (tmp_path / "a b.py").read_bytes() == before.replace(
        b"torch.log(torch.softmax(x, dim=-1))", b"torch.log_softmax(x, dim=-1)"
    ).replace(b"torch.log(torch.softmax(x, dim=1))", b"torch.log_softmax(x, dim=1)")


def test_fix_tells_how_many_files_it_could_not_read(tmp_path: Path) -> None:
    (tmp_path / "broken.py").write_text("import torch\ntorch.log(torch.softmax(\n")
    assert run("fix", tmp_path).stdout == "Nothing to fix; 1 file not reviewed, see `ptopt check`.\n"


def test_review_goes_into_master_where_there_is_no_main(checkout: Path) -> None:
    subprocess.run(["git", "branch", "-m", "main", "master"], cwd=checkout, check=True)
    assert findings(run("review", "--repo", checkout, "--format", "json")) == [("PTO101", "train.py", 13)]
