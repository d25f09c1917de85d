"""The configurations in docs/command-line.md, run as the editors run them."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

PAGE = (Path(__file__).parents[1] / "docs" / "command-line.md").read_text(encoding="utf-8")
CODE = "import torch\n\n\ndef f(x):\n    return torch.log(torch.softmax(x, dim=-1))\n"
MESSAGE = "PTO407 log-of-softmax: `torch.log(torch.softmax(x, dim=-1))` runs two kernels "


def block(language: str, word: str) -> str:
    found = re.findall(rf"^```{language}\n(.*?)^```$", PAGE, re.M | re.S)
    (text,) = [text for text in found if word in text]
    return str(text)


@pytest.fixture
def project(tmp_path: Path) -> Path:
    subprocess.run(["git", "init", "-q"], cwd=tmp_path, check=True)
    (tmp_path / "pkg").mkdir()
    (tmp_path / "pkg" / "a.py").write_text(CODE)
    return tmp_path


def shell(command: str, cwd: Path, text: str = "") -> str:
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        command,
        shell=True,
        cwd=cwd,
        input=text,
        capture_output=True,
        text=True,
        env=os.environ | {"PATH": path},
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def matches(errorformat: str, line: str) -> tuple[str, ...] | None:
    """The parts `%f`, `%l` and `%m` of a line, in the way of Vim and of efm-langserver."""
    parts = {"%f": "(.+?)", "%l": r"(\d+)", "%m": "(.*)"}
    found = re.fullmatch(re.sub("%.", lambda m: parts[m[0]], errorformat), line)
    return found and found.groups()


def test_efm_langserver(project: Path) -> None:
    config = block("yaml", "lint-command")
    settings = dict(re.findall(r"^ +(?:- )?([\w-]+): (.+)$", config, re.M))
    file = str(project / "pkg" / "a.py")
    moved = f"# not saved yet\n{CODE}"  # it hands on the text of the editor
    output = shell(settings["lint-command"].replace("${INPUT}", file), project, moved)
    (found,) = filter(
        None, (matches(settings["lint-formats"].strip("[]'"), ln) for ln in output.splitlines())
    )
    assert found is not None
    assert found[:2] == ("pkg/a.py", "6")
    assert found[2].startswith(MESSAGE)
    fixed = shell(settings["format-command"].replace("${INPUT}", file), project, moved)
    assert fixed == moved.replace("torch.log(torch.softmax(x, dim=-1))", "torch.log_softmax(x, dim=-1)")


def test_the_problem_matcher_of_vs_code(project: Path) -> None:
    (task,) = json.loads(block("json", "problemMatcher"))["tasks"]
    pattern = task["problemMatcher"]["pattern"]
    lines = shell(task["command"], project).splitlines()
    (found,) = filter(None, (re.search(pattern["regexp"], line) for line in lines))
    assert [found[pattern[key]] for key in ("file", "line", "code")] == ["pkg/a.py", "5", "PTO407"]
    assert f"PTO407 {found[pattern['message']]}".startswith(MESSAGE)


def test_vim(project: Path) -> None:
    program, errorformat = re.findall(r"=((?:\\ |\S)+)", block("vim", "makeprg"))
    lines = shell(program.replace("\\ ", " "), project).splitlines()
    (found,) = filter(None, (matches(errorformat.replace("\\ ", " "), line) for line in lines))
    assert found[:2] == ("pkg/a.py", "5")
