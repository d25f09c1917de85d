"""The pull request of `tests.github.octo` on a fake GitHub, and the App's client."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from fake_github import FakeGitHub, Pull
from ptopt.github.auth import AppAuth, for_installation
from ptopt.github.client import GitHubClient
from tests.github.octo import NEW, OLD, REPO


@pytest.fixture
def github() -> Iterator[FakeGitHub]:
    with FakeGitHub() as fake:
        yield fake


@pytest.fixture
def pull(github: FakeGitHub) -> Pull:
    repo = github.repository(REPO, {"train.py": OLD, "tools/run.sh": b"echo\n", "folder/deep/x.py": b"1\n"})
    return repo.pull("change", files={"train.py": NEW}, title="Faster", author="dev", labels=["speed"])


@pytest.fixture
def client(github: FakeGitHub, pull: Pull) -> GitHubClient:
    auth = AppAuth(github.url, github.app.id, github.app.private_key, seconds_between_writes=0)
    assert pull.repo.installation
    return for_installation(auth, pull.repo.installation.id)
