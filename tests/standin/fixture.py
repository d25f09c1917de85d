"""A fixture for tests that speak to the stand-in for GitHub."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.standin import StandIn
from tests.standin.conformance import check


@pytest.fixture
def github_standin() -> Iterator[StandIn]:
    """A stand-in where each request and each answer is held against GitHub's descriptions of api.github.com."""
    with StandIn(checks=[check]) as github:
        yield github
