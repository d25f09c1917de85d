"""Deliveries accepted in a second, as a ratio to a bare receiver's."""

from __future__ import annotations

import os
import socket
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from benchmarks.service import client
from service import database
from tests.worker.processes import free_port

ROOT = Path(__file__).parents[2]
SECRET = "the secret of a benchmark"
CONNECTIONS = 32
BLOCK = 1000  # requests
FEWEST_ROUNDS = 3
BARE, PARSING, OURS = "bare", "bare, JSON parsed", "ptopt"


def compare(name: str, url: str, seconds: float, folder: Path) -> None:
    """Print how many deliveries a second the service takes into the database at `url`, beside bare receivers."""
    database.upgrade(url)
    settings = {
        "PTOPT_WEBHOOK_SECRET": SECRET,
        "PTOPT_DATABASE_URL": url,
        "PTOPT_BROKER_URL": "memory://",
        "PTOPT_DEBOUNCE": "3600",  # accepting is measured, not publishing
    }
    ports = {title: free_port() for title in (BARE, PARSING, OURS)}
    bare = ("benchmarks.service.bare", str(ports[BARE]), SECRET)
    with ExitStack() as stack:
        stack.enter_context(server(folder / "bare.log", *bare))
        stack.enter_context(server(folder / "parsing.log", bare[0], str(ports[PARSING]), SECRET, "--json"))
        stack.enter_context(server(folder / "ptopt.log", "bot", "--port", str(ports[OURS]), **settings))
        for port in ports.values():
            wait_for(port)
        blocks = rounds(ports, seconds)
    report(name, blocks)


def rounds(ports: dict[str, int], seconds: float) -> dict[str, list[client.Block]]:
    """Blocks of requests to each in turn, in alternating order: the machine's moods fall on all of them."""
    blocks: dict[str, list[client.Block]] = {title: [] for title in ports}
    for port in ports.values():
        client.send(port, client.requests(SECRET, 200), CONNECTIONS)  # warm
    end = time.monotonic() + seconds
    turn = 0
    while turn < FEWEST_ROUNDS or time.monotonic() < end:
        for title in list(ports) if turn % 2 else list(ports)[::-1]:
            blocks[title].append(client.send(ports[title], client.requests(SECRET, BLOCK), CONNECTIONS))
        turn += 1
    return blocks


def report(name: str, blocks: dict[str, list[client.Block]]) -> None:
    size = len(client.requests(SECRET, 1)[0])
    print(f"\n{name}: {len(blocks[OURS])} blocks of {BLOCK} deliveries to each in turn, of {size:,} bytes,")
    print(f"{CONNECTIONS} connections; the row is committed before the 202")
    print(f"{'':20}{'a second':>10}{'p50 ms':>10}{'p99 ms':>10}")
    for title, made in blocks.items():
        rate = statistics.median(block.rate for block in made)
        times = sorted(second * 1e3 for block in made for second in block.seconds)
        print(f"{title:20}{rate:10.0f}{quantile(times, 0.5):10.1f}{quantile(times, 0.99):10.1f}")
    for title in (BARE, PARSING):
        ratios = [ours.rate / bare.rate for ours, bare in zip(blocks[OURS], blocks[title], strict=True)]
        print(
            f"ptopt / {title:20} {statistics.median(ratios):.2f} x   ({min(ratios):.2f}..{max(ratios):.2f})"
        )


def quantile(ordered: list[float], share: float) -> float:
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


@contextmanager
def server(log: Path, module: str, *arguments: str, **settings: str) -> Iterator[None]:
    """`python -m MODULE ARGUMENTS` in a process of its own, with these settings and no others."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PTOPT_")}
    with log.open("wb") as out:
        process = subprocess.Popen(
            [sys.executable, "-m", module, *arguments],
            cwd=ROOT, env=environment | settings, stdout=out, stderr=subprocess.STDOUT,
        )  # fmt: skip
    try:
        yield
    finally:
        process.kill()
        process.wait()


def wait_for(port: int, seconds: float = 60.0) -> None:
    """Until somebody listens there. Raises TimeoutError."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        try:
            socket.create_connection(("127.0.0.1", port)).close()
        except OSError:
            time.sleep(0.1)
        else:
            return
    raise TimeoutError(f"nobody listens at port {port}")
