"""One tenant opens pull requests made to keep the service busy, another ordinary ones: what the other one feels."""

from __future__ import annotations

import http.client
import itertools
import os
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

from sqlalchemy import Engine, select

from benchmarks.service.accept import quantile
from benchmarks.service.latency import EXAMPLE, delays, deliver
from benchmarks.service.memory import PeakMemory
from fake_github import FakeGitHub, Pull, Repo, Request, Response
from ptopt.rules import rules
from service import database
from service.database import reading
from service.jobs import Kind
from service.models import Job, JobState
from tests import hostile
from tests.faults.fleet import Fleet

RATE = 1.0  # ordinary pull requests a second
ATTACK_RATE = 20.0  # hostile ones
LINES = 4_000  # of a program made of a rule's example
SETTLE = 3600.0  # seconds that the service is given for all that was opened


class Posted:
    """A check of the fake GitHub that notes when each pull request got its reviews, and complains of nothing."""

    def __init__(self) -> None:
        self.at: dict[tuple[str, int], float] = {}
        self.times: Counter[tuple[str, int]] = Counter()

    def __call__(self, request: Request, response: Response) -> None:
        if request.method == "POST" and request.path.endswith("/reviews") and response.status == 200:
            _, owner, name, _, number, _ = request.path.rsplit("/", 5)
            key = f"{owner}/{name}", int(number)
            self.times[key] += 1
            self.at.setdefault(key, time.perf_counter())


def measure(
    name: str,
    pulls: int,
    seconds: float,
    folder: Path,
    database_url: str,
    broker_url: str | None,
    delay: float = 0.0,
) -> None:
    """Print what `pulls` hostile pull requests do to the others, after `seconds` without any.

    `broker_url` None: the embedded service. `delay`: the median of the seconds that a request to GitHub takes.
    """
    posted = Posted()
    with FakeGitHub(checks=[posted]) as github:
        ordinary, attacked = (
            github.repository(f"{who}/models", {"README.md": b"x"}) for who in ("octo", "mallory")
        )
        ordinary.permission("dev", "write")
        bombs = list(itertools.islice(_bombs(attacked), pulls))
        with (
            Fleet(github, folder, database_url, broker_url) as fleet,
            PeakMemory(fleet) as memory,
            _Health(fleet) as health,
        ):
            opener = _Opener(fleet.port, github, ordinary)
            deliver(fleet.port, github, ordinary, opener.pull())  # warm
            _wait(lambda: bool(posted.at), 60)
            github.delay = delays(delay) if delay else None
            quiet = opener.open_for(seconds)
            _wait(lambda: all((ordinary.full_name, number) in posted.at for number in quiet), 60)
            health.seconds.clear()
            start = time.perf_counter()
            attack = threading.Thread(target=_attack, args=(fleet.port, github, attacked, bombs))
            attack.start()
            engine = database.engine(database_url)
            states: Counter[str] = Counter()

            def settled() -> bool:
                states.clear()
                states.update(_states(engine, attacked))
                return not attack.is_alive() and not states.keys() & {"queued", "running"}

            loud = opener.open_for(SETTLE, settled)
            took = time.perf_counter() - start
            _wait(lambda: not _states(engine, ordinary).keys() & {"queued", "running"}, 120)
            done = _states(engine, ordinary)
            engine.dispose()
            github.delay = None
    times = [
        sorted(posted.at.get((ordinary.full_name, number), float("inf")) - at for number, at in sent.items())
        for sent in (quiet, loud)
    ]
    # A pull request that is too large is answered without a review: superseded. The one that warmed is counted, too.
    answered = states[JobState.DONE.value] + states[JobState.SUPERSEDED.value] + done[JobState.DONE.value]
    lost = len(bombs) + 1 + len(quiet) + len(loud) - answered
    p99 = [quantile(each, 0.99) for each in times]
    print(
        f"\n{name}: {len(bombs)} hostile pull requests of one tenant, worked off in {took:.0f} s, {dict(states)}"
    )
    for label, each in zip(("quiet", "under attack"), times, strict=True):
        print(
            f"the other tenant, {label:12}  {len(each):4} reviews   p50 {quantile(each, 0.5):.2f} s   "
            f"p95 {quantile(each, 0.95):.2f} s   p99 {quantile(each, 0.99):.2f} s"
        )
    print(f"p99 under attack / quiet: {p99[1] / p99[0]:.2f} x")
    print(
        f"/healthz: {len(health.seconds)} answers, the slowest after {max(health.seconds, default=0) * 1e3:.0f} ms"
    )
    print(f"memory of the service: {memory}")
    twice = sum(number > 1 for number in posted.times.values())
    print(f"lost: {lost} reviews; posted twice: {twice}; load of the machine {os.getloadavg()[0]:.1f}")


def _bombs(repo: Repo) -> Iterator[Pull]:
    """Pull requests of each kind in turn, the same again after the last."""
    step = {"train.py": hostile.STEP.encode()}
    kinds = [
        {"train.ipynb" if text.startswith("{") else "train.py": text.encode()}
        for text in hostile.PROGRAMS.values()
    ]
    kinds += [{path: content} | step for path, content in hostile.PROJECT_FILES.values()]
    shapes = itertools.cycle(hostile.SHAPES.values())
    for rule in rules():
        kinds.append({"train.py": next(shapes)(hostile.examples(rule)[0], LINES).encode()})
    for at, files in enumerate(itertools.cycle(kinds)):
        yield repo.pull(files=files, title=f"Number {at}", author=repo.owner.login)


def _attack(port: int, github: FakeGitHub, repo: Repo, pulls: list[Pull]) -> None:
    start = time.perf_counter()
    for at, pull in enumerate(pulls):
        time.sleep(max(0.0, start + at / ATTACK_RATE - time.perf_counter()))
        deliver(port, github, repo, pull)


def _states(engine: Engine, repo: Repo) -> Counter[str]:
    """How many reviews of the repository are in which state."""
    with reading(engine) as session:
        wanted = Job.repository_id == repo.id, Job.kind == Kind.REVIEW.value
        return Counter(session.scalars(select(Job.state).where(*wanted)))


class _Opener:
    """Opens ordinary pull requests at a steady rate."""

    def __init__(self, port: int, github: FakeGitHub, repo: Repo) -> None:
        self._port, self._github, self._repo = port, github, repo
        self._files = {path.name: path.read_bytes() for path in EXAMPLE.rglob("*.py")}
        self._number = 0

    def pull(self) -> Pull:
        self._number += 1
        files = {f"{self._number}/{name}": text for name, text in self._files.items()}
        return self._repo.pull(files=files, title=f"Number {self._number}", author="dev")

    def open_for(self, seconds: float, over: Callable[[], bool] = lambda: False) -> dict[int, float]:
        """Number of each pull request -> when it was opened; ends early when `over()`."""
        sent: dict[int, float] = {}
        start = time.perf_counter()
        while time.perf_counter() < start + seconds:
            pull = self.pull()
            time.sleep(max(0.0, start + len(sent) / RATE - time.perf_counter()))
            sent[pull.number] = time.perf_counter()
            deliver(self._port, self._github, self._repo, pull)
            if len(sent) >= 10 and over():
                break
        return sent


def _wait(what: Callable[[], bool], seconds: float) -> None:
    end = time.monotonic() + seconds
    while not what() and time.monotonic() < end:
        time.sleep(0.1)


class _Health:
    """What `/healthz` took, within its `with` block."""

    def __init__(self, fleet: Fleet) -> None:
        self.seconds: list[float] = []
        self._fleet = fleet
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._request, daemon=True)

    def __enter__(self) -> _Health:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join(60)

    def _request(self) -> None:
        while not self._over.wait(0.2):
            start = time.perf_counter()
            connection = http.client.HTTPConnection("127.0.0.1", self._fleet.port, timeout=30)
            try:
                connection.request("GET", "/healthz")
                connection.getresponse().read()
            except OSError:
                pass  # it counts with the time it took
            finally:
                connection.close()
            self.seconds.append(time.perf_counter() - start)
