"""A run that is terminated or killed goes on as if nothing had been: the same losses, step by step."""

from __future__ import annotations

import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest

pytest.importorskip("trl")
pytestmark = [pytest.mark.model, pytest.mark.slow]

from tests.training.recipes.conftest import REPOSITORY, command, environment, losses, run  # noqa: E402

Recipe = Callable[..., Path]
STEPS = 40


def started(config: Path, until: int) -> tuple[subprocess.Popen[str], Path]:
    """A training process, once it has done so many steps, and the folder of its run."""
    process = subprocess.Popen(
        command("sft", config), cwd=REPOSITORY, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        env=environment(),
    )  # fmt: skip
    deadline = time.monotonic() + 240
    while time.monotonic() < deadline:
        for folder in config.with_name("runs").glob("*"):
            if len(losses(folder)) >= until:
                return process, folder
        if process.poll() is not None:
            break
        time.sleep(0.02)
    process.kill()
    output, _ = process.communicate()
    pytest.fail(f"training did not get so far:\n{output}")


def test_sigterm_and_sigkill_change_no_loss(recipe: Recipe, tmp_path: Path) -> None:
    from training.recipes import sft
    from training.recipes.settings import read

    config = recipe(f"limits.steps={STEPS}", "batch.accumulation=4", "checkpoint.every=3")
    whole = sft.train(read(config, [f"output={tmp_path / 'whole'}"]))
    assert whole is not None
    expected = losses(whole.parent)
    assert len(expected) == STEPS

    process, folder = started(config, 4)
    process.send_signal(signal.SIGTERM)
    output, _ = process.communicate(timeout=120)
    assert process.returncode == 0, output
    done = len(losses(folder))
    assert 4 <= done < STEPS
    assert f"stopped at step {done}; to go on: --resume {folder}" in output
    assert not (folder / "adapter").exists()
    assert [path.name for path in (folder / "checkpoints").glob(f"checkpoint-{done}")]

    # Killed at once while it goes on: it has more steps behind it than its last checkpoint.
    resumed = subprocess.Popen(
        command("sft", "--resume", folder), cwd=REPOSITORY, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        env=environment(),
    )  # fmt: skip
    deadline = time.monotonic() + 240
    while len(losses(folder)) < done + 8 and time.monotonic() < deadline and resumed.poll() is None:
        time.sleep(0.02)
    resumed.send_signal(signal.SIGKILL)
    resumed.wait(timeout=60)
    assert done + 8 <= len(losses(folder)) < STEPS
    assert not (folder / "adapter").exists()

    # A checkpoint that was being written when the process died is not one.
    (folder / ".scratch" / f"checkpoint-{STEPS}").mkdir(exist_ok=True)
    last = run("sft", "--resume", folder)
    assert last.returncode == 0, last.stderr
    assert losses(folder) == expected
    same = (folder / "adapter" / "adapter_model.safetensors").read_bytes()
    assert same == (whole / "adapter_model.safetensors").read_bytes()


def test_a_checkpoint_appears_whole_or_not_at_all(tmp_path: Path) -> None:
    from training.recipes.run import Run

    kept = Run(tmp_path)
    kept.begin()
    for step in (2, 4, 10):
        written = kept.scratch / f"checkpoint-{step}"
        written.mkdir()
        (written / "trainer_state.json").write_text("{}")
        kept.publish(written, keep=2)
    assert sorted(p.name for p in (tmp_path / "checkpoints").iterdir()) == ["checkpoint-10", "checkpoint-4"]
    assert kept.last_checkpoint() == (tmp_path / "checkpoints" / "checkpoint-10", 10)
    (kept.scratch / "checkpoint-12").mkdir()  # what a kill leaves behind
    kept.begin()
    assert kept.last_checkpoint() == (tmp_path / "checkpoints" / "checkpoint-10", 10)
    assert list(kept.scratch.iterdir()) == []
