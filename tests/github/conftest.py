"""The pull request of `tests.github.octo` on a stand-in, and the App's client."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from ptopt.github.auth import AppAuth, for_installation
from ptopt.github.client import GitHubClient
from tests.github.octo import NEW, OLD, REPO
from tests.standin import Pull, StandIn


@pytest.fixture
def github() -> Iterator[StandIn]:
    with StandIn() as standin:
        yield standin


@pytest.fixture
def pull(github: StandIn) -> Pull:
    repo = github.repository(REPO, {"train.py": OLD, "tools/run.sh": b"echo\n", "folder/deep/x.py": b"1\n"})
    return repo.pull("change", files={"train.py": NEW}, title="Faster", author="dev", labels=["speed"])


@pytest.fixture
def client(github: StandIn, pull: Pull) -> GitHubClient:
    auth = AppAuth(github.url, github.app.id, github.app.private_key, seconds_between_writes=0)
    assert pull.repo.installation
    return for_installation(auth, pull.repo.installation.id)
