from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from tests.cli.command import OPS, TRAIN, findings, run, unwrapped

EXAMPLE = Path(__file__).parents[2] / "examples/pull-request/head"


def test_check_reviews_whole_files(tree: Path) -> None:
    result = run("check", tree, "--format", "json")
    assert set(findings(result)) == {("PTO101", "train.py", 13), ("PTO407", "ops.py", 5)}
    document = json.loads(result.stdout)
    assert document["files_reviewed"] == 2
    assert [n["path"] for n in document["not_reviewed"]] == ["tests/test_train.py"]


def test_the_files_that_were_reviewed_are_listed(tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "Reviewed:\n  ops.py\n  train.py\nNot reviewed:\n" in run("check", tree, "-v").stdout
    document = json.loads(run("check", tree, "--format", "json").stdout)
    assert document["reviewed"] == ["ops.py", "train.py"]
    monkeypatch.chdir(tree / "tests")  # paths as seen from here
    assert "Reviewed:\n  test_train.py\n" in run("check", "--all-paths", "-v").stdout


def test_all_paths_reviews_tests_too(tree: Path) -> None:
    assert ("PTO101", "tests/test_train.py", 13) in findings(
        run("check", tree, "--all-paths", "--format", "json")
    )


def test_a_file_that_is_named_is_reviewed_whatever_its_kind(tree: Path) -> None:
    named = ("check", tree / "ops.py", tree / "tests" / "test_train.py", "--format", "json")
    assert ("PTO101", "tests/test_train.py", 13) in findings(run(*named))
    assert {path for _, path, _ in findings(run(*named, "--force-exclude"))} == {"ops.py"}
    (tree / ".ptopt.toml").write_text('exclude = ["tests"]\n')
    assert {path for _, path, _ in findings(run(*named))} == {"ops.py"}


def test_a_script_that_evaluates_is_reviewed_though_its_name_is_that_of_a_test(tree: Path) -> None:
    code = (tree / "ops.py").read_text()
    (tree / "test_ops.py").write_text(code)
    (tree / "test_model.py").write_text(f"{code}\n\nif __name__ == '__main__':\n    f(load())\n")
    found = {path for _, path, _ in findings(run("check", tree, "--select", "PTO407", "--format", "json"))}
    assert found == {"ops.py", "test_model.py"}


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


def test_output_goes_to_a_file(tree: Path) -> None:
    out = tree / "report.sarif"
    result = run("check", tree, "--format", "sarif", "--output", out)
    assert result.stdout == ""
    assert json.loads(out.read_text())["version"] == "2.1.0"


def test_a_file_that_is_not_python_is_named(tree: Path) -> None:
    (tree / "bad.py").write_text("import torch\nx = loss.item(\nprint 'ptopt: '\n")
    result = run("check", tree)
    assert result.exit_code == 0
    assert "2 files not reviewed (listed with -v): does not parse with Python 3." in unwrapped(result)
    assert ": 1; tests are skipped by default (`skip`): 1." in unwrapped(result)
    assert "bad.py" not in result.stdout
    assert "bad.py" in run("check", tree, "-v").stdout.partition("Not reviewed:")[2]


def test_a_named_file_that_is_no_python_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "Makefile").write_text("all:\n")
    result = run("check", tmp_path / "Makefile")
    assert result.stdout.startswith("No files reviewed.\nNot reviewed:\n")
    assert "not Python, a notebook or a configuration: Makefile" in result.stdout


def test_paths_are_relative_to_the_repository(checkout: Path) -> None:
    (checkout / "pkg").mkdir()
    (checkout / "pkg" / "ops.py").write_text(OPS)
    assert findings(run("check", checkout / "pkg", "--format", "json")) == [("PTO407", "pkg/ops.py", 5)]


def test_the_current_folder_is_the_default(tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tree)
    assert run("check").stdout == run("check", ".").stdout
    assert "Would fix 1 finding at 2 places in 1 file" in run("fix", "--diff").stderr


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
    assert "not Python, a notebook or a configuration" in run(*named, "a.txt", stdin=source).stdout


def test_one_unit_of_counting(tree: Path) -> None:
    assert "2 performance findings at 3 places in 2 files" in unwrapped(run("check", tree))
    assert "Would fix 1 finding at 2 places in 1 file; 1 finding left" in run("fix", "--diff", tree).stderr


def test_statistics(tree: Path) -> None:
    expected = (
        "findings  places  left out  rule\n"
        "       1       2         0  PTO407 log-of-softmax\n"
        "       1       1         0  PTO101 item-every-step\n"
        "       0       0         1  PTO236 batch-copy-waits\n"
        "       0       0         1  PTO753 full-precision-training\n"
        "2 performance findings at 3 places in 2 files.\n"
        "2 places left out: seldom worth a change (confidence below 0.60).\n"
        "  --min-confidence 0 shows all: 4 findings at 5 places\n"
        "1 file not reviewed (listed with -v): tests are skipped by default (`skip`).\n"
    )
    assert run("check", tree, "--statistics").stdout == expected
    listed = run("check", tree, "--statistics", "-v").stdout
    assert "Reviewed:\n" in listed and "tests/test_train.py" in listed
    assert run("check", tree, "--statistics", "--budget", "1").stdout == expected  # the total of the table
    assert run("check", tree, "--statistics", "-q").stdout == expected[: expected.index("2 performance")]


def test_quiet_shows_the_findings_alone(tree: Path) -> None:
    lines = run("check", tree, "-q", "--format", "concise").stdout.splitlines()
    assert [line.split(": ")[0].rpartition("/")[2] for line in lines] == [
        "ops.py:5",
        "ops.py:9",
        "train.py:13",
    ]
    shown = run("check", tree, "-q").stdout
    assert "PTO101" in shown and "left out" not in shown and "2 performance findings" not in shown
    assert run("check", tree, "-q", "--select", "PTO999").exit_code == 2
    assert run("check", tree, "-q", "--ignore", "ALL").stdout == ""
    assert run("check", tree, "-q", "--ignore", "ALL", "--format", "concise").stdout == ""
    failed = run("check", tree / "train.py", "-q", "--exit-code")
    assert (failed.exit_code, failed.stderr) == (1, "")
    assert run("check", tree, "-q", "-v").exit_code == 2


def test_statistics_name_what_was_compared(checkout: Path) -> None:
    said = run("review", "--repo", checkout, "--base", "main", "--statistics").stdout
    assert "1 performance finding in 1 file (main...working tree).\n" in said


def test_the_hint_names_the_options_that_make_it_true(tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tree)
    assert "1 with a safe fix (`ptopt fix`)" in unwrapped(run("check"))
    options = ("--min-confidence", "0.9", "--select", "PTO407,PTO101", "ops.py")
    assert run("check", *options).stdout.startswith("No performance findings"), "nothing is that sure"
    options = ("--min-confidence", "0", "--select", "PTO407,PTO101", "ops.py")
    hint = "ptopt fix --select PTO407,PTO101 --min-confidence 0 ops.py"
    assert f"(`{hint}`)" in unwrapped(run("check", *options))
    assert "Would fix 1 finding at 2 places" in run(*hint.split()[1:], "--diff").stderr


def test_a_failure_names_the_unsafe_fixes_where_there_are_no_others(
    tree: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tree)
    assert "ptopt fix --unsafe" not in run("check", "--exit-code").stderr, "there is a safe one to begin with"
    assert run("check", "train.py").stderr == ""
    failed = run("check", "--exit-code", "train.py")
    assert failed.exit_code == 1
    hint = "`ptopt fix --unsafe train.py` applies fixes that state an assumption.\n"
    assert failed.stderr == hint
    (tree / "other.py").write_text("import torch\n")
    assert run("check", "--exit-code", "other.py", "train.py").stderr == hint, "only what has one"


def test_a_failed_review_names_the_fix_of_what_it_shows(
    checkout: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(checkout)
    failed = run("review", "--base", "main", "--exit-code")
    assert failed.exit_code == 1
    hint = "ptopt fix --unsafe --base main"
    assert failed.stderr == f"`{hint}` applies fixes that state an assumption.\n"
    assert "Fixed 1 finding in 1 file." in run(*hint.split()[1:]).stdout


def test_the_sums_of_the_statistics_add_up(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text((EXAMPLE / "train.py").read_text())
    lines = run("check", tmp_path, "--statistics", "--min-confidence", "0").stdout
    *table, first, second = lines.partition("By default ")[0].splitlines()
    findings, places = (sum(int(row.split()[column]) for row in table[1:]) for column in (0, 1))
    assert f"{first} {second}" == (
        f"{findings} performance findings at {places - 1} places in 1 file; 1 of the places has several rules."
    )


@pytest.fixture
def workflows(tmp_path: Path) -> Path:
    """A repository with three workflows of one form."""
    folder = tmp_path / ".github" / "workflows"
    folder.mkdir(parents=True)
    job = "on: push\njobs:\n  test:\n    runs-on: ubuntu-latest\n    steps:\n      - run: pip install torch\n"
    for name in "abc":
        (folder / f"{name}.yml").write_text(job)
    return tmp_path


def test_workflows_of_one_form_are_one_finding(workflows: Path) -> None:
    others = ".github/workflows/b.yml:6, .github/workflows/c.yml:6"
    text = unwrapped(run("check", workflows))
    assert f"Also at {others}" in text and "1 performance finding at 3 places in 3 files." in text
    concise = run("check", workflows, "--format", "concise").stdout.splitlines()
    assert [line.partition(": ")[0] for line in concise[:-1]] == [
        f".github/workflows/{name}.yml:6" for name in "abc"
    ]
    document = json.loads(run("check", workflows, "--format", "json").stdout)
    (finding,) = document["findings"]
    assert [finding["path"], *(place["path"] for place in finding["also"])] == document["reviewed"]
    sarif = json.loads(run("check", workflows, "--format", "sarif").stdout)
    related = sarif["runs"][0]["results"][0]["relatedLocations"]
    uris = [at["physicalLocation"]["artifactLocation"]["uri"] for at in related]
    assert uris == document["reviewed"][1:]


def test_workflows_are_counted_alike_when_they_are_fixed_and_ignored(workflows: Path) -> None:
    assert "1 finding at 3 places left, 1 with an unsafe fix" in run("fix", workflows).stdout
    baseline = workflows / "baseline.json"
    assert run("check", workflows, "--write-baseline", baseline).stdout.startswith("3 places written")
    listed = json.loads(baseline.read_text())
    baseline.write_text(json.dumps(listed | {"findings": listed["findings"][:1]}))
    left = unwrapped(run("check", workflows, "--baseline", baseline))
    assert "1 performance finding at 2 places in 2 of 3 files, 1 place in the baseline." in left
    strict = run("check", workflows, "--min-confidence", "0.99")
    assert "--min-confidence 0 shows all: 1 finding at 3 places" in unwrapped(strict)
    assert (
        run("fix", "--unsafe", workflows).stdout.splitlines()[-1] == "Fixed 1 finding at 3 places in 3 files."
    )


@pytest.mark.parametrize("format_", ["terminal", "concise", "json", "markdown"])
def test_stdin_that_does_not_parse_is_said_to(tmp_path: Path, format_: str) -> None:
    result = run("check", "-", "--format", format_, stdin=b"def f(:\n")
    assert "does not parse" in result.stdout


def test_annotations_say_on_stderr_what_they_have_no_place_for(tmp_path: Path) -> None:
    (tmp_path / "ops.py").write_text(
        OPS.replace("dim=-1))", "dim=-1))  # ptopt: ignore[log-of-softmax]")
        + "\n\nx = 1  # ptopt: ignore[item-every-step]\n"
    )
    (tmp_path / "train.py").write_text(TRAIN)
    result = run("check", tmp_path, "--format", "github")
    (line,) = result.stderr.splitlines()
    assert "1 place suppressed" in line and "1 unused suppression." in line
    assert "places left out" in line or "place left out" in line
    assert "1 place suppressed" not in result.stdout
    concise = run("check", tmp_path, "--format", "concise")
    assert concise.stderr == "" and concise.stdout.endswith(
        "line 12: unused suppression of item-every-step.\n"
    )
    (tmp_path / "train.py").unlink()
    (tmp_path / "ops.py").write_text("import torch\n")
    assert run("check", tmp_path, "--format", "github").stderr == ""


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


def test_a_hook_of_pre_commit_names_what_its_configuration_takes(
    tree: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody can add an option to what pre-commit runs but in `args`, and `ptopt` need not be in the shell."""
    monkeypatch.chdir(tree)
    monkeypatch.setenv("PRE_COMMIT", "1")
    (tree / "broken.py").write_text("def f(:\n")
    (tree / "notes.yaml").write_text("a: 1\n")
    hook = ("check", "--exit-code", "--force-exclude", "ops.py", "train.py", "broken.py", "notes.yaml")
    result = run(*hook)
    listed = "2 files not reviewed (listed with -v in the hook's `args`)"
    assert listed in unwrapped(result)
    assert "1 with a safe fix (applied by the hook `ptopt-fix`)" in unwrapped(result)
    assert "`ptopt fix" not in result.stdout + result.stderr
    few = unwrapped(run(*hook, "--budget", "1"))
    assert "--budget=2 in the hook's `args` shows it in full" in few
    hidden = ("check", "--force-exclude", "ops.py", "--min-confidence", "0.99")
    assert "--min-confidence=0 in the hook's `args` shows" in unwrapped(run(*hidden))
    assert "--min-confidence=0 in the hook's `args` shows" in unwrapped(run(*hidden, "-v"))
    fixed = run("fix", "--force-exclude", "ops.py", "train.py", "--min-confidence", "0.99").stdout
    assert "left out (`--min-confidence=0` in the hook's `args`), see the hook `ptopt-check`." in fixed
    monkeypatch.delenv("PRE_COMMIT")
    assert "2 files not reviewed (listed with -v)" in unwrapped(run(*hook))


def test_explain_says_where_to_read_on(tree: Path) -> None:
    text = unwrapped(run("check", tree / "ops.py", "--explain"))
    assert "docs/ranking.md" in text and "`ptopt explain PTO407`" in text
    assert "docs/ranking.md" not in run("check", tree / "ops.py").stdout
    (tree / "ops.py").write_text("import torch\n")
    assert "No finding to explain" in run("check", tree / "ops.py", "--explain").stdout


def test_left_out_places_with_several_rules_are_said(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text((EXAMPLE / "train.py").read_text())
    asked = run("check", tmp_path, "--statistics", "--min-confidence", "0.99").stdout
    table = [row for row in asked.splitlines()[1:] if row[:8].strip().isdecimal()]
    left = sum(int(row.split()[2]) for row in table)
    places = re.search(r"(\d+) places left out", asked)
    assert places is not None and int(places[1]) < left
    assert f"The table counts {left} left out: a place once for each of its rules." in asked


def test_a_launch_script_that_is_named_is_called_one(tmp_path: Path) -> None:
    (tmp_path / "run.sh").write_text("srun torchrun train.py\n")
    (tmp_path / "build.sh").write_text("make\n")
    said = unwrapped(run("check", tmp_path / "run.sh", tmp_path / "build.sh"))
    assert "a launch script: its options and environment are not read: " in said
    assert "not Python, a notebook or a configuration: " in said
