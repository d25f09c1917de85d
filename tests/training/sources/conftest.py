"""Fixtures of the source tests."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest

from tests.training.sources.fakes import FakeClock, FakeServer, serve
from training.sources.http import HttpClient
from training.sources.throttle import RequestPolicy


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def serving() -> Iterator[Callable[[FakeServer], FakeServer]]:
    with ExitStack() as stack:
        yield lambda fake: stack.enter_context(serve(fake))


@pytest.fixture
def client_for(clock: FakeClock) -> Iterator[Callable[..., HttpClient]]:
    """Clients that know the hosts of the fakes, and are closed at the end."""
    with ExitStack() as stack:

        def make(*fakes: FakeServer, **policy: object) -> HttpClient:
            client = HttpClient(
                [fake.host for fake in fakes],
                policy=RequestPolicy(**policy),  # type: ignore[arg-type]
                clock=clock,
            )
            return stack.enter_context(client)

        yield make
