"""The service as separate processes that can be killed at any moment, and are started again as Kubernetes would."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import httpx

from fake_github import FakeGitHub
from ptopt.ranker.model import ENVIRONMENT
from tests.worker.processes import free_port

ROOT = Path(__file__).parents[2]
QUEUES = "review,command,feedback,training"
QUICK = {  # settings for a battery of faults: it is not to wait for what production waits for
    "debounce": "0.3",
    "lease": "4",
    "sweep_every": "1",
    "redeliver_every": "2",
    "commands_per_hour": "9999",
    "stranger_commands_per_pull": "9999",
    # At a kill every few seconds, one of some hundred jobs is hit three times by chance.
    "max_attempts": "8",
}


class Process:
    """One process of the service; `kill` is SIGKILL to it and its children."""

    def __init__(self, name: str, command: list[str], environment: dict[str, str], folder: Path) -> None:
        self.name = name
        self.kills = self.ends = 0  # how often it was killed, and how often it ended by itself
        self._started = 0.0
        self._command, self._environment = command, environment
        self.log = folder / f"{name}.log"
        self._running: subprocess.Popen[bytes] | None = None
        self._lock = threading.Lock()

    def start(self) -> None:
        with self._lock, self.log.open("ab") as out:
            self._running = subprocess.Popen(
                [sys.executable, "-m", *self._command],
                cwd=ROOT,
                env=self._environment,
                stdout=out,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
            self._started = time.monotonic()

    @property
    def age(self) -> float:
        """Seconds since its last start."""
        return time.monotonic() - self._started

    def kill(self) -> None:
        with self._lock:
            running = self._running
            if running is not None and running.poll() is None:
                os.killpg(running.pid, signal.SIGKILL)
                running.wait()
                self.kills += 1

    def restart(self) -> None:
        self.kill()
        self.start()

    def start_if_ended(self) -> None:
        if self.has_ended():
            self.ends += 1
            self.start()

    @property
    def session(self) -> int:
        """The id of the session that the process and its children are in."""
        return 0 if self._running is None else self._running.pid

    def has_ended(self) -> bool:
        return self._running is not None and self._running.poll() is not None


class Fleet:
    """Processes that serve a fake GitHub. `embedded`: one; else the web application, two workers and the scheduler."""

    def __init__(
        self,
        github: FakeGitHub,
        folder: Path,
        database_url: str,
        broker_url: str | None = None,
        **settings: str,
    ) -> None:
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.seconds_to_start = 0.0
        environment = {
            "PATH": os.environ["PATH"],
            "HOME": str(folder),
            "PTOPT_GITHUB_URL": github.url,
            "PTOPT_APP_ID": str(github.app.id),
            "PTOPT_PRIVATE_KEY": github.app.private_key,
            "PTOPT_WEBHOOK_SECRET": github.app.webhook_secret,
            "PTOPT_DATABASE_URL": database_url,
            "PTOPT_BROKER_URL": broker_url or "",
            "PTOPT_SECONDS_BETWEEN_WRITES": "0",
            ENVIRONMENT: os.environ.get(ENVIRONMENT, ""),
            **{f"PTOPT_{name.upper()}": value for name, value in settings.items()},
        }

        def process(name: str, *command: str) -> Process:
            return Process(name, list(command), environment, folder)

        if broker_url is None:
            self.processes = [process("embedded", "embedded", "--port", str(self.port))]
        else:
            worker = ("celery", "-A", "worker.celery", "worker", "-Q", QUEUES, "--without-mingle")
            self.processes = [
                process("bot", "bot", "--port", str(self.port)),
                process("worker1", *worker, "-n", "one@%h"),
                process("worker2", *worker, "-n", "two@%h"),
                process("scheduler", "worker.scheduler"),
            ]

    def __enter__(self) -> Fleet:
        start = time.monotonic()
        for process in self.processes:
            process.start()
        self.wait_ready()
        self.seconds_to_start = time.monotonic() - start
        return self

    def __exit__(self, *_: object) -> None:
        for process in self.processes:
            process.kill()

    def start_ended(self) -> None:
        """As Kubernetes does with what ended by itself."""
        for process in self.processes:
            process.start_if_ended()

    def wait_ready(self, seconds: float = 60.0) -> None:
        end = time.monotonic() + seconds
        while time.monotonic() < end and not any(process.has_ended() for process in self.processes):
            try:
                if httpx.get(f"{self.url}/readyz", timeout=5).status_code == 200:
                    return
            except httpx.TransportError:
                pass
            time.sleep(0.1)
        raise AssertionError(f"not ready within {seconds} s\n{self.logs()}")

    def logs(self, characters: int = 4000) -> str:
        """The end of each log."""
        return "\n".join(
            f"--- {p.name}\n{p.log.read_text(errors='replace')[-characters:]}" for p in self.processes
        )
