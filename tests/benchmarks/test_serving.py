"""The load test of the model client: its simulated engine, and one small run of it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence

import pytest

pytest.importorskip("urllib3")

from benchmarks.serving import __main__ as load
from benchmarks.serving.engine import Engine, Speed


def served(speed: Speed, texts: Sequence[str], to_write: int) -> tuple[float, Engine]:
    """Seconds until all of them, begun at once, are answered."""

    async def run() -> tuple[float, Engine]:
        engine = Engine(speed)
        loop = asyncio.create_task(engine.run())
        begin = time.perf_counter()
        await asyncio.gather(*(engine.serve(text, to_write) for text in texts))
        took = time.perf_counter() - begin
        loop.cancel()
        return took, engine

    return asyncio.run(run())


def test_a_batch_shares_its_steps() -> None:
    speed = Speed(tokens_per_s=1e9, step_ms=10, slots=8, budget=8192)
    took, engine = served(speed, [f"{n:400}" for n in range(8)], 5)
    assert engine.busy == pytest.approx(0.05, rel=0.05)  # five steps for all, not for each
    assert took >= 0.05 and (engine.answered, engine.most) == (8, 8)
    _, engine = served(speed, [f"{n:400}" for n in range(16)], 5)
    assert engine.busy == pytest.approx(0.10, rel=0.05)  # two batches, as the slots allow


def test_reading_takes_time_and_what_is_cached_does_not() -> None:
    speed = Speed(tokens_per_s=10_000, step_ms=0, slots=8, budget=100)
    _, engine = served(speed, ["x" * 4_000], 1)
    assert engine.busy == pytest.approx(0.1, rel=0.05)  # 1,000 tokens in ten steps
    shared = "".join(f"{n:64}" for n in range(50))
    _, engine = served(speed, [f"{shared}{n:64}" for n in range(8)], 1)
    assert engine.busy == pytest.approx((800 + 8 * 16) / 10_000, rel=0.1)


def test_a_small_run(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    options = ["--regions", "24", "--marks", "9", "--rounds", "1", "--concurrency", "8", "--step-ms", "1"]
    monkeypatch.setattr("sys.argv", ["serving", *options])
    load.main()
    _, judge, advise = capsys.readouterr().out.splitlines()
    assert judge.startswith("judge: capacity ") and "in 1 rounds of 216 requests" in judge
    assert advise.startswith("advise: ") and "in 1 rounds of 24 requests" in advise
    assert advise.endswith("at most 8 under way")
