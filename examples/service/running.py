"""The service as a process beside a fake GitHub, and the repository that both demonstrations show.

Whatever ends the demonstration (its end, Ctrl-C, SIGTERM, a terminal that is closed), all processes end and the folder is
removed.
"""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import TypeVar

import click
import httpx

from fake_github import FakeGitHub, Repo

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "examples/pull-request"
TITLE = "Mixup and a larger patch net"
SECONDS = 60.0  # to wait for anything
_TO_STOP = 15.0  # seconds that the service has to end by itself
_CHILDREN = 3.0  # seconds that its children have after it
_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
T = TypeVar("T")


@dataclass(frozen=True)
class Service:
    """The running service: its address, and its log."""

    url: str
    process: subprocess.Popen[bytes]
    log: Path

    def check(self) -> None:
        """Raises ClickException, with the log, when it has ended."""
        if self.process.poll() is not None:
            raise click.ClickException(f"the service ended:\n{self.log.read_text()[-4000:]}")

    def ready(self) -> bool:
        self.check()
        try:
            return httpx.get(f"{self.url}/readyz").status_code == 200
        except httpx.TransportError:
            return False

    def wait(self) -> None:
        """Until it ends, or a signal arrives."""
        self.process.wait()
        self.check()


class Stopped(SystemExit):
    """Somebody stops the demonstration: with status 0 by Ctrl-C, for which make would report any other as an error."""


@contextmanager
def workplace(github_port: int) -> Iterator[tuple[Path, FakeGitHub]]:
    """A temporary folder, and a fake GitHub; a signal raises Stopped, and both are removed in each case.

    Raises ClickException where the port is taken.
    """

    def stop(number: int, frame: FrameType | None) -> None:
        _ignore_signals()
        raise Stopped(0 if number == signal.SIGINT else 128 + number)

    before = {number: signal.signal(number, stop) for number in _SIGNALS}
    try:
        with ExitStack() as stack:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="ptopt-demo-")))
            # What the fake GitHub and the service put into temporary folders goes with this one.
            stack.callback(setattr, tempfile, "tempdir", tempfile.tempdir)
            tempfile.tempdir = str(folder)
            yield folder, stack.enter_context(_github(github_port))
            _ignore_signals()
    except Stopped as stopped:
        if not stopped.code:  # otherwise the terminal may be gone
            click.echo("\nStopped. Nothing is left behind.")
        raise
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _ignore_signals() -> None:
    """From now on everything is stopped and removed: a second signal would leave some of it."""
    for number in _SIGNALS:
        signal.signal(number, signal.SIG_IGN)


def _github(port: int) -> FakeGitHub:
    try:
        return FakeGitHub(port=port)
    except OSError as error:
        raise _unusable(port, error) from None


@contextmanager
def service(github: FakeGitHub, folder: Path, port: int, **more: str) -> Iterator[Service]:
    """`python -m embedded`, up. Port 0 is any. With `more` settings it has no App yet.

    Raises ClickException, with the log, when it does not start.
    """
    port = _port(port)
    url = f"http://127.0.0.1:{port}"
    settings = {
        "PTOPT_GITHUB_URL": github.url,
        "PTOPT_PUBLIC_URL": url,
        "PTOPT_SECRET_KEY": "the demo has nothing to hide",
        "PTOPT_DATABASE_URL": database(folder),
        "PTOPT_DEBOUNCE": "0.5",
        "PTOPT_SECONDS_BETWEEN_WRITES": "0",
    }
    app = {
        "PTOPT_APP_ID": str(github.app.id),
        "PTOPT_PRIVATE_KEY": github.app.private_key,
        "PTOPT_WEBHOOK_SECRET": github.app.webhook_secret,
    }
    settings |= more or app
    log = folder / "service.log"
    with log.open("wb") as out:
        process = subprocess.Popen(
            [sys.executable, "-m", "embedded", "--port", str(port)],
            cwd=ROOT,
            env={"PATH": os.environ["PATH"], "HOME": str(folder), "TMPDIR": str(folder), **settings},
            stdout=out,
            stderr=subprocess.STDOUT,
            start_new_session=True,  # a group by which its children are found in the end, too
        )
    try:
        running = Service(url, process, log)
        wait_for("the service to be ready", running.ready)
        yield running
    finally:
        _ignore_signals()
        _end(process)


def _end(process: subprocess.Popen[bytes]) -> None:
    """Stops the process, and then all of its group that does not end by itself."""
    process.terminate()
    with suppress(subprocess.TimeoutExpired):
        process.wait(_TO_STOP)
    end = time.monotonic() + _CHILDREN
    with suppress(ProcessLookupError):
        while time.monotonic() < end:
            os.killpg(process.pid, 0)
            time.sleep(0.02)
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def database(folder: Path) -> str:
    """The URL of the service's database."""
    return f"sqlite:///{folder / 'ptopt.db'}"


def _port(wanted: int) -> int:
    """A port that is free; 0 wants any. Raises ClickException where the wanted one is not."""
    with socket.socket() as free:
        free.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as the server does
        try:
            free.bind(("127.0.0.1", wanted))
        except OSError as error:
            raise _unusable(wanted, error) from None
        return int(free.getsockname()[1])


def _unusable(port: int, error: OSError) -> click.ClickException:
    return click.ClickException(f"port {port} cannot be used: {error.strerror}")


def wait_for(what: str, look: Callable[[], T]) -> T:
    """The first true answer. Raises ClickException after a minute without."""
    end = time.monotonic() + SECONDS
    while not (found := look()):
        if time.monotonic() > end:
            raise click.ClickException(f"waited {SECONDS:.0f} s for {what}")
        time.sleep(0.05)
    return found


def repository(
    github: FakeGitHub, folder: Path, owner: str, installed: bool
) -> tuple[Repo, dict[str, bytes | None]]:
    """OWNER/Hello-World with the base of examples/pull-request, and the files of its head (None: deleted)."""
    base = folder / "base"
    shutil.copytree(EXAMPLE / "head", base)
    patch = EXAMPLE / "change.patch"
    subprocess.run(["git", "apply", "-R", str(patch)], cwd=base, check=True)
    base_files = files(base)
    head_files: dict[str, bytes | None] = dict(files(EXAMPLE / "head"))
    repo = github.repository(f"{owner}/Hello-World", base_files, installation=installed)
    return repo, head_files | dict.fromkeys(base_files.keys() - head_files.keys())


def files(folder: Path) -> dict[str, bytes]:
    return {
        p.relative_to(folder).as_posix(): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()
    }
