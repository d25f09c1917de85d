from __future__ import annotations

from typing import Any

import pytest

from bot import events
from bot.events import Delivery, on
from bot.payloads import Event, PullRequestEvent
from service.jobs import Kind, NewJob, NoPayload, dump
from tests.bot.conftest import pull_request

DEV = {"id": 3, "login": "dev", "type": "User"}
BOT = {"id": 4, "login": "helper[bot]", "type": "Bot"}
ACTOR = {"id": 3, "login": "dev", "is_bot": False}


def jobs(event: str, payload: dict[str, Any], *, debounce: float = 10.0) -> list[NewJob]:
    entry = events.load()[event]
    read = entry.model.model_validate(payload)
    return entry.handlers[read.action](read, Delivery(b"the body", debounce))


def comment(
    action: str, body: str | None, *, sender: dict[str, Any] | None = None, **more: Any
) -> dict[str, Any]:
    stamps = {"created_at": "2026-11-20T10:00:00Z", "updated_at": "2026-11-20T10:00:05Z"}
    return pull_request(action) | {
        "sender": sender or DEV,
        "issue": {"number": 7, "pull_request": {"url": "x"}},
        "comment": {"id": 99, "body": body, "user": DEV, **stamps, **more},
    }


@pytest.mark.parametrize(
    ("action", "subject", "delay"),
    [
        ("opened", "", 0.5),
        ("reopened", "reopened", 0.5),
        ("ready_for_review", "ready_for_review", 0.5),
        ("synchronize", "", 10.0),
    ],
)
def test_reviews(action: str, subject: str, delay: float) -> None:
    (job,) = jobs("pull_request", pull_request(action, draft=True))
    assert job == NewJob(
        Kind.REVIEW,
        installation_id=5,
        repository_id=11,
        repository="octo/models",
        pull=7,
        head_sha="a" * 40,
        subject=subject,
        actor="dev",
        delay=delay,
    )


def test_without_debounce_nothing_waits() -> None:
    assert {
        jobs("pull_request", pull_request(action), debounce=0)[0].delay
        for action in ("opened", "synchronize")
    } == {0}


def test_sha256_repositories() -> None:
    assert jobs("pull_request", pull_request(head={"sha": "b" * 64}))[0].head_sha == "b" * 64


@pytest.mark.parametrize("merged", [True, False])
def test_closed(merged: bool) -> None:
    (job,) = jobs("pull_request", pull_request("closed", merged=merged))
    assert (job.kind, job.payload, job.head_sha) == (Kind.CLOSED, NoPayload(), "a" * 40)
    assert job.subject == ("merged" if merged else "")  # it may be closed first, and merged later


@pytest.mark.parametrize(
    "body", ["/ptopt help", "Hi\n\n  /ptopt review --full", "> a\r\n/PTOPT fix\r\n", "```\n/ptopt fix\n```"]
)
@pytest.mark.parametrize(
    ("event", "where"), [("issue_comment", "issue"), ("pull_request_review_comment", "review")]
)
def test_commands(event: str, where: str, body: str) -> None:
    (job,) = jobs(event, comment("created", body))
    assert (job.kind, job.subject, job.pull, job.actor) == (Kind.COMMAND, f"{where}-99-0", 7, "dev")
    assert dump(job.payload) == {
        "where": where,
        "comment_id": 99,
        "in_reply_to": None,
        "body": body,
        "previous_body": None,
        "actor": ACTOR,
    }


@pytest.mark.parametrize(
    "body", [None, "", "see /ptopt help", "/ptopts", "/ptopt-x", "//ptopt", "\\/ptopt", "/ ptopt"]
)
def test_no_commands(body: str | None) -> None:
    assert jobs("issue_comment", comment("created", body)) == []


def test_a_long_comment_is_searched_in_linear_time() -> None:
    for body in (" " * 200_000, "\n" * 200_000, " \t" * 100_000 + "x", "/ptop" * 50_000):
        assert jobs("issue_comment", comment("created", body)) == []


def test_bots_give_no_commands() -> None:
    for event in ("issue_comment", "pull_request_review_comment"):
        assert jobs(event, comment("created", "/ptopt help", sender=BOT)) == []
        assert jobs(event, comment("created", "/ptopt help", sender=BOT | {"type": "User"})) == []


def test_issues_are_not_pull_requests() -> None:
    assert jobs("issue_comment", comment("created", "/ptopt help") | {"issue": {"number": 7}}) == []


def test_edited_commands() -> None:
    payload = comment("edited", "/ptopt fix") | {"changes": {"body": {"from": "/ptopt help"}}}
    (job,) = jobs("issue_comment", payload)
    assert job.payload.previous_body == "/ptopt help"
    assert job.subject == "issue-99-1795168805"  # the second of the edit: the next edit is another job
    assert jobs("issue_comment", comment("edited", "/ptopt fix") | {"changes": {}}) == []
    was_empty = payload | {"changes": {"body": {"from": ""}}}
    assert jobs("issue_comment", was_empty)[0].payload.previous_body == ""


@pytest.mark.parametrize("event", ["issue_comment", "pull_request_review_comment"])
@pytest.mark.parametrize("author", [{"id": 8, "login": "stranger", "type": "User"}, BOT, None])
def test_an_edit_by_somebody_else_gives_no_command(event: str, author: dict[str, Any] | None) -> None:
    changes = {"changes": {"body": {"from": "x" * 20_000 + "\n\n/ptopt fix"}}}
    payload = comment("edited", "/ptopt fix", user=author) | changes
    assert jobs(event, payload) == []
    assert len(jobs(event, comment("edited", "/ptopt fix") | changes)) == 1


def test_a_comment_of_a_deleted_account_gives_no_command() -> None:
    """Neither author nor sender has an id then: two unknown people are not one."""
    payload = comment("created", "/ptopt fix", user=None) | {"sender": None}
    assert jobs("issue_comment", payload) == []


def test_postgresql_can_store_every_text() -> None:
    (job,) = jobs("issue_comment", comment("created", "/ptopt help \0"))
    assert job.payload.body == "/ptopt help \ufffd"


def test_replies() -> None:
    (job,) = jobs("pull_request_review_comment", comment("created", "No, it is not.", in_reply_to_id=98))
    assert (job.kind, job.subject) == (Kind.REPLY, "99")
    assert dump(job.payload) == {
        "comment_id": 99,
        "in_reply_to": 98,
        "actor": ACTOR,
        "says": "disagreement",
    }
    assert "not" not in str(job.payload)  # no text is kept


def test_a_comment_of_ours_is_deleted() -> None:
    event = "pull_request_review_comment"
    (job,) = jobs(event, comment("deleted", "ours", user=BOT))
    assert (job.kind, job.subject) == (Kind.DELETED, "99")
    assert dump(job.payload) == {"comment_id": 99, "actor": ACTOR}
    assert jobs(event, comment("deleted", "a person's")) == []
    assert jobs(event, comment("deleted", "of an unknown", user=None)) == []
    assert jobs(event, comment("deleted", "an answer", user=BOT, in_reply_to_id=98)) == []
    assert jobs(event, comment("deleted", "by a bot", user=BOT, sender=BOT)) == []


def test_what_is_no_reply() -> None:
    event = "pull_request_review_comment"
    assert jobs(event, comment("created", "First!")) == []
    assert jobs(event, comment("created", "Thanks", in_reply_to_id=98, sender=BOT)) == []
    assert [job.kind for job in jobs(event, comment("created", "/ptopt fix", in_reply_to_id=98))] == [
        Kind.COMMAND
    ]
    edited = comment("edited", "I mean", in_reply_to_id=98) | {"changes": {"body": {"from": "x"}}}
    assert jobs(event, edited) == []


@pytest.mark.parametrize("action", ["resolved", "unresolved"])
def test_threads(action: str) -> None:
    thread = {"thread": {"comments": [{"id": number} for number in range(1, 200)]}}
    (job,) = jobs("pull_request_review_thread", pull_request(action) | thread)
    assert (job.kind, job.pull) == (Kind.THREAD, 7)
    assert dump(job.payload) == {
        "comment_ids": list(range(1, 101)),
        "resolved": action == "resolved",
        "actor": ACTOR,
    }
    assert jobs("pull_request_review_thread", pull_request(action) | thread | {"sender": BOT}) == []


def test_installations() -> None:
    payload = {
        "action": "created",
        "installation": {"id": 5, "account": {"login": "octo"}},
        "repositories": [{"id": 11, "full_name": "octo/models", "private": True, "node_id": "x"}],
        "sender": DEV,
    }
    (job,) = jobs("installation", payload)
    assert (job.kind, job.installation_id, job.repository_id, job.actor) == (Kind.INSTALLATION, 5, 0, "dev")
    assert dump(job.payload) == {
        "action": "created",
        "installation_id": 5,
        "account": "octo",
        "repositories": [{"id": 11, "full_name": "octo/models", "private": True}],
        "removed": [],
    }


def test_an_installation_of_an_enterprise_has_no_login() -> None:
    payload = {"action": "suspend", "installation": {"id": 5, "account": {"slug": "big-corp"}}}
    found = dump(jobs("installation", payload)[0].payload)
    assert (found["installation_id"], found["account"]) == (5, "big-corp")


def test_installation_repositories() -> None:
    payload = {
        "action": "removed",
        "installation": {"id": 5, "account": {"login": "octo"}},
        "repositories_added": [],
        "repositories_removed": [{"id": 12, "full_name": "octo/old"}],
    }
    (job,) = jobs("installation_repositories", payload)
    assert (job.payload.action, job.payload.removed) == ("removed", [12])


def test_every_handled_event_is_subscribed_to() -> None:
    from bot.manifest import EVENTS

    without_asking = {"installation", "installation_repositories", "ping"}
    assert set(events.load()) == set(EVENTS) | without_asking


def test_two_handlers_of_one_action_are_an_error() -> None:
    events.load()
    with pytest.raises(ValueError, match="pull_request opened"):

        @on("pull_request", "opened")
        def again(event: PullRequestEvent, delivery: Delivery) -> list[NewJob]:
            return []

    with pytest.raises(ValueError, match="pull_request other"):

        @on("pull_request", "other")
        def another(event: Event, delivery: Delivery) -> list[NewJob]:
            return []
