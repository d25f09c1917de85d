"""Polling becomes rarer, and ends."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from feedback.signals.schedule import CLOSED_FOR, OPEN_FOR, next_poll

START = datetime(2026, 11, 20, 12, tzinfo=timezone.utc)
HOUR, DAY = timedelta(hours=1), timedelta(days=1)


def polls(closed: bool, every: timedelta = HOUR) -> list[datetime]:
    found: list[datetime] = []
    at: datetime | None = START
    while at is not None:
        found.append(at)
        at = next_poll(at, START, START if closed else None, every)
    return found


def test_a_pull_request_on_which_nothing_happens() -> None:
    found = polls(closed=False)
    waits = [later - earlier for earlier, later in pairwise(found)]
    assert waits[:8] == [HOUR] * 8 and waits == sorted(waits) and waits[-1] == DAY
    # 58 instead of the 721 of every hour.
    assert len(found) == 58 and OPEN_FOR <= found[-1] - START < OPEN_FOR + DAY


def test_a_closed_one() -> None:
    found = polls(closed=True)
    assert len(found) == 35 and CLOSED_FOR <= found[-1] - START < CLOSED_FOR + DAY


def test_what_happens_brings_it_back_to_the_shortest_interval() -> None:
    now = START + timedelta(days=20)
    assert next_poll(now, START, None, HOUR) == now + DAY
    assert next_poll(now, now - HOUR, None, HOUR) == now + HOUR
    assert next_poll(now, START, now - HOUR, HOUR) == now + HOUR
    assert next_poll(now, now, START, HOUR) is None


@pytest.mark.parametrize("every", [timedelta(minutes=1), timedelta(days=3)])
def test_the_setting_is_the_shortest_interval(every: timedelta) -> None:
    assert next_poll(START, START, None, every) == START + every
    assert next_poll(START + 20 * DAY, START, None, every) == START + 20 * DAY + max(every, DAY)


@given(st.timedeltas(-DAY, 60 * DAY), st.timedeltas(timedelta(seconds=1), 2 * DAY))
def test_it_is_always_later(age: timedelta, every: timedelta) -> None:
    then = next_poll(START + age, START, None, every)
    assert (then is None) == (age >= OPEN_FOR)
    assert then is None or then >= START + age + every
