"""A fixture for tests that speak to the fake GitHub."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from fake_github import FakeGitHub
from fake_github.conformance import check


@pytest.fixture
def fake_github() -> Iterator[FakeGitHub]:
    """A fake GitHub where each request and each answer is held against GitHub's descriptions of api.github.com."""
    with FakeGitHub(checks=[check]) as github:
        yield github
