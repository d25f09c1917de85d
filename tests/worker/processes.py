"""Workers, scheduler and the embedded service as the processes they are in production."""

from __future__ import annotations

import itertools
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from service.settings import Settings

ROOT = Path(__file__).parents[2]


def environment(settings: Settings) -> dict[str, str]:
    """Variables that give these settings to a process."""
    given = {}
    for name in settings.model_fields_set:
        value = getattr(settings, name)
        given[f"PTOPT_{name.upper()}"] = str(getattr(value, "get_secret_value", lambda value=value: value)())
    return {**os.environ, **given, "PYTHONPATH": str(ROOT)}


@contextmanager
def process(settings: Settings, *arguments: str) -> Iterator[subprocess.Popen[bytes]]:
    """`python *arguments` in a process group of its own, which is killed in the end."""
    with subprocess.Popen(
        [sys.executable, *arguments], cwd=ROOT, env=environment(settings), start_new_session=True
    ) as started:
        try:
            yield started
        finally:
            kill(started)


def kill(started: subprocess.Popen[bytes]) -> None:
    """SIGKILL to the process and its children, also when it has gone before them."""
    try:
        os.killpg(started.pid, signal.SIGKILL)
    except ProcessLookupError:
        return
    started.wait()


def worker() -> tuple[str, ...]:
    return (
        "-m",
        "celery",
        "-A",
        "worker",
        "worker",
        "--concurrency",
        "1",
        "--without-mingle",
        "--without-gossip",
    )


_WORKER = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
_ports = itertools.cycle(range(10_000 + _WORKER % 40 * 500, 10_000 + (_WORKER % 40 + 1) * 500))


def free_port() -> int:
    """A port that nobody else gets: of this test worker alone, and below those that the system hands out."""
    for port in itertools.islice(_ports, 500):
        with socket.socket() as probe, suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port
    raise OSError("no port is free")


def wait_for(what: Callable[[], object], seconds: float = 60) -> None:
    """Until `what()` is true. Raises AssertionError after so many seconds."""
    deadline = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.05)
