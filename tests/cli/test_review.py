from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.cli.command import OPS, findings, run, unwrapped


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
    assert unwrapped(result).strip() == (
        "No Python, notebooks or configurations to review (origin/develop...working tree). The change has no file that "
        "ptopt reviews: --base REV compares with another commit, and `ptopt check` reviews whole files."
    )
    document = json.loads(run("review", "--repo", checkout, "--format", "json").stdout)
    assert document["reviewed"] == []
    assert document["compared"] == "origin/develop...working tree"


def test_between_two_commits_the_working_tree_is_not_read(checkout: Path) -> None:
    def git(*arguments: str) -> None:
        identity = ("-c", "user.name=a", "-c", "user.email=a@example.org", "-c", "commit.gpgsign=false")
        subprocess.run(["git", *identity, *arguments], cwd=checkout, check=True, capture_output=True)

    def reviewed() -> dict[str, Any]:
        result = run("review", "--repo", checkout, "--base", "main", "--head", "branch", "--format", "json")
        assert result.exit_code == 0, result.stderr
        document: dict[str, Any] = json.loads(result.stdout)
        return document

    (checkout / "conf").mkdir()
    unpinned = {
        "zero_optimization": {"stage": 2, "offload_optimizer": {"device": "cpu", "pin_memory": False}}
    }
    (checkout / "conf" / "zero.json").write_text(json.dumps(unpinned, indent=1))
    git("add", "conf")
    git("commit", "-q", "-m", "a configuration that nothing names")
    before = reviewed()
    (checkout / "NOTES.md").write_text("run `deepspeed train.py --deepspeed conf/zero.json`\n")
    (checkout / ".ptopt.toml").write_text('ignore = ["PTO101"]\n')
    (checkout / "requirements.txt").write_text("torch==1.4\n")
    assert reviewed() == before
    # What the branch says of settings counts once it is merged; what it says of configurations counts now.
    git("add", "NOTES.md", ".ptopt.toml")
    git("commit", "-q", "-m", "named")
    (checkout / "NOTES.md").unlink()
    (checkout / ".ptopt.toml").unlink()
    named = reviewed()
    assert [f["rule"] for f in named["findings"] if f["rule"] == "PTO101"] == ["PTO101"]
    assert named != before
    git("checkout", "-q", "main")
    (checkout / ".ptopt.toml").write_text('ignore = ["PTO101"]\n')
    git("add", ".ptopt.toml")
    git("commit", "-q", "-m", "settings")
    git("checkout", "-q", "branch")
    assert "PTO101" not in json.dumps(reviewed()["findings"])


def test_a_wrong_tree_is_an_error(checkout: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    diff = subprocess.run(["git", "diff", "main"], cwd=checkout, check=True, capture_output=True).stdout
    result = run("review", "--diff", "-", "--tree", tmp_path_factory.mktemp("other"), stdin=diff)
    assert (result.exit_code, result.stdout) == (2, "")
    assert "holds no Python file of the patch, such as 'train.py'" in result.stderr


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
    monkeypatch.chdir(checkout.parent)  # above the repository
    at = f"{checkout.name}/train.py:13"
    assert f"\n{at}: PTO101" in run("check", checkout, "--format", "concise").stdout
    assert run("review", "--repo", checkout).stdout.startswith(f"{at}\n  PTO101")


def test_review_goes_into_master_where_there_is_no_main(checkout: Path) -> None:
    subprocess.run(["git", "branch", "-m", "main", "master"], cwd=checkout, check=True)
    assert findings(run("review", "--repo", checkout, "--format", "json")) == [("PTO101", "train.py", 13)]


def test_a_pull_request_is_reviewed_without_rich_for_json(checkout: Path) -> None:
    code = "import sys; from ptopt.cli import main\ntry: main()\nfinally: print('rich' in sys.modules, file=sys.stderr)"
    args = [sys.executable, "-c", code, "review", "--repo", str(checkout), "--format", "json"]
    assert subprocess.run(args, capture_output=True, text=True, check=True).stderr == "False\n"


@pytest.mark.parametrize(
    ("given", "options"),
    [
        ("HEAD~1..HEAD", "--base HEAD~1 --head HEAD"), ("main...branch", "--base main --head branch"), ("main..", "--base main"),
    ],
)  # fmt: skip
def test_a_range_of_git_is_named_as_the_two_options(checkout: Path, given: str, options: str) -> None:
    result = run("review", "--repo", checkout, given)
    assert result.exit_code == 2
    assert f"{given} is a range; write {options}" in result.stderr
    assert "extra argument" in run("review", "--repo", checkout, "branch").stderr


@pytest.mark.parametrize("patch", [b"", b"\n"])
def test_an_empty_patch_is_wrong_input(tree: Path, patch: bytes) -> None:
    result = run("review", "--diff", "-", "--tree", tree, stdin=patch)
    assert (result.exit_code, result.stderr, result.stdout) == (
        2,
        "ptopt: error: <stdin>: the patch is empty; `git diff main...HEAD` makes one\n",
        "",
    )


def test_a_branch_without_changes_is_clean(checkout: Path) -> None:
    result = run("review", "--repo", checkout, "--base", "HEAD", "--exit-code")
    assert result.exit_code == 0
    assert "No Python, notebooks or configurations to review (HEAD...working tree)." in unwrapped(result)
