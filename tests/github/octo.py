"""A repository with one pull request, for the tests of the client."""

from __future__ import annotations

from fake_github import FakeGitHub, Pull
from ptopt.github.values import CommentDraft, ReviewDraft

REPO = "octo/models"
OLD = b"".join(b"line %d\n" % number for number in range(1, 41))
NEW = OLD.replace(b"line 7\n", b"line seven\n").replace(b"line 30\n", b"line thirty\n")


def draft(pull: Pull, *comments: CommentDraft, body: str = "Words") -> ReviewDraft:
    return ReviewDraft(pull.head_sha, body, comments)


def writes(github: FakeGitHub) -> list[str]:
    return [
        request.path
        for request in github.requests
        if request.method != "GET" and not request.path.endswith("/access_tokens")
    ]
