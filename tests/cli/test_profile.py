"""`ptopt profile`, and reviews that weigh with a recorded run."""

from __future__ import annotations

import json
import pickle
import subprocess
from importlib import resources
from pathlib import Path

import pytest
from jsonschema import Draft202012Validator

from tests.cli.command import command, run, unwrapped
from tests.profiles.traces import CODE, DATA

TRACE = DATA / "data.json.gz"


@pytest.fixture
def code(tmp_path: Path) -> Path:
    """The code of the recorded run, and a module that it does not use, with a finding in each."""
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "train.py").write_text(CODE)
    (folder / "other.py").write_text(
        "import torch\n\n\ndef f(x):\n    return torch.log(torch.softmax(x, dim=-1))\n"
    )
    return folder


def test_the_verdict_the_parts_and_the_lines(code: Path) -> None:
    result = run("profile", TRACE, "--code", code)
    assert result.exit_code == 0, result.output
    text = unwrapped(result)
    assert "Data-bound: 92% of the step waits for batches (target: below 5%)." in text
    line = CODE.split("\n").index("        time.sleep(self.seconds)") + 1
    assert f"train.py:{line} sleep" in text
    assert "data loading 92.4% <= 5% no" in text
    assert "no kernels of a GPU in this trace" in text


def test_without_code_functions_are_named(code: Path) -> None:
    text = unwrapped(run("profile", TRACE))
    assert "train.py, __getitem__() sleep" in text


def test_the_findings_of_the_files_that_the_trace_names_follow(code: Path) -> None:
    (code / ".ptopt.toml").write_text("min-confidence = 0.0\n")
    result = run("profile", TRACE, "--code", code)
    assert "loader-without-workers" in result.stdout
    assert "Measured in your run: 92.4% of the step (data loading; data.json.gz)" in unwrapped(result)
    assert "other.py" not in result.stdout
    found = json.loads(run("profile", TRACE, "--code", code, "--format", "json").stdout)["findings"]
    assert {"loader-without-workers"} <= {f["name"] for f in found} and all("measured" in f for f in found)
    assert "findings" not in json.loads(run("profile", TRACE, "--format", "json").stdout)


@pytest.mark.parametrize("name", ["markdown", "json"])
def test_other_formats_and_several_traces(code: Path, tmp_path: Path, name: str) -> None:
    out = tmp_path / "out"
    result = run("profile", TRACE, DATA / "host.json.gz", "--code", code, "--format", name, "--output", out)
    assert result.exit_code == 0 and result.stdout == ""
    text = out.read_text()
    if name == "markdown":
        assert "## `data.json.gz`" in text and "**Host-bound**" in text
        return
    one, two = json.loads(text)["traces"]
    assert (one["verdict"]["kind"], two["verdict"]["kind"]) == ("data", "host")
    assert sum(one["shares"].values()) == pytest.approx(1)
    slow = one["costs"][0]
    assert slow["file"] == "project/train.py" or slow["file"].endswith("train.py")
    assert len(slow["lines"]) == 1 and slow["share"] > 0.8


def test_a_memory_snapshot_beside_a_trace(tmp_path: Path) -> None:
    path = tmp_path / "m.pickle"
    blocks = [
        {
            "size": 1 << 20,
            "state": "active_allocated",
            "address": 0,
            "frames": [{"filename": "train.py", "line": 7, "name": "f"}],
        }
    ]
    path.write_bytes(pickle.dumps({"segments": [{"total_size": 2 << 20, "address": 0, "blocks": blocks}]}))
    for name in ("terminal", "markdown", "json"):
        result = run("profile", path, TRACE, "--format", name)
        assert result.exit_code == 0 and "train.py" in result.stdout
    assert "train.py:7 in f" in run("profile", path).stdout


@pytest.mark.parametrize("data", [b"", b"hello", b"{}", b"\x1f\x8b", b"\x80\x04N.", b"SQLite format 3\0"])
def test_a_file_that_is_no_trace_is_an_error_of_one_line(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "bad\x1b[31m.json"
    path.write_bytes(data)
    done = command("profile", path)
    assert done.returncode == 2 and done.stdout == b""
    assert (
        done.stderr.startswith(b"ptopt: error: ")
        and done.stderr.count(b"\n") == 1
        and b"\x1b" not in done.stderr
    )


def test_check_orders_by_what_was_measured(code: Path) -> None:
    args = ("check", code, "--min-confidence", "0", "--all-paths", "--format", "json")
    plain = json.loads(run(*args).stdout)
    found = json.loads(run(*args, "--profile", TRACE).stdout)
    schema = json.loads((resources.files("ptopt.report") / "review.schema.json").read_text(encoding="utf-8"))
    Draft202012Validator(schema).validate(found)
    assert all("measured" not in f for f in plain["findings"])
    shares = [f["measured"]["share"] if "measured" in f else 0.0 for f in found["findings"]]
    assert shares == sorted(shares, reverse=True) and shares[0] > 0.9 and shares[-1] == 0.0
    assert sorted(f["fingerprint"] for f in found["findings"]) == sorted(
        f["fingerprint"] for f in plain["findings"]
    )
    assert "Measured in your run" in run(*args[:-2], "--profile", TRACE).stdout
    assert (
        "**Measured in your run:** 92.4% of the step"
        in run(*args[:-1], "markdown", "--profile", TRACE).stdout
    )


def test_a_trace_of_another_program_is_said_to_be_one(code: Path, tmp_path: Path) -> None:
    (tmp_path / "other.py").write_text("import torch\n")
    result = run("check", tmp_path / "other.py", "--profile", TRACE)
    assert result.exit_code == 0
    assert result.stderr.endswith("names no line of the files under review; is it of another program?\n")
    assert "names no line" not in run("check", code, "--profile", TRACE).stderr


def test_review_shows_within_its_budget_what_costs_most(code: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE"):
        monkeypatch.delenv(name, raising=False)

    def git(*args: str) -> None:
        identity = ("-c", "user.name=a", "-c", "user.email=a@example.org", "-c", "commit.gpgsign=false")
        subprocess.run(["git", *identity, *args], cwd=code, check=True, capture_output=True)

    git("init", "-q", "-b", "main")
    git("commit", "-q", "--allow-empty", "-m", "one")
    args = (
        "review",
        "--repo",
        code,
        "--base",
        "main",
        "--min-confidence",
        "0",
        "--format",
        "json",
        "--budget",
        "1",
    )
    plain = json.loads(run(*args).stdout)
    assert len(plain["findings"]) == 1 and plain["over_limit"]
    found = json.loads(run(*args, "--profile", TRACE).stdout)
    (best,) = found["findings"]
    assert best["measured"]["share"] == max(
        f["measured"]["share"] for f in (best, *found["over_limit"]) if "measured" in f
    )
    assert best["measured"]["share"] > 0.9


def test_a_snapshot_cannot_weigh_a_review(code: Path, tmp_path: Path) -> None:
    path = tmp_path / "m.pickle"
    path.write_bytes(pickle.dumps({"segments": []}))
    result = command("check", code, "--profile", path)
    assert result.returncode == 2 and b"says nothing of time" in result.stderr
