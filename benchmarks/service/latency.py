"""Seconds from a delivery to the posted review, while pull requests come at a steady rate."""

from __future__ import annotations

import http.client
import json
import os
import random
import re
import threading
import time
from collections.abc import Callable
from pathlib import Path

from benchmarks.service import client
from benchmarks.service.accept import quantile
from benchmarks.service.processes import memory, processor_seconds
from fake_github import FakeGitHub, Pull, Repo, Request, Response
from ptopt.project.around import MOST_FILES
from tests.faults.fleet import Fleet

ROOT = Path(__file__).parents[2]
RATE = 5.0  # pull requests a second
WAIT = 60.0  # seconds for the last reviews
EXAMPLE = ROOT / "examples/pull-request/head"
_REVIEW = re.compile(r"/pulls/(\d+)/reviews$")


class Posted:
    """A check of the fake GitHub that notes when each pull request got its review, and complains of nothing."""

    def __init__(self) -> None:
        self.at: dict[int, float] = {}
        self._changed = threading.Condition()

    def __call__(self, request: Request, response: Response) -> None:
        found = _REVIEW.search(request.path)
        if found and request.method == "POST" and response.status == 200:
            with self._changed:
                self.at.setdefault(int(found[1]), time.perf_counter())
                self._changed.notify()

    def wait(self, number: int) -> bool:
        with self._changed:
            return self._changed.wait_for(lambda: len(self.at) >= number, WAIT)


def delays(median: float) -> Callable[[], float]:
    """Seconds that requests to GitHub take: log-normal, from half to three times the median, the same each time."""
    seeded = random.Random(0)

    def delay() -> float:
        return median * min(3.0, max(0.5, seeded.lognormvariate(0.0, 0.5)))

    return delay


def measure(
    name: str, seconds: float, folder: Path, database_url: str, broker_url: str | None, delay: float = 0.0
) -> None:
    """Print the latency of the service with this database; `broker_url` None: the embedded service.

    `delay`: the median of the seconds that a request to GitHub takes.
    """
    posted = Posted()
    with FakeGitHub(checks=[posted]) as github:
        repo = github.repository("octo/models", base_files())
        pulls = open_pulls(repo, max(3, int(seconds * RATE)))
        with Fleet(github, folder, database_url, broker_url) as fleet:
            warm, *pulls = pulls
            deliver(fleet.port, github, repo, warm)
            if not posted.wait(1):
                raise TimeoutError(f"no review came\n{fleet.logs()}")
            if delay:
                github.delay = delays(delay)
            requests = len(github.requests)
            service = sum(processor_seconds(process.session) for process in fleet.processes)
            own, start = sum(os.times()[:4]), time.perf_counter()
            sent = {}
            for at, pull in enumerate(pulls):
                time.sleep(max(0.0, start + at / RATE - time.perf_counter()))
                sent[pull.number] = time.perf_counter()
                deliver(fleet.port, github, repo, pull)
            posted.wait(1 + len(pulls))
            requests = len(github.requests) - requests
            service = sum(processor_seconds(process.session) for process in fleet.processes) - service
            size = sum(sum(memory(process.session)) for process in fleet.processes)
            share = (sum(os.times()[:4]) - own) / (time.perf_counter() - start)
    times = sorted(posted.at[number] - sent[number] for number in sent if number in posted.at)
    if not times:
        raise TimeoutError("no review came")
    print(f"\n{name}: {len(pulls)} pull requests opened, {RATE:g} a second; {len(times)} reviews posted")
    print(
        f"delivery to posted review   p50 {quantile(times, 0.5):.2f} s   p95 {quantile(times, 0.95):.2f} s   "
        f"p99 {quantile(times, 0.99):.2f} s   (0.5 s of it is waited on purpose)"
    )
    print(
        f"requests to GitHub: {requests / len(times):.1f} for each review, "
        + (f"each after a median of {delay * 1e3:.0f} ms" if delay else "answered at once")
    )
    print(
        f"processor time of the service: {service / len(times) * 1e3:.0f} ms for each review; without databases"
    )
    print(f"memory of the service after that: {size / 1e6:.0f} MB (proportional set size); without databases")
    print(f"the fake GitHub and the sender, on the same cores, took {share:.2f} cores")


def base_files() -> dict[str, bytes]:
    """What the pull requests build upon: more Python files than a review reads around its change, of a usual size."""
    text = b"".join(path.read_bytes() for path in sorted(EXAMPLE.rglob("*.py")))
    return {f"lib/part{at}.py": b"# part %d\n" % at + text for at in range(MOST_FILES + 10)}


def open_pulls(repo: Repo, number: int) -> list[Pull]:
    """Pull requests with the Python files of the example, each with a head of its own."""
    repo.permission("dev", "write")
    files = {path.name: path.read_bytes() for path in EXAMPLE.rglob("*.py")}
    return [
        repo.pull(
            files={f"{at}/{name}": text for name, text in files.items()}, title=f"Number {at}", author="dev"
        )
        for at in range(number)
    ]


def deliver(port: int, github: FakeGitHub, repo: Repo, pull: Pull) -> None:
    """The recorded payload of an opened pull request, about this one."""
    payload = client.recorded("opened")
    installation = repo.installation
    assert installation is not None
    payload["number"] = payload["pull_request"]["number"] = pull.number
    payload["pull_request"]["head"]["sha"] = pull.head_sha
    payload["installation"]["id"] = installation.id
    payload["repository"] |= {"id": repo.id, "full_name": repo.full_name}
    body = json.dumps(payload).encode()
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    connection.request(
        "POST", client.PATH, body, client.headers(github.app.webhook_secret, "pull_request", body)
    )
    status = connection.getresponse().status
    connection.close()
    if status != 202:
        raise RuntimeError(f"a delivery was answered {status}")
