"""Files made to keep a reader busy: each is read, or refused, within seconds of processor time."""

from __future__ import annotations

import pytest

from ptopt.project.facts import read_facts
from tests.limits import run_limited

_READ = "import sys; from ptopt.project.facts import read_facts; print(read_facts({{{!r}: sys.stdin.buffer.read()}}).unread)"
HOSTILE = {
    "runs of blanks": ("setup.cfg", b"[options]\n" + (b"a" + b" " * 9_900 + b"b\n") * 50),
    "one run of blanks": ("setup.cfg", b"[options]\na" + b" " * 490_000 + b"b\n"),
    "one dotted key": ("pyproject.toml", b"a." * 240_000 + b"b = 1\n"),
    "many dotted keys": ("pyproject.toml", (b"a." * 4_000 + b"b = 1\n") * 60),
    "many requirements": ("requirements.txt", b"".join(b"torch>=1.%d\n" % i for i in range(35_000))),
    "many dependencies": (
        "pyproject.toml",
        b"[project]\ndependencies = [\n%b]\n" % b"".join(b'"torch>=1.%d",\n' % i for i in range(30_000)),
    ),
    "one long requirement": ("requirements.txt", b"torch" + b"[" * 490_000 + b"\n"),
    "many locked packages": ("uv.lock", b'[[package]]\nname = "torch"\nversion = "1"\n' * 200_000),
}


@pytest.mark.parametrize("case", HOSTILE)
def test_a_reader_ends_within_seconds(case: str) -> None:
    path, content = HOSTILE[case]
    assert path in run_limited(_READ.format(path), content)  # with the reason why it was not read


def test_a_run_of_blanks_in_a_line_changes_no_pin() -> None:
    facts = read_facts({"setup.cfg": b"[options]\ninstall_requires =\n    numpy\n    torch    >=   1.13\n"})
    assert facts.describe("torch") == "torch>=1.13 (setup.cfg:4)"
