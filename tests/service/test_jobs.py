"""Payloads: what is written is read back, and a row that is malformed says so without its values."""

from __future__ import annotations

import json
from typing import Any

import pytest

from ptopt.github.values import Actor
from service import jobs
from service.jobs import Kind, Payload, PayloadError, words

DEV = Actor(7, "dev", False)


@pytest.mark.parametrize(
    ("kind", "payload"),
    [
        (Kind.REVIEW, jobs.ReviewPayload(requested=True, full=True)),
        (Kind.COMMAND, jobs.CommandPayload("review", 1, 2, "/ptopt help", None, DEV)),
        (Kind.CLOSED, jobs.NoPayload()),
        (Kind.THREAD, jobs.ThreadPayload([1, 2], True, DEV)),
        (Kind.REPLY, jobs.ReplyPayload(1, 2, DEV, "agreement")),
        (Kind.DELETED, jobs.DeletedPayload(1, DEV)),
        (Kind.POLL, jobs.NoPayload()),
        (
            Kind.INSTALLATION,
            jobs.InstallationPayload("added", 1, "octo", [jobs.InstalledRepository(1, "o/m", True)]),
        ),
    ],
    ids=str,
)
def test_what_is_written_is_read_back(kind: Kind, payload: Payload) -> None:
    stored = json.loads(json.dumps(jobs.dump(payload)))
    assert jobs.load(kind, stored) == payload
    assert jobs.load(kind, stored | {"of_a_newer_version": 1}) == payload


def test_a_review_that_nobody_requested_stores_nothing() -> None:
    assert jobs.load(Kind.REVIEW, jobs.dump(jobs.NoPayload())) == jobs.ReviewPayload()


@pytest.mark.parametrize(
    ("kind", "stored", "problem"),
    [
        (Kind.REPLY, {"comment_id": 1, "in_reply_to": 2}, "reply job is malformed: actor: Field required"),
        (Kind.REVIEW, {"full": "geheim"}, "review job is malformed: full: Input should be a valid boolean"),
        (
            Kind.INSTALLATION,
            {"action": "geheim", "installation_id": 1, "account": ""},
            "action: Input should be 'created'",
        ),
    ],
)
def test_malformed_rows(kind: Kind, stored: dict[str, Any], problem: str) -> None:
    with pytest.raises(PayloadError, match=problem) as caught:
        jobs.load(kind, stored)
    assert "geheim" not in str(caught.value)


def test_a_kind_in_words() -> None:
    assert words(Kind.POLL.value) == "look for reactions"
    assert words(Kind.REVIEW.value) == "review"
    assert words("later") == "later"
