"""Real runs on this machine, beside torch's own table."""

from __future__ import annotations

import pytest

pytestmark = pytest.mark.model
NAMES = ("mlp", "cnn", "transformer", "loader-bound", "optimizer-heavy")


@pytest.mark.parametrize("stacks", [False, True])
@pytest.mark.parametrize("name", NAMES)
def test_shares_are_those_of_torch(name: str, stacks: bool) -> None:
    from benchmarks.profiles import runs
    from benchmarks.profiles.shares import compared, recorded

    assert tuple(runs.ORDINARY) == NAMES
    profiler, profile = recorded(name, stacks=stacks)
    rows = list(compared(profiler, profile, stacks=stacks))
    assert len(rows) > 6 and profile.steps == runs.STEPS
    for row in rows:
        assert row.apart <= 0.02, row


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["data", "host"])
def test_a_seeded_bottleneck_of_the_cpu_is_named_ten_times_of_ten(kind: str) -> None:
    from benchmarks.profiles.kinds import of_recorded
    from ptopt.profiles.verdict import verdict

    assert [verdict(of_recorded(kind)).kind for _ in range(10)] == [kind] * 10
