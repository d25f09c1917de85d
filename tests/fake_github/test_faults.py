"""Faults on demand, and that the log tells of them."""

from __future__ import annotations

import time

import httpx
import pytest

from fake_github import FakeGitHub, Pull, Repo
from tests.fake_github.conftest import Ask

COMMENTS = "/repos/octo/models/issues/1/comments"


@pytest.mark.parametrize(
    ("fault", "status", "written"),
    [
        ("500", 500, 0),
        ("502", 502, 0),
        ("503", 503, 0),
        ("502-after", 502, 1),
        ("drop", None, 0),
        ("drop-after", None, 1),
        ("primary-limit", 403, 0),
        ("secondary-limit", 403, 0),
        ("secondary-limit-429", 429, 0),
        ("abuse", 422, 0),
        ("expired-token", 401, 0),
    ],
)
def test_a_fault(
    github: FakeGitHub, pull: Pull, ask: Ask, fault: str, status: int | None, written: int
) -> None:
    github.faults.add("POST", r"/comments$", fault, seconds=7)
    if status is None:
        with pytest.raises(httpx.RemoteProtocolError):
            ask("POST", COMMENTS, {"body": "x"})
    else:
        answer = ask("POST", COMMENTS, {"body": "x"})
        assert answer.status_code == status
        if "secondary" in fault:
            assert answer.headers["retry-after"] == "7"
            assert "secondary-rate-limits" in answer.json()["documentation_url"]
        if fault == "primary-limit":
            assert answer.headers["x-ratelimit-remaining"] == "0"
            assert 0 < int(answer.headers["x-ratelimit-reset"]) - time.time() < 9
    assert len(pull.issue_comments) == written
    assert (github.requests[-1].status, github.requests[-1].fault) == (status or 0, fault)
    assert ask("POST", COMMENTS, {"body": "y"}).status_code == 201


def test_times_and_after(github: FakeGitHub, pull: Pull, ask: Ask) -> None:
    fault = github.faults.add("*", COMMENTS, "500", times=2, after=1)
    assert [ask("GET", COMMENTS).status_code for _ in range(5)] == [200, 500, 500, 200, 200]
    assert fault.hits == 2
    assert ask("GET", "/repos/octo/models").status_code == 200


def test_slow(github: FakeGitHub, repo: Repo, ask: Ask) -> None:
    github.faults.add("GET", "models$", "slow", seconds=0.3)
    began = time.monotonic()
    assert ask("GET", "/repos/octo/models").status_code == 200
    assert time.monotonic() - began >= 0.3


def test_a_fault_that_is_none(github: FakeGitHub) -> None:
    with pytest.raises(ValueError, match="no fault"):
        github.faults.add("GET", ".", "404")
