"""Every shell block of the documentation runs, or says why it does not and what runs it instead."""

from __future__ import annotations

import os
import re
import shutil
import sqlite3
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from ptopt.config import load_config
from ptopt.rules import known_names

ROOT = Path(__file__).resolve().parents[1]
EXAMPLE = ROOT / "examples" / "pull-request"
PAGES = [
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    ROOT / "SECURITY.md",
    *sorted((ROOT / "docs").glob("*.md")),
]
_BLOCK = re.compile(
    r"(?:<!-- not run: (?P<why>[^\n]+) -->\n)?^ *```(?P<language>\w*)\n(?P<text>.*?)^ *```$", re.M | re.S
)
# These install, or build environments: they are not run, but what they name must be there.
_PIP = """\
#!{python}
import pathlib, re, sys
try:
    import tomllib
except ImportError:
    import tomli as tomllib
root = pathlib.Path({root!r})
extras = tomllib.loads((root / "pyproject.toml").read_text())["project"]["optional-dependencies"]
assert sys.argv[1] == "install", sys.argv
for word in sys.argv[2:]:
    for extra in re.findall(r"^\\.\\[(.+)\\]$", word):
        assert set(extra.split(",")) <= set(extras), word
    assert not word.endswith(".txt") or (root / word).is_file(), word
    assert word[0] != "." or word[1:2] in ("", "["), word
"""
_MAKE = """\
#!/bin/sh
exec {make} -n -C {root} "$@"
"""


@dataclass(frozen=True)
class Block:
    page: Path
    line: int
    language: str
    why: str | None  # it is not run
    text: str

    @property
    def name(self) -> str:
        return f"{self.page.relative_to(ROOT)}:{self.line}"

    @property
    def script(self) -> str:
        """The commands: lines with a prompt, and those that a backslash continues."""
        lines: list[str] = []
        for line in self.text.split("\n"):
            if line.startswith("$ "):
                lines.append(line[2:])
            elif lines and lines[-1].endswith("\\"):
                lines.append(line)
        return "\n".join(lines)


def blocks() -> list[Block]:
    found = []
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        for match in _BLOCK.finditer(text):
            line = text.count("\n", 0, match.start("language")) + 1
            found.append(Block(page, line, match["language"], match["why"], match["text"]))
    return found


BLOCKS = blocks()
SHELL = [block for block in BLOCKS if block.language in ("console", "sh", "bash", "shell")]


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A branch to review, and the commands of this project on PATH."""
    repo, tools = tmp_path / "repo", tmp_path / "bin"
    shutil.copytree(EXAMPLE / "head", repo)
    git = ["git", "-c", "user.name=x", "-c", "user.email=x@example.org", "-C", str(repo)]

    def run(*words: str) -> None:
        subprocess.run([*git, *words], check=True, capture_output=True)

    run("init", "-b", "main")
    run("apply", "-R", str(EXAMPLE / "change.patch"))
    (repo / "src").mkdir()
    shutil.copy(EXAMPLE / "head" / "model.py", repo / "src")
    run("add", ".")
    run("commit", "-m", "Base")
    run("switch", "-c", "branch")
    run("apply", str(EXAMPLE / "change.patch"))
    run("commit", "-am", "Change")
    sqlite3.connect(repo / "ptopt.db").close()
    tools.mkdir()
    python = f'#!/bin/sh\nexec {sys.executable} "$@"\n'
    make = shutil.which("make") or "make"
    for name, text in {
        "pip": _PIP.format(python=sys.executable, root=str(ROOT)),
        "make": _MAKE.format(make=make, root=ROOT),
        "python": python,
    }.items():
        (tools / name).write_text(text)
        (tools / name).chmod(0o755)
    return repo


@pytest.mark.slow
@pytest.mark.parametrize("block", [b for b in SHELL if b.why is None], ids=lambda block: block.name)
def test_it_runs(block: Block, checkout: Path, tmp_path: Path) -> None:
    assert block.script, "a block without a command: begin the commands with `$ `"
    path = os.pathsep.join([str(tmp_path / "bin"), str(Path(sys.executable).parent), os.environ["PATH"]])
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", block.script],
        cwd=checkout,
        env={"PATH": path, "HOME": str(tmp_path), "PYTHONPATH": str(ROOT), "LC_ALL": "C.UTF-8"},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("block", [b for b in SHELL if b.why is not None], ids=lambda block: block.name)
def test_what_is_not_run_here_has_a_reason(block: Block) -> None:
    """It needs GitHub, a GPU or a model; a test that runs the same is named."""
    assert block.why is not None
    (named,) = re.findall(r"tests/[\w/]+\.py", block.why)
    assert (ROOT / named).is_file()


def test_every_block_is_seen() -> None:
    assert sum(page.read_text(encoding="utf-8").count("$ ptopt ") for page in PAGES) == sum(
        block.text.count("$ ptopt ") for block in SHELL
    )
    indented = [
        page.name for page in PAGES if re.search(r"^    (?:\$|python|ptopt|pip) ", page.read_text(), re.M)
    ]
    assert indented == [], "use a fenced block"


@pytest.mark.parametrize("block", [b for b in BLOCKS if b.language == "toml"], ids=lambda block: block.name)
def test_a_configuration_is_valid(block: Block) -> None:
    load_config({".ptopt.toml": block.text.encode()}, known_names())


def test_the_pre_commit_snippet_names_our_hooks() -> None:
    (block,) = [b for b in BLOCKS if b.language == "yaml" and "pre-commit" in b.text]
    ours = re.findall(r"^- id: (\S+)", (ROOT / ".pre-commit-hooks.yaml").read_text(), re.M)
    assert set(re.findall(r"^ +- id: (\S+)", block.text, re.M)) == set(ours)
