"""How a job ends that asks for too much."""

from __future__ import annotations

import pytest

from fake_github.repos import Repo
from ptopt.github import transport
from tests.worker.pulls import SLOW, job_for, run
from worker import run_job
from worker.job_context import Resources


def test_more_comments_than_are_read(
    resources: Resources, repo: Repo, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transport, "MAX_PAGES", 1)
    pull = repo.pull(files={"train.py": SLOW}, author="dev")
    for number in range(101):
        pull.comment("dev", str(number))
    job = run(resources, job_for(resources, pull))
    assert (job.state, job.attempts) == ("done", 1)
    assert "more than 1 pages" in job.error
    assert pull.reviews == []


def _deep() -> str:
    return _deep()


def _large() -> str:
    return str(len(bytearray(2**62)))


@pytest.mark.parametrize(("fails", "says"), [(_deep, "RecursionError"), (_large, "MemoryError")])
def test_memory_and_stack_are_not_tried_again(
    resources: Resources, repo: Repo, monkeypatch: pytest.MonkeyPatch, fails: object, says: str
) -> None:
    monkeypatch.setattr(run_job, "handler_of", lambda _kind: lambda _context, _payload: fails())  # type: ignore[operator]
    job = run(resources, job_for(resources, repo.pull(files={"train.py": SLOW}, author="dev")))
    assert (job.state, job.attempts) == ("dead", 1)
    assert job.finished_at is not None and says in job.error
