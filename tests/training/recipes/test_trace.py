"""A run writes a trace of some of its steps, and `ptopt profile` reads it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

pytest.importorskip("trl")
pytestmark = pytest.mark.model

from ptopt.profiles.profile import Profile  # noqa: E402
from ptopt.profiles.reading import profile_of  # noqa: E402
from training.recipes import sft  # noqa: E402
from training.recipes.settings import read  # noqa: E402


def test_the_steps_of_a_run_are_recorded(recipe: Callable[..., Path]) -> None:
    adapter = sft.train(read(recipe("limits.steps=4", "tracking.trace=2", "checkpoint.every=9")))
    assert adapter is not None
    found = profile_of(
        adapter.parent / "trace.json.gz", ["training/recipes/trainer.py", "training/recipes/sft.py"]
    )
    assert isinstance(found, Profile)
    assert (found.steps, found.steps_by) == (2, "ProfilerStep")
    shares = found.shares
    assert min(shares["data"], shares["forward"], shares["backward"], shares["optimizer"]) > 0
    functions = {cost.place.frame.function for cost in found.costs}
    assert {"training_step", "compute_loss", "get_batch_samples"} <= functions
