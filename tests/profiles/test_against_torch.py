"""Real runs on this machine, beside torch's own table."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

pytestmark = pytest.mark.model
NAMES = ("mlp", "cnn", "transformer", "loader-bound", "optimizer-heavy")


@pytest.mark.parametrize(("name", "stacks"), [*((name, False) for name in NAMES), ("transformer", True)])
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


def test_the_lines_of_the_documentation_record_a_trace(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import torch

    from ptopt.profiles.profile import Profile
    from ptopt.profiles.reading import profile_of

    page = (Path(__file__).resolve().parents[2] / "docs" / "profiles.md").read_text(encoding="utf-8")
    (block,) = re.findall(r"```python\n(.+?)```", page, re.S)
    model = torch.nn.Linear(4, 4)
    monkeypatch.chdir(tmp_path)
    code = compile(block, str(tmp_path / "train.py"), "exec")
    exec(code, {"loader": [torch.randn(2, 4)] * 12, "step": lambda batch: model(batch).sum().backward()})
    found = profile_of(tmp_path / "trace.json.gz")
    assert isinstance(found, Profile)
    assert found.steps == 5 and found.shares["backward"] > 0 and found.costs
