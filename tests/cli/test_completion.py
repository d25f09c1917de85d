from __future__ import annotations

import os
import subprocess
import sys

import pytest

from tests.cli.command import run


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
