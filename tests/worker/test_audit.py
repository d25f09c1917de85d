"""`/ptopt audit`: who may, how often, and the comment that comes of it."""

from __future__ import annotations

import pytest
from sqlalchemy import select

from fake_github import FakeGitHub, Pull
from fake_github.repos import Repo
from service.database import reading
from service.jobs import Kind
from service.models import Job
from tests.security.judge import assert_inert
from tests.worker.pulls import SLOW, run
from tests.worker.test_command import say
from worker.job_context import Resources

TRAINS = SLOW + b"\n\nif __name__ == '__main__':\n    train(model, loader, optimizer, device)\n"
_MARKUP = frozenset({"heading_open", "strong_open", "link_open", "blockquote_open"})


def audits(resources: Resources) -> list[Job]:
    with reading(resources.engine) as session:
        return list(session.scalars(select(Job).where(Job.kind == Kind.AUDIT.value)))


@pytest.fixture
def pull(github: FakeGitHub) -> Pull:
    hostile = "src/@evil-team/<img src=x>|`b`.py"
    repo = github.repository(
        "octo/trainings", {"train.py": TRAINS, hostile: TRAINS, "run.sh": b"python train.py\n"}
    )
    repo.permission("maintainer", "write")
    return repo.pull(files={"other.py": b"x = 1\n"}, author="dev")


def test_a_maintainer_gets_one_audit_a_day(resources: Resources, pull: Pull) -> None:
    say(resources, pull, "/ptopt audit", login="maintainer")
    assert "is queued" in pull.issue_comments[-1].body
    (job,) = audits(resources)
    assert run(resources, job.id).state == "done"
    posted = pull.issue_comments[-1].body
    assert "Training audit of trainings" in posted
    assert "`train.py`" in posted
    assert "other.py" not in posted  # the base is read, not the change
    assert_inert(posted, "audit", markup=_MARKUP)
    say(resources, pull, "/ptopt audit", login="maintainer")
    assert "was requested already" in pull.issue_comments[-1].body
    assert len(audits(resources)) == 1


def test_others_may_not(resources: Resources, pull: Pull) -> None:
    say(resources, pull, "/ptopt audit", login="dev")
    assert audits(resources) == []


def test_what_cannot_be_fetched_is_said(
    resources: Resources, pull: Pull, monkeypatch: pytest.MonkeyPatch
) -> None:
    say(resources, pull, "/ptopt audit", login="maintainer")
    monkeypatch.setattr("ptopt.github.git_diff.SECONDS", -1.0)
    (job,) = audits(resources)
    assert run(resources, job.id).state == "done"
    assert "The repository was not audited" in pull.issue_comments[-1].body


def test_a_repository_without_a_training(resources: Resources, repo: Repo) -> None:
    repo.permission("maintainer", "write")
    pull = repo.pull(files={"train.py": TRAINS}, author="dev")
    say(resources, pull, "/ptopt audit", login="maintainer")
    (job,) = audits(resources)
    assert run(resources, job.id).state == "done"
    assert "No training script found" in pull.issue_comments[-1].body
