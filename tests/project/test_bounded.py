"""Files made to keep a reader busy: each is read, or refused, within seconds of CPU time.

A child process is killed when it uses more; before they were bounded, each of these took a minute or longer.
"""

from __future__ import annotations

import resource
import subprocess
import sys

import pytest

CPU_SECONDS = 10
HOSTILE = {
    "setup.cfg, runs of blanks": ("setup.cfg", r"b'[options]\n' + (b'a' + b' ' * 9900 + b'b\n') * 50"),
    "setup.cfg, one run of blanks": ("setup.cfg", r"b'[options]\na' + b' ' * 490_000 + b'b\n'"),
    "TOML, one dotted key": ("pyproject.toml", r"b'a.' * 240_000 + b'b = 1\n'"),
    "TOML, many dotted keys": ("pyproject.toml", r"(b'a.' * 4_000 + b'b = 1\n') * 60"),
    "many requirements": ("requirements.txt", r"b''.join(b'torch>=1.%d\n' % i for i in range(35_000))"),
    "many dependencies": (
        "pyproject.toml",
        r"b'[project]\ndependencies = [\n' + b''.join(b'\"torch>=1.%d\",\n' % i for i in range(30_000)) + b']\n'",
    ),
    "one long requirement": ("requirements.txt", r"b'torch' + b'[' * 490_000 + b'\n'"),
    "many locked packages": ("uv.lock", r"b'[[package]]\nname = \"torch\"\nversion = \"1\"\n' * 200_000"),
}


def _limit() -> None:
    resource.setrlimit(resource.RLIMIT_CPU, (CPU_SECONDS, CPU_SECONDS))


@pytest.mark.parametrize("case", HOSTILE)
def test_a_reader_ends_within_seconds(case: str) -> None:
    path, content = HOSTILE[case]
    code = f"from ptopt.project.facts import read_facts; print(read_facts({{{path!r}: {content}}}).unread)"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, preexec_fn=_limit, check=False
    )
    assert done.returncode == 0, done.stderr
    # Runs of blanks are read as one; all else is refused with the reason.
    assert path in done.stdout


def test_a_run_of_blanks_in_a_line_changes_no_pin() -> None:
    from ptopt.project.facts import read_facts

    facts = read_facts({"setup.cfg": b"[options]\ninstall_requires =\n    numpy\n    torch    >=   1.13\n"})
    assert facts.describe("torch") == "torch>=1.13 (setup.cfg:4)"
