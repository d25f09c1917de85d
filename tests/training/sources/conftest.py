"""Fixtures of the source tests."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest

from tests.training.sources.standins import FakeClock, StandIn, serve
from training.sources.pace import Manners
from training.sources.polite import PoliteClient


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def serving() -> Iterator[Callable[[StandIn], StandIn]]:
    with ExitStack() as stack:
        yield lambda standin: stack.enter_context(serve(standin))


@pytest.fixture
def client_for(clock: FakeClock) -> Iterator[Callable[..., PoliteClient]]:
    """Clients that know the hosts of stand-ins, and are closed at the end."""
    with ExitStack() as stack:

        def make(*standins: StandIn, **manners: object) -> PoliteClient:
            client = PoliteClient(
                [standin.host for standin in standins],
                manners=Manners(**manners),  # type: ignore[arg-type]
                clock=clock,
            )
            return stack.enter_context(client)

        yield make
