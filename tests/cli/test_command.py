from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from ptopt import __version__
from ptopt.cli.output import say
from tests.cli.command import OPS, command, findings, run


def test_version_and_help() -> None:
    assert run("--version").stdout == f"ptopt {__version__}\n"
    assert run().stdout == run("--help").stdout
    for name in ("review", "check", "fix", "rules", "explain", "config", "completion"):
        assert name in run("--help").stdout
        assert run(name, "--help").exit_code == 0


def test_a_group_without_a_command_prints_its_help() -> None:
    result = run("config")
    assert (result.exit_code, result.stderr) == (0, "")
    assert result.stdout.startswith("Usage: ")


def test_version_imports_nothing_heavy() -> None:
    code = "import sys; from ptopt.cli import main; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = {name.partition(".")[0] for name in done.stdout.split()}
    assert not loaded & {"rich", "pydantic", "unidiff", "tomllib", "tomli", "packaging", "json", "asyncio"}
    assert not {name for name in done.stdout.split() if name.startswith("ptopt.") and "cli" not in name}


@pytest.mark.parametrize(
    "args",
    [
        ["check", "missing.py"],
        ["check", "missing/also.py"],
        ["check", "--stdin-filename", "a.py", "."],
        ["check", "-", "."],
        ["check", "-", "--add-suppressions"],
        ["check", ".", "--reason", "why"],
        ["check", ".", "--add-suppressions", "--reason", "a\nb"],
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


def test_the_package_runs_as_a_module(tree: Path) -> None:
    module = [sys.executable, "-m", "ptopt", "check", str(tree / "ops.py"), "--format", "json"]
    done = subprocess.run(module, capture_output=True, check=True)
    assert done.stdout == command("check", tree / "ops.py", "--format", "json").stdout
    assert findings(run("check", tree / "ops.py", "--format", "json"))


@pytest.mark.parametrize("option", ["--select", "--config", "--format", "--write-baseline"])
def test_an_option_without_its_value_names_the_help_of_its_command(option: str) -> None:
    result = run("check", option)
    assert result.exit_code == 2
    assert (
        result.stderr == f"ptopt: error: Option '{option}' requires an argument; see `ptopt check --help`\n"
    )
    assert run("config", "show", "--config").stderr.endswith("see `ptopt config show --help`\n")


def test_the_list_of_commands_cuts_no_sentence() -> None:
    assert "..." not in run("--help").stdout.partition("Commands:")[2]


@pytest.mark.parametrize("name", ["concise", "github", "gitlab", "markdown", "sarif", "rdjson"])
def test_what_cannot_explain_says_so(name: str, tree: Path) -> None:
    result = run("check", tree, "--explain", "--format", name)
    assert (result.exit_code, result.stdout) == (2, "")
    assert f"--explain cannot be combined with --format {name}; see `ptopt check --help`" in result.stderr
    assert run("check", tree, "--explain", "--format", "json").exit_code == 0


def test_sentences_fit_the_terminal_and_are_one_line_for_a_program(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    text = f"Fixed 1 finding in {'long/' * 30}file.py; {'more words ' * 12}see `ptopt check --budget 3 FILE`."
    monkeypatch.setenv("COLUMNS", "80")
    say(text)
    assert capsys.readouterr().out == f"{text}\n"
    monkeypatch.setattr("sys.stdout.isatty", lambda: True, raising=False)
    say(text)
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) > 3 and all(len(line) <= 80 or "long/long" in line for line in lines)
    assert any("`ptopt check --budget 3 FILE`" in line for line in lines)


def test_help_breaks_no_line_within_an_option(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    for name in ("check", "review", "fix", "audit", "profile", "prove", "explain", "config", "rules"):
        text = run(name, "--help").stdout
        assert not [line for line in text.splitlines() if re.search(r"--[\w-]+-$", line)]
        assert "\u2011" not in text
    assert "--model-server serves" in run("check", "--help").stdout
    assert "..." not in run("config", "--help").stdout.partition("Commands:")[2]
