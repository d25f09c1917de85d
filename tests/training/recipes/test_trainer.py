"""What both recipes add to a trainer, without one."""

from __future__ import annotations

import signal
import weakref
from pathlib import Path
from types import SimpleNamespace

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")
pytestmark = pytest.mark.model

from training.recipes.settings import Settings  # noqa: E402
from training.recipes.trainer import StopCallback, until_it_fits  # noqa: E402


class Held:
    """Stands for a trainer and the memory of its model."""

    planned = None


def test_an_attempt_that_ran_out_of_memory_is_let_go() -> None:
    given = {"name": "t", "model": {"base": "b"}, "data": {"folder": Path("d")}, "batch": {"size": 4}}
    before = signal.getsignal(signal.SIGTERM)
    trainers: list[weakref.ref[Held]] = []
    sizes, said = [], []

    def attempt(settings: Settings) -> str:
        assert all(trainer() is None for trainer in trainers)
        trainer = Held()
        trainers.append(weakref.ref(trainer))
        stop = StopCallback(trainer, None)
        stop.on_train_begin(None, None, None)
        sizes.append(settings.batch.size)
        if settings.batch.size > 1:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB")
        stop.on_train_end(None, None, None)
        return "adapter"

    assert until_it_fits(Settings.model_validate(given), attempt, said.append) == "adapter"
    assert sizes == [4, 2, 1] and len(said) == 2
    assert signal.getsignal(signal.SIGTERM) == before


def test_a_stop_tells_the_steps_since_the_last_line() -> None:
    stop = StopCallback(Held(), 1e-9)
    args, control = SimpleNamespace(world_size=1), SimpleNamespace(should_log=False)
    stop.on_train_begin(args, None, control)
    stop.on_step_end(args, SimpleNamespace(global_step=7, max_steps=9, is_world_process_zero=True), control)
    assert control.should_log and control.should_save and control.should_training_stop
    assert not stop.terminated  # the minutes are over: the adapter is written
    stop.on_train_end(args, None, control)


def test_the_steps_that_fit_are_counted_on_the_first_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr("training.recipes.trainer.time", SimpleNamespace(monotonic=lambda: now[0]))
    trainer = Held()
    stop = StopCallback(trainer, 1.0)
    stop.on_train_begin(None, None, None)
    fitting = []
    for step in range(11, 16):  # of a resumed run, a second each
        now[0] += 5.0 if step == 11 else 1.0  # the first one warms up
        fitting.append(stop._fitting(step))
    assert fitting == [0, 0, 0, 14 + int(0.95 * 52), 15 + int(0.95 * 51)]
    trainer.planned = (61, 15)
    assert stop._fitting(16) == 0
    stop.on_train_end(None, None, None)
