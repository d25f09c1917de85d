"""Who asks for a review learns what became of it, without noise."""

from __future__ import annotations

import pytest

from fake_github import FakeGitHub, Pull
from fake_github.repos import Repo
from ptopt.github import markers
from tests.worker.pulls import FAST, SLOW
from tests.worker.service import Service

ELSEWHERE = "in a separate comment"
NOWHERE = "No findings outside the diff."


def answers(pull: Pull) -> list[str]:
    return [c.body for c in pull.issue_comments if markers.first(c.body, "answer")]


def full(pull: Pull) -> list[str]:
    return [c.body for c in pull.issue_comments if markers.first(c.body, "full")]


def test_nothing_to_say(service: Service, repo: Repo) -> None:
    pull = repo.pull(files={"other.py": FAST}, author="dev", draft=True)
    service.catch_up()
    pull.comment("dev", "/ptopt review")
    service.catch_up()
    (answer,) = answers(pull)
    head = f"`{pull.head_sha[:7]}`"
    assert f"A review of the head {head} is queued.\n\nReviewed {head}: no findings.\n" in answer
    assert len(pull.issue_comments) == 2 and not pull.reviews
    service.twice()
    assert answers(pull) == [answer]


def test_something_to_say(service: Service, repo: Repo) -> None:
    pull = repo.pull(files={"train.py": SLOW}, author="dev", draft=True)
    service.catch_up()
    pull.comment("dev", "/ptopt review")
    service.catch_up()
    assert "1 finding, see the review." in answers(pull)[0]
    assert len(pull.reviews) == 1 and len(pull.issue_comments) == 2


def test_nothing_that_could_be_looked_at(service: Service, repo: Repo) -> None:
    pull = repo.pull(files={"README.md": b"#"}, author="dev", draft=True)
    pull.comment("dev", "/ptopt review")
    service.catch_up()
    assert "no Python files to review" in answers(pull)[0]


def test_the_review_is_refused(service: Service, repo: Repo) -> None:
    repo.commit("main", {".ptopt.toml": b"[pull-requests]\nenabled = false\n"})
    pull = repo.pull(files={"train.py": SLOW}, author="dev")
    service.catch_up()
    pull.comment("dev", "/ptopt review")
    service.catch_up()
    assert "was not reviewed: reviews are switched off" in answers(pull)[0]


def test_in_a_thread(service: Service, repo: Repo) -> None:
    pull = repo.pull(files={"train.py": SLOW}, author="dev")
    service.catch_up()
    pull.reply("dev", pull.review_comments[0].id, "/ptopt review --full")
    service.catch_up()
    answer = pull.review_comments[-1].body
    assert "no new findings; 1 finding already reported." in answer and NOWHERE in answer
    assert len(pull.review_comments) == 3 and full(pull) == []


def test_all_that_stands_in_the_files(service: Service, repo: Repo) -> None:
    repo.commit("main", {"train.py": SLOW})
    pull = repo.pull(files={"train.py": SLOW + b"\n\nDONE = True\n"}, author="dev")
    service.catch_up()
    assert pull.issue_comments == []
    for times in (1, 2):
        pull.comment("dev", "/ptopt review --full")
        service.catch_up()
        assert len(answers(pull)) == times and ELSEWHERE in answers(pull)[-1]
        (told,) = full(pull)
        assert "1 finding" in told and "`train.py:12` PTO101 item-every-step" in told
    pull.push({"train.py": FAST + b"\n\nDONE = True\n"})
    pull.comment("dev", "/ptopt review --full")
    service.catch_up()
    assert full(pull) == [told] and NOWHERE in answers(pull)[-1]


def test_full_after_an_edit_of_the_same_comment(service: Service, repo: Repo) -> None:
    pull = repo.pull(files={"other.py": FAST}, author="dev", draft=True)
    comment = pull.comment("dev", "/ptopt review")
    service.catch_up()
    pull.edit_comment("dev", comment, "/ptopt review --full")
    service.catch_up()
    assert [NOWHERE in answer for answer in answers(pull)] == [False, True]
    assert full(pull) == []


def test_the_answer_was_deleted(service: Service, github: FakeGitHub, repo: Repo) -> None:
    repo.commit("main", {"train.py": SLOW})
    pull = repo.pull(files={"train.py": SLOW + b"\n\nDONE = True\n"}, author="dev", draft=True)
    pull.comment("dev", "/ptopt review")
    github.faults.add("PATCH", r"/issues/comments/\d+$", "502", times=1)
    jobs = service.catch_up()
    assert jobs[-1].state == "done" and "no findings" in answers(pull)[0]
    pull.comment("dev", "/ptopt review --full")
    github.faults.add("POST", r"/issues/\d+/comments$", "502-after", times=1, after=1)
    service.catch_up()
    assert len(full(pull)) == 1


@pytest.mark.parametrize("where", ["issue", "review"])
def test_a_conversation_that_takes_no_answer(
    service: Service, github: FakeGitHub, repo: Repo, where: str
) -> None:
    """Locked, or we may not write: told in the job, and not tried again."""
    pull = repo.pull(files={"train.py": SLOW}, author="dev")
    service.catch_up()
    assert repo.installation is not None
    for name in ("issues", "pull_requests"):
        repo.installation.permissions[name] = "read"
    github.tokens.clear()
    service.resources.__dict__.pop("clients", None)
    if where == "issue":
        pull.comment("dev", "/ptopt status")
    else:
        pull.reply("dev", pull.review_comments[0].id, "/ptopt status")
    jobs = service.catch_up()
    assert [(job.kind, job.state, job.attempts) for job in jobs] == [("command", "done", 1)]
    assert "403" in jobs[0].error
