"""Two processes do what one does in two halves."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

pytest.importorskip("trl")
pytestmark = [pytest.mark.model, pytest.mark.slow]

from tests.training.recipes.conftest import REPOSITORY, environment, losses  # noqa: E402


def test_two_processes_give_the_losses_of_accumulation(recipe: Callable[..., Path], tmp_path: Path) -> None:
    from training.recipes import sft
    from training.recipes.settings import read

    config = recipe("lora.dropout=0", "limits.steps=4", "checkpoint.every=2")
    alone = sft.train(read(config, ["batch.accumulation=2", f"output={tmp_path / 'alone'}"]))
    assert alone is not None
    done = subprocess.run(
        [
            sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2", "--master-port", "0", "--standalone",
            "-m", "training.recipes.sft", str(config), "batch.accumulation=1", f"output={tmp_path / 'two'}",
        ],
        cwd=REPOSITORY, capture_output=True, text=True, timeout=300, env=environment(),
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("adapter: ") == 1  # one process speaks
    (folder,) = (tmp_path / "two").iterdir()
    assert [s for s, _ in losses(folder)] == [1, 2, 3, 4]
    assert [x for _, x in losses(folder)] == pytest.approx([x for _, x in losses(alone.parent)], rel=5e-3)
    assert {path.name for path in (folder / "checkpoints").iterdir()} == {"checkpoint-2", "checkpoint-4"}
