from __future__ import annotations

import pytest

from training.sandbox.execute import Pair, run_pair

pytest.importorskip("torch", reason="pairs need torch to run")
pytestmark = pytest.mark.model
SETUP = "x = torch.ones(20_000)"
SLOW = "result = torch.stack([x[i] for i in range(4000)]).sum()"
FAST = "result = x[:4000].sum()"


@pytest.mark.slow
def test_an_equal_and_faster_pair_is_kept() -> None:
    outcome = run_pair(Pair(SETUP, SLOW, FAST))
    assert outcome.keep, outcome
    assert outcome.factor > 2
    assert "torch" in outcome.how


@pytest.mark.slow
def test_a_pair_that_differs_or_is_slower_is_not_kept() -> None:
    differs = run_pair(Pair(SETUP, SLOW, "result = x[:3000].sum()"))
    assert differs.executed and not differs.equal and not differs.keep
    slower = run_pair(Pair(SETUP, FAST, SLOW))
    assert slower.equal and not slower.keep


@pytest.mark.slow
@pytest.mark.parametrize(
    "bad",
    [
        "raise ValueError('broken')",
        "open('/dev/shm/x', 'wb').write(b'0' * (2 << 20)); result = 1",
        "import os; os.kill(os.getpid(), 9)",
        "x = bytearray(20 << 30)",
    ],
)
def test_code_that_breaks_the_rules_is_skipped_with_a_reason(bad: str) -> None:
    outcome = run_pair(Pair(SETUP, bad, FAST))
    assert not outcome.keep
    assert outcome.skipped.startswith("failed: ")


@pytest.mark.slow
def test_endless_code_is_ended() -> None:
    outcome = run_pair(Pair(SETUP, "while True: pass", FAST), seconds=6)
    assert outcome.skipped


@pytest.mark.slow
def test_the_code_sees_neither_our_environment_nor_the_network(monkeypatch: pytest.MonkeyPatch) -> None:
    from ptopt.prove.sandbox import _bubblewrap

    monkeypatch.setenv("SECRET", "1")
    cut_off = bool(_bubblewrap((), None))
    probe = (
        f"import os, socket\nresult = ['SECRET' in os.environ, len(socket.if_nameindex()) > 1 and {cut_off}]"
    )
    outcome = run_pair(Pair(SETUP, probe, "result = [False, False]"))
    assert outcome.equal, outcome
