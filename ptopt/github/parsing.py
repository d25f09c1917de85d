"""GitHub's JSON as the values of `ptopt.github.values`.

Unknown keys are passed over, keys that GitHub documents as optional or null may be either. What cannot be read is
a KeyError, TypeError or ValueError, which the transport turns into one of ours.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any, TypeVar

from ptopt.github.values import (
    Actor,
    Delivery,
    IssueComment,
    PostedComment,
    PostedReview,
    PullFile,
    PullRequest,
    Reaction,
    TreeEntry,
)

T = TypeVar("T")
Json = Mapping[str, Any]

GHOST = Actor(id=0, login="ghost", is_bot=False)


def each(parse: Callable[[Json], T], key: str | None = None) -> Callable[[Any], list[T]]:
    """A parser of a list, or of the list at `key`."""

    def parse_list(data: Any) -> list[T]:
        items = data if key is None else data[key]
        if not isinstance(items, list):
            raise TypeError("not a list")
        return [parse(item) for item in items]

    return parse_list


def actor(data: Json | None) -> Actor:
    """A `simple-user`; null is the ghost."""
    if data is None:
        return GHOST
    login = str(data["login"])
    return Actor(int(data["id"]), login, data.get("type") == "Bot" or login.endswith("[bot]"))


def moment(text: str) -> datetime:
    """An ISO 8601 time with its zone."""
    parsed = datetime.fromisoformat(text.replace("Z", "+00:00"))  # Python 3.10 does not know Z
    if parsed.tzinfo is None:
        raise ValueError(f"a time without a zone: {text!r}")
    return parsed


def pull_request(data: Json) -> PullRequest:
    base, head = data["base"], data["head"]
    head_repo = head.get("repo")
    return PullRequest(
        repo=str(base["repo"]["full_name"]),
        repo_id=int(base["repo"]["id"]),
        number=int(data["number"]),
        title=str(data.get("title") or ""),
        open=data["state"] == "open",
        merged=bool(data.get("merged") or data.get("merged_at")),
        draft=bool(data.get("draft")),
        author=actor(data.get("user")),
        labels=tuple(str(label["name"]) for label in data.get("labels") or () if label.get("name")),
        head_sha=str(head["sha"]),
        head_ref=str(head["ref"]),
        head_repo=str(head_repo["full_name"]) if head_repo else None,
        base_sha=str(base["sha"]),
        base_ref=str(base["ref"]),
        changed_files=int(data["changed_files"]),
        changed_lines=int(data["additions"]) + int(data["deletions"]),
    )


def pull_file(data: Json) -> PullFile:
    return PullFile(
        path=str(data["filename"]),
        previous_path=_text_or_none(data.get("previous_filename")),
        status=data["status"],
        blob_sha=_text_or_none(data.get("sha")),
        additions=int(data["additions"]),
        deletions=int(data["deletions"]),
        patch=_text_or_none(data.get("patch")),
    )


def tree_entry(data: Json) -> TreeEntry:
    return TreeEntry(str(data["path"]), data["type"], str(data["sha"]), int(data.get("size") or 0))


def review(data: Json) -> PostedReview:
    submitted = data.get("submitted_at")  # a pending one has none
    return PostedReview(
        id=int(data["id"]),
        author=actor(data.get("user")),
        body=str(data.get("body") or ""),
        commit_id=str(data.get("commit_id") or ""),
        submitted_at=moment(submitted) if submitted else None,
    )


def review_comment(data: Json) -> PostedComment:
    return PostedComment(
        id=int(data["id"]),
        author=actor(data.get("user")),
        body=str(data.get("body") or ""),
        path=str(data["path"]),
        line=_number_or_none(data.get("line")),
        original_line=_number_or_none(data.get("original_line")),
        original_commit_id=str(data.get("original_commit_id") or ""),
        review_id=_number_or_none(data.get("pull_request_review_id")),
        in_reply_to=_number_or_none(data.get("in_reply_to_id")),
        created_at=moment(data["created_at"]),
    )


def issue_comment(data: Json) -> IssueComment:
    return IssueComment(
        id=int(data["id"]),
        author=actor(data.get("user")),
        body=str(data.get("body") or ""),
        created_at=moment(data["created_at"]),
    )


def reaction(data: Json) -> Reaction:
    return Reaction(
        id=int(data["id"]),
        content=data["content"],
        actor=actor(data.get("user")),
        created_at=moment(data["created_at"]),
    )


def delivery(data: Json) -> Delivery:
    return Delivery(
        id=int(data["id"]),
        guid=str(data["guid"]),
        delivered_at=moment(data["delivered_at"]),
        event=str(data["event"]),
        redelivery=bool(data.get("redelivery")),
        status_code=int(data.get("status_code") or 0),
    )


def nothing(_data: Any) -> None:
    """For an answer that nobody reads."""


def _text_or_none(value: object) -> str | None:
    return None if value is None else str(value)


def _number_or_none(value: Any) -> int | None:
    return None if value is None else int(value)
