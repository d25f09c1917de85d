"""docs/systemd.md in a folder in place of a machine: its commands, and the service as the unit starts it."""

from __future__ import annotations

import os
import shlex
import shutil
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from pathlib import Path

import pytest

from tests.test_shell_blocks import SHELL
from tests.worker.processes import ROOT, free_port, kill, wait_for

UNIT = ROOT / "docs/ptopt.service"
PAGE = ROOT / "docs/systemd.md"
ANALYZE = shutil.which("systemd-analyze")
# What the page calls, as far as it is not to be done here; the clone is this repository, its environment this one.
_TOOLS = {
    "sudo": 'exec "$@"',
    "useradd": ":",
    "systemctl": ":",
    "git": f'[ "$1" = clone ] && ln -s {ROOT} "$3"',
    "python3": '[ "$1 $2" = "-m venv" ] || exit 1',
    "pip": 'for last; do :; done; [ -f "$last" ]',
    "python": f'exec {sys.executable} "$@"',
    "systemd-run": """\
[ "$1 $2 $3 $4" = "--pipe --wait --uid ptopt" ] || exit 1
shift 4
while [ "$1" = -p ] || [ "$1" = -E ]; do
  case "$2" in
    EnvironmentFile=*) set -a; . "${2#*=}"; set +a ;;
    WorkingDirectory=*) cd "${2#*=}" ;;
    *) export "$2" ;;
  esac
  shift 2
done
exec "$@"
""",
}


@pytest.fixture
def tools(tmp_path: Path) -> Path:
    folder = tmp_path / "bin"
    folder.mkdir()
    for name, text in _TOOLS.items():
        (folder / name).write_text(f"#!/bin/sh\n{text}\n")
        (folder / name).chmod(0o755)
    return folder


class Machine:
    """Folders in place of those that the page and the unit name."""

    def __init__(self, root: Path, tools: Path) -> None:
        self.root, self.tools = root, tools
        for folder in ("opt", "etc/systemd/system", "var/lib/ptopt"):
            (root / folder).mkdir(parents=True)

    def here(self, text: str) -> str:
        text = text.replace("/opt/ptopt/.venv/bin", str(self.tools))
        for place in ("/opt/ptopt", "/etc/", "/var/lib/ptopt"):
            text = text.replace(place, f"{self.root}{place}")
        return text

    def shell(self, script: str) -> str:
        path = os.pathsep.join([str(self.tools), os.environ["PATH"]])
        done = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", self.here(script)],
            env={"PATH": path}, capture_output=True, text=True,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        return done.stdout

    def settings(self, name: str) -> list[str]:
        """The values of a setting of the unit that the page installed."""
        unit = (self.root / "etc/systemd/system/ptopt.service").read_text()
        return [
            self.here(line.partition("=")[2]) for line in unit.splitlines() if line.startswith(f"{name}=")
        ]

    def variables(self) -> dict[str, str]:
        (file,) = self.settings("EnvironmentFile")
        lines = [*Path(file).read_text().splitlines(), *self.settings("Environment")]
        return dict(line.split("=", 1) for line in lines)


@pytest.fixture
def machine(tmp_path: Path, tools: Path) -> Machine:
    return Machine(tmp_path / "machine", tools)


@pytest.mark.slow
def test_the_page_leads_to_a_service_that_answers_and_stops(machine: Machine) -> None:
    install, beside = (block.script for block in SHELL if block.page == PAGE)
    machine.shell(install)
    (file,) = machine.settings("EnvironmentFile")
    assert Path(file).stat().st_mode & 0o777 == 0o600
    (command,), (folder,) = machine.settings("ExecStart"), machine.settings("WorkingDirectory")
    port = free_port()
    assert "--port 8000" in command
    with subprocess.Popen(
        shlex.split(command.replace("8000", str(port))),
        cwd=folder,
        env={"PATH": os.environ["PATH"], **machine.variables()},
        start_new_session=True,
    ) as started:
        try:
            wait_for(lambda: started.poll() is not None or _answers(port))
            assert started.poll() is None
            assert "no jobs" in machine.shell(beside).lower()
            started.send_signal(signal.SIGTERM)
            assert started.wait(60) in (0, -signal.SIGTERM)
        finally:
            kill(started)
    assert (Path(folder) / "ptopt.db").is_file()


def _answers(port: int) -> bool:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/healthz", timeout=5) as answer:
            return bool(answer.status == 200)
    except (urllib.error.URLError, OSError):
        return False


@pytest.mark.skipif(ANALYZE is None, reason="systemd is not installed (apt-get install systemd)")
def test_systemd_finds_no_mistake_in_the_unit(tmp_path: Path, tools: Path) -> None:
    assert ANALYZE is not None
    copy = tmp_path / "ptopt.service"
    copy.write_text(UNIT.read_text().replace("/opt/ptopt/.venv/bin", str(tools)))
    done = subprocess.run([ANALYZE, "verify", "--man=no", copy], capture_output=True, text=True)
    assert (done.returncode, done.stderr.strip()) == (0, "")
