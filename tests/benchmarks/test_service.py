"""The benchmark of the service runs from start to end, on a small size, and its client counts what it sent."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
import uvicorn

from benchmarks.service import client
from benchmarks.service.bare import make_app

ROOT = Path(__file__).resolve().parents[2]
_ACCEPT = ("ptopt / bare ", "ptopt / bare, JSON parsed", "p99 ms")
_LATENCY = ("delivery to posted review", "; 4 reviews posted", "memory of the service", "cores")
_DELIVERIES = ("2 of 2 last heads reviewed, lost: 0, posted twice: 0", "wrong: 0", "memory of the service")
_HOSTILE = ("p99 under attack / quiet", "/healthz", "memory of the service", "lost: 0 reviews")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("part", "on", "said"),
    [
        ("accept", "sqlite", _ACCEPT),
        ("accept", "postgresql", _ACCEPT),
        ("latency", "sqlite", _LATENCY),
        ("latency", "redis", _LATENCY),
        ("hostile", "sqlite", _HOSTILE),
        ("hostile", "redis", _HOSTILE),
        ("deliveries", "redis", _DELIVERIES),
    ],
)
def test_a_second_of_each_part(part: str, on: str, said: tuple[str, ...]) -> None:
    done = subprocess.run(
        [
            sys.executable, "-m", "benchmarks.service", "--seconds", "1", "--pulls", "2", "--deliveries", "20",
            "--only", part, "--on", on,
        ],
        capture_output=True, text=True, cwd=ROOT, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    for words in said:
        assert words in done.stdout


@pytest.mark.parametrize("parse", [False, True])
def test_the_client_sends_each_request_once_and_refuses_errors(parse: bool) -> None:
    running = uvicorn.Server(uvicorn.Config(make_app(b"right", parse), "127.0.0.1", 0, log_config=None))
    thread = threading.Thread(target=running.run)
    thread.start()
    try:
        while not running.started and thread.is_alive():
            time.sleep(0.01)
        port = running.servers[0].sockets[0].getsockname()[1]
        block = client.send(port, client.requests("right", 50), connections=4)
        assert len(block.seconds) == 50
        assert block.rate > 0
        with pytest.raises(RuntimeError, match="401"):
            client.send(port, client.requests("wrong", 5), connections=2)
    finally:
        running.should_exit = True
        thread.join()
