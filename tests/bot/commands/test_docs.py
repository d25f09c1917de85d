from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from bot.commands.base import UsageError
from bot.commands.docs import page
from bot.commands.parse import commands
from bot.commands.registry import COMMANDS

ROOT = Path(__file__).resolve().parents[3]


def test_the_page_is_current() -> None:
    assert (ROOT / "docs" / "commands.md").read_text(encoding="utf-8") == page(COMMANDS.values()), (
        "run `make docs`"
    )


def test_the_page_is_written_by_a_command(tmp_path: Path) -> None:
    path = tmp_path / "commands.md"
    subprocess.run([sys.executable, "-m", "bot.commands", "--docs", path], cwd=ROOT, check=True)
    assert path.read_text(encoding="utf-8") == page(COMMANDS.values())


@pytest.mark.parametrize("name", COMMANDS)
def test_the_examples_are_commands_that_parse(name: str) -> None:
    command = COMMANDS[name]
    assert command.examples
    for text, _ in command.examples:
        (line,) = commands(text)
        assert line.verb == name
        command.parse(line.words)


@pytest.mark.parametrize("name", COMMANDS)
def test_arguments_that_make_no_sense_are_refused(name: str) -> None:
    with pytest.raises(UsageError):
        COMMANDS[name].parse(["bogus", "bogus"])


def test_every_command_that_a_text_of_ours_names_exists() -> None:
    """Comments, answers and documentation send people to commands."""
    sources = [
        *(ROOT / "bot").rglob("*.py"),
        *(ROOT / "ptopt" / "github").glob("*.py"),
        *(ROOT / "docs").glob("*.md"),
    ]
    named = {
        (path.name, verb)
        for path in sources
        for verb in re.findall(r"`/ptopt ([a-z]+)", path.read_text(encoding="utf-8"))
    }
    assert {verb for _, verb in named} >= {"help", "ignore", "resume"}
    assert [pair for pair in named if pair[1] not in COMMANDS] == []
