"""A call `x.m()` is a call of the method `m` of this file only where `x` may be of the class that has it."""

from __future__ import annotations

import textwrap

import pytest

from ptopt.source.file import SourceFile
from ptopt.source.repository import Repository

HEAD = """
import torch
import wandb
import torch.nn.functional as F
from tqdm import tqdm
from torch.cuda.amp import GradScaler
from other import Tracker

class Average:
    def update(self, model): ...
    def shadow_of(self, model): ...

class Doubled(Average):
    pass

class Elsewhere:
    pass

class Forwards:
    def __getattr__(self, name): ...

"""


def resolves(body: str) -> bool:
    """Is the last call of the function taken for one of a method of `Average`?"""
    code = HEAD + textwrap.dedent(body)
    file = SourceFile.parse("train.py", code.encode())
    function = next(f for f in file.calls.functions if f.name == "run")
    found = [file.calls.resolve(call) for call in file.calls.calls_in(function)]
    return found[-1] is not None


@pytest.mark.parametrize(
    "body",
    [
        "def run():\n    scaler = GradScaler(enabled=True)\n    scaler.update()",
        "def run():\n    scaler = torch.cuda.amp.GradScaler()\n    scaler.shadow_of(1)",
        "def run():\n    with tqdm(total=3) as pbar:\n        pbar.update(1)",
        "def run():\n    bar = tqdm(total=3) if True else None\n    bar.shadow_of(1)",
        "def run():\n    seen = {}\n    seen.update(a=1)",
        "def run():\n    tracker = Tracker()\n    tracker.shadow_of(1)",
        "def run():\n    one = Elsewhere()\n    one.shadow_of(1)",
        "def run(one: Elsewhere):\n    one.shadow_of(1)",
        "def run(one: torch.Tensor):\n    one.shadow_of(1)",
        "def run():\n    F.shadow_of(1)",
        "def run(unknown):\n    unknown.update(1)",  # a name of many classes
        "def run():\n    experiment = wandb.init()\n    experiment.config.update({})",
        "class T:\n    def __init__(self):\n        self.s = GradScaler()\n    def run(self):\n        self.s.shadow_of(1)",
    ],
)
def test_of_another_class(body: str) -> None:
    assert not resolves(body)


@pytest.mark.parametrize(
    "body",
    [
        "def run(model):\n    kept = Average()\n    kept.update(model)",
        "def run(model):\n    kept = Average() if model else None\n    kept.update(model)",
        "def run(model):\n    kept = Doubled().to('cuda')\n    kept.update(model)",
        "def run(model, kept: Average):\n    kept.update(model)",
        "def run(model, kept: 'Average | None'):\n    kept.shadow_of(model)",
        "def run(model, kept: Average | None):\n    kept.update(model)",
        "def run(model, kept):\n    kept.shadow_of(model)",  # no other class is likely to have that method
        "def run(model, average):\n    average.update(model)",  # named after it
        "def run(model, model_average):\n    model_average.update(model)",
        "def run(model):\n    kept = Forwards()\n    kept.shadow_of(model)",  # hands on what it does not have
        "class T:\n    def __init__(self):\n        self.s = Average()\n    def run(self):\n        self.s.update(1)",
    ],
)
def test_of_the_class(body: str) -> None:
    assert resolves(body)


def test_a_function_of_a_library_calls_nothing_in_another_file() -> None:
    caller = b"import torch.nn.functional as F\nfrom diffusion import Diffusion\n\ndef shrink(x):\n    return F.interpolate(x, 2)\n"
    own = b"class Diffusion:\n    def interpolate(self, x):\n        return x\n"
    file = SourceFile.parse("diffusion.py", own, repository=Repository({"unet.py": caller}))
    assert not file.repository.callers(file, file.calls.functions[0])
    assert not file.repository.dispatches(file, file.calls.functions[0])
    calls = caller.replace(b"F.interpolate", b"Diffusion().interpolate")
    file = SourceFile.parse("diffusion.py", own, repository=Repository({"unet.py": calls}))
    assert len(file.repository.callers(file, file.calls.functions[0])) == 1


def test_a_scaler_and_a_progress_bar_run_no_method_of_the_file_on_each_step() -> None:
    code = """
    import torch
    from tqdm import tqdm

    class WeightAverage:
        def update(self, model):
            return model.weight.detach().cpu()

    def train(model, loader, optimizer):
        scaler = torch.cuda.amp.GradScaler()
        with tqdm(total=8) as pbar:
            for batch in loader:
                scaler.scale(model(batch).mean()).backward()
                scaler.step(optimizer)
                scaler.update()
                pbar.update(1)
    """
    file = SourceFile.parse("train.py", textwrap.dedent(code).encode())
    assert not file.calls.callers(file.calls.functions[0])
