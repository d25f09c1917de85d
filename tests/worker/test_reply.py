"""Replies to our comments: what kind of reply it was is kept, and nothing of its text."""

from __future__ import annotations

from fake_github.repos import Repo
from tests.worker.pulls import SLOW
from tests.worker.service import Service


def test_replies(service: Service, repo: Repo) -> None:
    pull = repo.pull(files={"train.py": SLOW}, author="mallory")
    service.catch_up()
    (comment,) = pull.review_comments
    pull.reply("dev", comment.id, "The tensor is on the CPU")
    pull.reply("mallory", comment.id, "It is not")
    pull.reply("robot[bot]", comment.id, "Beep")
    service.catch_up()
    service.twice()
    assert service.signal_values() == [("reply", ""), ("reply", "disagreement")]
    first, second = service.signals()
    assert (first.actor_writes, second.actor_writes) == (True, False)
    assert first.actor != second.actor
    assert first.comment_id == service.comments()[0].id
    assert "CPU" not in service.stored() and "It is not" not in service.stored()


def test_a_command_is_no_reply(service: Service, repo: Repo) -> None:
    pull = repo.pull(files={"train.py": SLOW}, author="dev")
    service.catch_up()
    pull.reply("dev", pull.review_comments[0].id, "/ptopt explain")
    service.catch_up()
    assert len(pull.review_comments) == 3
    assert service.signal_values() == []
