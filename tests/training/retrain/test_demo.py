"""The demo runs the real commands, and each of them does what it says."""

from __future__ import annotations

import re

import pytest
from click.testing import CliRunner

from training.__main__ import main


@pytest.mark.slow
def test_the_whole_cycle(capfd: pytest.CaptureFixture[str]) -> None:
    done = CliRunner().invoke(main, ["retrain", "--demo"])
    assert done.exit_code == 0, done.output
    printed = capfd.readouterr().out  # of the commands
    states = re.findall(r"^ranker-([0-9a-f]{12}): (\w+):", printed, re.M)
    assert [state for _, state in states] == ["canary", "canary", "refused"]
    moves = re.findall(r"^ranker: (roll back|promote): ", printed, re.M)
    assert moves == ["roll back", "promote"]
    first, second, third = (name for name, _ in states)
    for name, state in ((first, "rolled back"), (second, "active"), (third, "refused")):
        assert re.search(rf"^{name} {state} +since ", printed, re.M), state
