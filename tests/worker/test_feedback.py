"""What people did about comments is in force at the next review of the repository, and nowhere else."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from sqlalchemy import select

from fake_github import FakeGitHub, Pull
from fake_github.repos import Repo
from feedback.calibration import FEWEST_AGAINST_CRITICAL
from ptopt.rules import find_rule
from service.database import reading, writing
from service.models import CommentRow, ReviewRow, Signal
from tests.worker.pulls import FAST, SLOW, job_for, now, run
from tests.worker.test_command import say
from worker.job_context import Resources

PEOPLE = FEWEST_AGAINST_CRITICAL + 2


def comments(resources: Resources) -> list[CommentRow]:
    with reading(resources.engine) as session:
        return list(session.scalars(select(CommentRow).order_by(CommentRow.id)))


def vote(
    resources: Resources, comment: CommentRow, value: str = "-1", people: int = PEOPLE, **more: Any
) -> None:
    """People react to a comment, as the poll of reactions records it."""
    with writing(resources.engine) as session:
        for number in range(people):
            given = {"actor": f"dev{number}", "actor_writes": True, "source": f"reaction-{number}"} | more
            at = now() + timedelta(seconds=number)
            session.add(Signal(comment_id=comment.id, kind="reaction", value=value, created_at=at, **given))


def reviewed(resources: Resources, repo: Repo) -> Pull:
    pull = repo.pull(files={"train.py": SLOW}, author="dev")
    assert run(resources, job_for(resources, pull)).state == "done"
    return pull


def test_a_rule_becomes_quiet_where_people_do_not_want_it(
    resources: Resources, repo: Repo, github: FakeGitHub
) -> None:
    first = reviewed(resources, repo)
    (posted,) = comments(resources)
    assert (posted.score, posted.explored, len(posted.author)) == (posted.confidence, False, 32)
    vote(resources, posted)
    second = reviewed(resources, repo)
    assert len(first.review_comments) == 1 and second.review_comments == []
    with reading(resources.engine) as session:
        assert [r.findings for r in session.scalars(select(ReviewRow).order_by(ReviewRow.id))] == [1, 0]
    # Nobody else's review is another one.
    other = github.repository("octo/other", {"train.py": FAST})
    assert len(reviewed(resources, other).review_comments) == 1


def test_praise_shows_in_the_confidence_and_not_in_the_score(resources: Resources, repo: Repo) -> None:
    reviewed(resources, repo)
    vote(resources, comments(resources)[0], "+1")
    reviewed(resources, repo)
    before, after = comments(resources)
    assert after.confidence > before.confidence
    assert after.score is not None and before.score is not None and abs(after.score - before.score) < 0.01


def test_people_who_may_not_write_make_nothing_quiet(resources: Resources, repo: Repo) -> None:
    reviewed(resources, repo)
    vote(resources, comments(resources)[0], people=20, actor_writes=False)
    assert len(reviewed(resources, repo).review_comments) == 1


def test_status_says_what_feedback_did_and_why(resources: Resources, repo: Repo) -> None:
    pull = reviewed(resources, repo)
    (posted,) = comments(resources)
    say(resources, pull, "/ptopt status")
    assert "Feedback" not in pull.issue_comments[-1].body
    vote(resources, posted)
    say(resources, pull, "/ptopt status")
    rule = find_rule(posted.rule)
    assert rule is not None
    answer = pull.issue_comments[-1].body
    why = f"quiet here: {PEOPLE} people voted on it here, {PEOPLE} against it, so its comments are no longer made"
    assert f"Feedback on `{rule.id} {rule.name}`: {why}" in answer
    say(resources, pull, "/ptopt explain", thread=posted.github_id)
    body = pull.review_comments[-1].body
    assert f"- feedback in this repository: {why}" in body
    assert "worth a change with" in body and "by default comments are made from" in body
    assert "log" + "-odds" not in body and "driver" not in body
