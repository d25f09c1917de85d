"""Files made to keep a reader busy: each is read, or refused, within seconds of processor time."""

from __future__ import annotations

import pytest

from ptopt.project.facts import read_facts
from tests.hostile import PROJECT_FILES
from tests.limits import run_limited

_READ = "import sys; from ptopt.project.facts import read_facts; print(read_facts({{{!r}: sys.stdin.buffer.read()}}).unread)"


@pytest.mark.parametrize("case", PROJECT_FILES)
def test_a_reader_ends_within_seconds(case: str) -> None:
    path, content = PROJECT_FILES[case]
    assert path in run_limited(_READ.format(path), content)  # with the reason why it was not read


def test_a_run_of_blanks_in_a_line_changes_no_pin() -> None:
    facts = read_facts({"setup.cfg": b"[options]\ninstall_requires =\n    numpy\n    torch    >=   1.13\n"})
    assert facts.describe("torch") == "torch>=1.13 (setup.cfg:4)"
