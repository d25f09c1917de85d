"""Commits through the API, on the fake GitHub's real git repositories."""

from __future__ import annotations

from typing import Any

import pytest

from fake_github import FakeGitHub, Pull
from ptopt.github.auth import for_token
from ptopt.github.client import GitHubClient
from ptopt.github.errors import (
    AmbiguousError,
    ForbiddenError,
    RejectedError,
    UnavailableError,
)
from tests.github.octo import OLD, REPO, writes


def test_files_are_committed_to_the_branch(client: GitHubClient, pull: Pull) -> None:
    git, before = pull.repo.git, pull.head_sha
    run = git.add_blob(b"#!/bin/sh\n")
    tree = git.add_tree(before, [("100755", "tools/run.sh", run)])
    start = git.add_commit(tree, [before], "executable", pull.repo.person("dev"), pull.repo.person("dev"))
    git.set_ref("refs/heads/change", start)
    content = {"train.py": b"\xff\x00new\r\n", "tools/run.sh": b"#!/bin/bash\n", "new/place.py": b"x\n"}
    sha = client.commit_files(REPO, "change", start, content, "Faster, by ptopt")
    assert git.refs["refs/heads/change"] == sha
    assert git.log(start, sha) == [sha]
    files = git.files(sha)
    assert {path: git.blob(files[path][1]) for path in content} == content
    modes = {path: files[path][0] for path in content}
    assert modes == {"train.py": "100644", "tools/run.sh": "100755", "new/place.py": "100644"}
    assert files["folder/deep/x.py"] == git.files(start)["folder/deep/x.py"]


def test_a_branch_that_moved_before(client: GitHubClient, pull: Pull, github: FakeGitHub) -> None:
    seen = pull.head_sha
    pull.push({"train.py": OLD})
    with pytest.raises(RejectedError, match="no longer"):
        client.commit_files(REPO, "change", seen, {"train.py": b"x"}, "m")
    assert writes(github) == []


def test_a_branch_that_moves_meanwhile(client: GitHubClient, pull: Pull, github: FakeGitHub) -> None:
    seen = pull.head_sha
    moved = []

    def push(request: Any, _response: Any) -> None:
        if request.method == "POST" and request.path.endswith("/git/commits"):
            moved.append(pull.push({"train.py": OLD}))

    github.checks.append(push)
    with pytest.raises(RejectedError, match="fast forward"):
        client.commit_files(REPO, "change", seen, {"train.py": b"x"}, "m")
    assert pull.repo.git.refs["refs/heads/change"] == moved[0]


@pytest.mark.parametrize(
    ("fault", "done"), [("502-after", True), ("drop-after", True), ("502", False), ("drop", False)]
)
def test_an_ambiguous_move_of_the_branch_is_looked_at(
    client: GitHubClient, pull: Pull, github: FakeGitHub, fault: str, done: bool
) -> None:
    seen = pull.head_sha
    github.faults.add("PATCH", r"/git/refs/", fault)
    if done:
        sha = client.commit_files(REPO, "change", seen, {"train.py": b"x"}, "m")
        assert pull.head_sha == sha != seen
    else:
        with pytest.raises(AmbiguousError):
            client.commit_files(REPO, "change", seen, {"train.py": b"x"}, "m")
        assert pull.head_sha == seen
    assert sum(request.method == "PATCH" for request in github.requests) == 1


@pytest.mark.parametrize("place", ["blobs", "trees", "commits"])
def test_objects_that_nothing_points_to_leave_nothing_ambiguous(
    client: GitHubClient, pull: Pull, github: FakeGitHub, place: str
) -> None:
    seen = pull.head_sha
    github.faults.add("POST", rf"/git/{place}$", "502-after")
    with pytest.raises(UnavailableError):
        client.commit_files(REPO, "change", seen, {"train.py": b"x"}, "m")
    assert pull.head_sha == seen


@pytest.mark.parametrize("path", ["../x", "/etc/passwd", "a//b", "folder", "train.py/x", "link", ".", ""])
def test_only_regular_files_are_committed(
    client: GitHubClient, pull: Pull, github: FakeGitHub, path: str
) -> None:
    git, before = pull.repo.git, pull.head_sha
    tree = git.add_tree(before, [("120000", "link", git.add_blob(b"/etc/passwd"))])
    start = git.add_commit(tree, [before], "link", pull.repo.person("dev"), pull.repo.person("dev"))
    git.set_ref("refs/heads/change", start)
    with pytest.raises((RejectedError, ValueError)):
        client.commit_files(REPO, "change", start, {path: b"x"}, "m")
    assert writes(github) == []


def test_a_branch_that_the_app_may_not_write_to(pull: Pull, github: FakeGitHub) -> None:
    client = for_token(github.token(REPO), github.url, seconds_between_writes=0)
    with pytest.raises(ForbiddenError):
        client.commit_files(REPO, "change", pull.head_sha, {"train.py": b"x"}, "m")
