"""Labelled commits of tiny clones: shown as the problem came in, scored, kept for the next run, and reported by part only."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from benchmarks.quality import changes, fixes
from benchmarks.quality.changes import NotAvailableError, case_material, open_clone
from benchmarks.quality.parts import TUNED, part_of, read_names
from tests.benchmarks.clones import SLOW, Repository

ROOT = Path(__file__).resolve().parents[2]
FAST = SLOW.replace("loss.item()", "loss.detach()")
LINE = 10
WORK, JUDGE = "acme/net", "acme/llm"  # by their hashes


@pytest.fixture
def repository(tmp_path: Path) -> Repository:
    return Repository(tmp_path / "clones" / WORK.replace("/", "+") / "repo")


def fix(parent: str, sha: str, **more: Any) -> dict[str, Any]:
    place = {"path": "train.py", "start": LINE, "end": LINE}
    kind = {"category": "host-device-sync", "difficulty": "easy", "locality": "line"}
    return {"id": "q1", "repo": WORK, "sha": sha, "parent": parent} | place | kind | more


def run(tmp_path: Path, cases: list[dict[str, Any]], *options: object) -> None:
    file = tmp_path / "cases.jsonl"
    file.write_text("".join(json.dumps(case) + "\n" for case in cases))
    common = ["--clones", tmp_path / "clones", "--cases", file, "--cache", tmp_path / "cache", "--all-rules"]
    assert fixes.main([*map(str, common), "--min-confidence", "0", *map(str, options)]) == 0


def material(repository: Repository, case: dict[str, Any]) -> changes.Material:
    with open_clone(repository.path) as clone:
        return case_material(clone, case)


def shown(repository: Repository, case: dict[str, Any]) -> tuple[str, str, int]:
    made = material(repository, case)
    return made.mode, made.commit, made.start


# -- the parts ---------------------------------------------------------------------------------------------------


def test_parts_are_by_hash_and_the_tuned_ones_are_work(tmp_path: Path) -> None:
    names = [f"owner/name{number}" for number in range(2000)]
    shares = [sum(part_of(name) == part for name in names) / 2000 for part in ("work", "calibrate", "judge")]
    assert shares == pytest.approx([0.5, 0.2, 0.3], abs=0.03)
    assert (part_of(WORK), part_of(JUDGE), part_of(JUDGE, {JUDGE})) == ("work", "judge", "work")
    (tmp_path / "plain").write_text("# names\na/b\n\n")
    (tmp_path / "rows").write_text('{"repo": "c/d"}\n')
    assert read_names([tmp_path / "plain", tmp_path / "rows"]) == {"a/b", "c/d"}
    assert all(part_of(name, read_names([TUNED])) == "work" for name in read_names([TUNED]))


# -- what is shown -----------------------------------------------------------------------------------------------


def test_a_fix_is_shown_backwards(repository: Repository) -> None:
    slow = repository.commit("start", SLOW)
    case = fix(slow, repository.commit("faster", FAST))
    assert shown(repository, case) == ("revert", slow, LINE)
    (file,) = material(repository, case).files
    assert (file["added"], file["head"]) == ([LINE], SLOW)


def test_the_focused_commit_that_brought_it_in_is_shown(repository: Repository) -> None:
    repository.commit("start", FAST)
    slow = repository.commit("slower", SLOW)
    fast = repository.commit("faster", FAST)
    origin = {"intro_sha": slow, "intro_path": "train.py", "intro_start": LINE, "intro_end": LINE}
    focused = fix(slow, fast, **origin, intro_kind="focused", intro_share=1.0)
    assert shown(repository, focused) == ("intro", slow, LINE)
    assert shown(repository, {**focused, "intro_share": 0.4})[0] == "revert"
    assert shown(repository, {**focused, "intro_kind": "bulk"})[0] == "revert"
    assert shown(repository, {**focused, "intro_start": 1, "intro_end": 2})[0] == "revert"


def test_a_root_commit_can_have_brought_it_in(repository: Repository) -> None:
    slow = repository.commit("start", SLOW)
    fast = repository.commit("faster", FAST)
    origin = {"intro_sha": slow, "intro_path": "train.py", "intro_start": LINE, "intro_end": LINE}
    case = fix(slow, fast, **origin, intro_kind="focused", intro_share=1.0)
    (file,) = material(repository, case).files
    assert (file["status"], len(file["added"])) == ("added", SLOW.count("\n"))


def test_a_problem_that_no_diff_adds_is_shown_in_its_file(repository: Repository) -> None:
    slow = repository.commit("start", SLOW)
    case = fix(slow, repository.commit("more", SLOW + "x = 1\n"))
    assert shown(repository, case) == ("snapshot", slow, LINE)


def test_clean_commits_and_whole_files_are_shown_as_they_stand(repository: Repository) -> None:
    first = repository.commit("start", FAST)
    sha = repository.commit("more", FAST + "x = 1\n")
    clean = {**fix(first, sha), "id": "n1", "start": 12, "end": 12}
    assert shown(repository, clean) == ("commit", sha, 12)
    whole = {"id": "w1", "use": "recall", "repo": WORK, "sha": sha, "path": "train.py", "lines": 12}
    assert shown(repository, whole) == ("snapshot", sha, 1)


def test_all_python_files_of_the_commit_belong_to_it(repository: Repository) -> None:
    others = {f"pack/m{number}.py": "x = 1\n" for number in range(changes.MOST_FILES + 5)}
    slow = repository.commit_files("start", {"train.py": SLOW, "notes.txt": "a\n", **others})
    changed = dict.fromkeys(others, "x = 2\n")
    case = fix(slow, repository.commit_files("faster", {"train.py": FAST, "notes.txt": "b\n", **changed}))
    paths = [file["path"] for file in material(repository, case).files]
    assert len(paths) == changes.MOST_FILES and "train.py" in paths
    assert "notes.txt" not in paths


def test_files_that_are_not_in_the_clone_are_left_out(repository: Repository) -> None:
    slow = repository.commit_files("start", {"train.py": SLOW, "b.py": "x = 1\n", "c.py": "x = 1\n"})
    changed = {"train.py": FAST, "b.py": "x = 2\n", "c.py": "x = 3\n"}
    case = fix(slow, repository.commit_files("faster", changed))
    repository.lose("HEAD:b.py")
    assert [file["path"] for file in material(repository, case).files] == ["c.py", "train.py"]
    repository.lose(f"{slow}:train.py")
    with pytest.raises(NotAvailableError):
        material(repository, case)


def test_a_commit_that_is_not_in_the_clone_is_not_available(repository: Repository) -> None:
    sha = repository.commit("start", SLOW)
    with pytest.raises(NotAvailableError):
        material(repository, fix("1" * 40, sha))


def test_the_facts_are_those_of_the_commit(repository: Repository) -> None:
    slow = repository.commit_files("start", {"train.py": SLOW, "requirements.txt": "torch==2.1\n"})
    fast = repository.commit_files("faster", {"train.py": FAST, "requirements.txt": "torch==2.9\n"})
    assert material(repository, fix(slow, fast)).facts == {"requirements.txt": "torch==2.1\n"}


def test_bytes_that_are_no_utf8_stay(repository: Repository) -> None:
    (repository.path / "train.py").write_bytes(b"# coding: latin-1\n# \xe9\n" + SLOW.encode())
    slow = repository.commit_files("start", {})
    fast = repository.commit("faster", FAST)
    (file,) = material(repository, fix(slow, fast, start=LINE + 2, end=LINE + 2)).change().files
    assert (file.head or b"").startswith(b"# coding: latin-1\n# \xe9\n") and LINE + 2 in file.added


# -- the command -------------------------------------------------------------------------------------------------


def test_recall_and_clean_commits_are_printed(
    repository: Repository, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    slow = repository.commit("start", SLOW)
    fast = repository.commit("faster", FAST)
    far = fix(slow, fast, id="q2", category="slow-conversion", difficulty="hard")
    clean = {**fix(slow, fast), "id": "n1"}
    gone = fix("1" * 40, "2" * 40, id="q3")
    elsewhere = fix(slow, fast, id="q4", repo="acme/vision")
    run(tmp_path, [fix(slow, fast), far, clean, gone, elsewhere], "--part", "work", "--verbose")
    out = capsys.readouterr().out
    assert "q1 problem (revert) host-device-sync easy: found 1/1" in out
    assert "train.py:10 item-every-step" in out
    assert re.search(r"easy +1/1 +100%\n +hard +0/1 +0%", out)
    assert re.search(r"revert +1/2 +50%", out)
    assert "problems found          1/2 50.0% [9.5%, 90.5%]" in out
    assert "without regressions   1/2" in out and "by regressions        0/2" in out
    assert "clean commits commented 0/1" in out
    assert (
        "not available           1 (no clone)" in out
        and "not available           1 (not in the clone)" in out
    )


def test_what_was_made_once_needs_no_clone(
    repository: Repository, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    slow = repository.commit("start", SLOW)
    cases = [fix(slow, repository.commit("faster", FAST))]
    run(tmp_path, cases)
    (tmp_path / "clones" / "acme+net").rename(tmp_path / "elsewhere")
    first = capsys.readouterr().out
    run(tmp_path, cases)
    assert capsys.readouterr().out == first
    run(tmp_path, [{**cases[0], "start": 1, "end": 1}])  # another label is another case
    assert "1 (no clone)" in capsys.readouterr().out


def test_single_cases_are_shown_of_work_only(
    repository: Repository, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    slow = repository.commit("start", SLOW)
    fast = repository.commit("faster", FAST)
    cases = [fix(slow, fast), fix(slow, fast, id="n2"), fix(slow, fast, id="q3", repo=JUDGE)]
    cases[1] |= {"sha": slow, "parent": None}  # a clean commit that is commented
    for part in ([], ["--part", "judge"], ["--part", "calibrate"]):
        with pytest.raises(SystemExit):
            run(tmp_path, cases, "--verbose", *part)
    capsys.readouterr()
    run(tmp_path, cases)
    assert "n2" not in capsys.readouterr().out
    run(tmp_path, cases, "--part", "work")
    out = capsys.readouterr().out
    assert "n2 host-device-sync: train.py:10 item-every-step" in out and "problems found          1/1" in out
    run(tmp_path, cases, "--part", "judge")
    assert "problems found          0/0" in capsys.readouterr().out  # its clone is not there
    run(tmp_path, cases, "--part", "judge", "--tuned", tmp_path / "cases.jsonl")
    assert "not available" not in capsys.readouterr().out


def test_a_budget_of_none_says_nothing(
    repository: Repository, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    slow = repository.commit("start", SLOW)
    run(tmp_path, [fix(slow, repository.commit("faster", FAST))], "--budget", 0)
    assert "problems found          0/1" in capsys.readouterr().out


@pytest.mark.slow
def test_the_command_in_two_processes(repository: Repository, tmp_path: Path) -> None:
    slow = repository.commit("start", SLOW)
    case = fix(slow, repository.commit("faster", FAST))
    (tmp_path / "cases.jsonl").write_text(json.dumps(case) + "\n")
    command = [
        sys.executable, "-m", "benchmarks.quality", "fixes", "--clones", tmp_path / "clones", "--cases",
        tmp_path / "cases.jsonl", "--cache", tmp_path / "cache", "--jobs", "2", "--all-rules", "--min-confidence", "0",
    ]  # fmt: skip
    done = subprocess.run(list(map(str, command)), cwd=ROOT, check=True, capture_output=True, text=True)
    assert "problems found          1/1" in done.stdout and done.stderr == ""


# -- other tools -------------------------------------------------------------------------------------------------

TORCHFIX = """#!{python}
import pathlib, sys
if sys.argv[1] == "--version":
    print("1.0")
    sys.exit()
assert sys.argv[1:3] == ["--select", "ALL"]
for file in pathlib.Path(sys.argv[-1]).iterdir():
    for number, line in enumerate(file.read_text().splitlines(), 1):
        if "{what}" in line:
            print(f"{{file}}:{{number}}:9: TOR1 [*] Use of .item")
            print(f"--- {{file}}")
with open("{log}", "a") as log:
    log.write("run\\n")
print("Finished checking 1 files.", file=sys.stderr)
sys.exit({status})
"""


def tool(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, what: str = ".item()", status: int = 1) -> Path:
    """A TorchFix that reports lines with a word; it writes down that it ran."""
    log = tmp_path / "log"
    script = tmp_path / "torchfix"
    script.write_text(TORCHFIX.format(python=sys.executable, what=what, log=log, status=status))
    script.chmod(0o755)
    monkeypatch.setattr("benchmarks.quality.baselines.shutil.which", lambda name, path=None: str(script))
    return log


def test_another_tool_is_scored_on_added_lines(
    repository: Repository,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    log = tool(tmp_path, monkeypatch)
    slow = repository.commit_files("start", {"train.py": SLOW + "a.item()\n", "tests/a.py": SLOW})
    fast = repository.commit_files("faster", {"train.py": FAST + "a.item()\n", "tests/a.py": FAST})
    cases = [fix(slow, fast), fix(slow, fast, id="q2", start=1, end=1)]
    for _ in range(2):
        run(tmp_path, cases, "--tool", "torchfix", "--part", "work", "-v")
        out = capsys.readouterr().out
        # Neither the line that the change did not add nor the test.
        assert "found 1/1\n    train.py:10 TOR1\nq2" in out
        assert "problems found          1/2" in out and "within three lines" in out
        assert "regressions" not in out
    assert log.read_text() == "run\n"


def test_a_tool_that_is_missing_or_fails_is_an_error(
    repository: Repository,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    slow = repository.commit("start", SLOW)
    cases = [fix(slow, repository.commit("faster", FAST))]
    monkeypatch.setattr("benchmarks.quality.baselines.shutil.which", lambda name, path=None: None)
    with pytest.raises(SystemExit):
        run(tmp_path, cases, "--tool", "torchfix")
    assert "torchfix is not installed: pip install --group quality-benchmark" in capsys.readouterr().err
    tool(tmp_path, monkeypatch)
    script = tmp_path / "torchfix"
    script.write_text(script.read_text().replace("Finished", "Failed while"))
    with pytest.raises(SystemExit):
        run(tmp_path, cases, "--tool", "torchfix")
    assert "torchfix failed" in capsys.readouterr().err


def test_ruff_is_run_with_its_performance_rules(
    repository: Repository, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    slow = "import torch\n\n\ndef f(xs):\n    ys = []\n    for x in xs:\n        ys.append(x + 1)\n    return ys\n"
    first = repository.commit("start", slow)
    fast = repository.commit("faster", "import torch\n\n\ndef f(xs):\n    return [x + 1 for x in xs]\n")
    run(tmp_path, [fix(first, fast, start=7, end=7)], "--tool", "ruff", "--part", "work", "-v")
    assert "train.py:7 PERF401" in capsys.readouterr().out
