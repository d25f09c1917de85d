"""What is left when all of it has settled, which has to be exact."""

from __future__ import annotations

import time
from collections import Counter
from dataclasses import dataclass, field

from sqlalchemy import select

from fake_github import FakeGitHub, Pull
from ptopt.github import markers
from service import database
from service.models import DeliveryRow, Job, JobState
from tests.faults.fleet import Fleet
from tests.faults.people import PUSHES


@dataclass
class Outcome:
    """`wrong` says what is not as it should be, in words; the others count."""

    reviews: int = 0
    lost: int = 0  # pull requests whose last head has no review
    doubled: int = 0  # reviews beyond the first of a head
    comments: int = 0
    commands: int = 0
    answered: int = 0
    states: Counter[str] = field(default_factory=Counter)  # of jobs
    wrong: list[str] = field(default_factory=list)


def settle(fleet: Fleet, github: FakeGitHub, database_url: str, seconds: float) -> None:
    """Until every delivery arrived and every job is finished. Raises AssertionError after so many seconds."""
    engine = database.engine(database_url)
    columns = (Job.id, Job.kind, Job.state, Job.pull, Job.attempts, Job.deferrals, Job.due_at, Job.error)
    open_jobs = select(*columns).where(Job.state.in_(["queued", "running"]))
    end = time.monotonic() + seconds
    quiet, left, missing = 0, list[object](), set[str]()
    while quiet < 3:
        if time.monotonic() > end:
            raise AssertionError(f"left: {left[:5]} and {len(missing)} deliveries\n{fleet.logs()}")
        time.sleep(1)
        fleet.start_ended()  # such as one that found no Redis when it started
        with database.reading(engine) as session:
            left = [*session.execute(open_jobs)]
            arrived = set(session.scalars(select(DeliveryRow.guid)))  # the answer may be lost
        arrived |= {delivery.guid for delivery in github.deliveries if delivery.status_code == 202}
        missing = {delivery.guid for delivery in github.deliveries} - arrived
        quiet = 0 if left or missing else quiet + 1
    engine.dispose()


def outcome(github: FakeGitHub, pulls: list[Pull], database_url: str) -> Outcome:
    """Each pull request has one review of its last head, each comment stands once, each command is answered once."""
    found = Outcome()
    for pull in pulls:
        _reviews(found, pull, github.app.login)
        _answers(found, pull, github.app.login)
    # A line off the diff would have been refused with 422.
    refused = [r for r in github.requests if r.status == 422 and r.fault is None]
    found.wrong += [f"refused: {request}" for request in refused]
    engine = database.engine(database_url)
    with database.reading(engine) as session:
        found.states.update(session.scalars(select(Job.state)))
        errors = list(session.scalars(select(Job.error).where(Job.state == JobState.DEAD.value)))
    engine.dispose()
    found.wrong += [f"dead: {error}" for error in errors]
    if found.states.keys() - {JobState.DONE.value, JobState.SUPERSEDED.value}:
        found.wrong.append(f"not finished: {dict(found.states)}")
    return found


def _reviews(found: Outcome, pull: Pull, bot: str) -> None:
    heads = Counter(review.commit_id for review in pull.reviews if review.author.login == bot)
    found.reviews += heads.total()
    if not heads[pull.head_sha]:
        found.lost += 1
        found.wrong.append(f"no review of the head of {pull}: {heads}, {pull.log}")
    if set(heads.values()) - {1}:
        found.doubled += heads.total() - len(heads)
        found.wrong.append(f"reviewed twice: {pull}: {heads}")
    comments = [c for c in pull.review_comments if c.author.login == bot]
    found.comments += len(comments)
    marks = Counter(str(markers.first(comment.body, "finding")) for comment in comments)
    if len(marks) != PUSHES + 1 or set(marks.values()) != {1}:
        found.wrong.append(f"comments of {pull}: {marks}")


def _answers(found: Outcome, pull: Pull, bot: str) -> None:
    commands = Counter(c.id for c in pull.issue_comments if c.author.login == "dev")
    marks = [markers.first(c.body, "answer") for c in pull.issue_comments if c.author.login == bot]
    answered = Counter(int(mark.words[0]) for mark in marks if mark is not None)
    found.commands += commands.total()
    found.answered += answered.total()
    if answered != commands:
        found.wrong.append(f"answers of {pull}: {answered} to {commands}")
