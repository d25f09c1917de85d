"""How often a line runs: each case asks about the call of `here()`."""

from __future__ import annotations

import ast
import textwrap

import pytest

from ptopt.source.file import SourceFile
from ptopt.source.frequency import Frequency, Often
from ptopt.source.repository import Repository

HEADER = "import torch\nfrom torch import nn, Tensor\nfrom torch.utils.data import Dataset, DataLoader\n\n"


def _of(code: str) -> Frequency:
    file = SourceFile.parse("f.py", (HEADER + textwrap.dedent(code)).encode())
    call = next(
        c for c in file.index.of_type(ast.Call) if isinstance(c.func, ast.Name) and c.func.id == "here"
    )
    return file.frequencies.of(call)


TRAINING = """
for epoch in range(9):
    {epoch}
    for x in loader:
        {step}
        model(x).backward()
        optimizer.step()
"""


@pytest.mark.parametrize(
    ("code", "often"),
    [
        ("here()", Often.ONCE),
        # Named like what runs for each batch; but it holds the loop over the batches, here or in what it calls.
        (
            "class R:\n  def sample(self):\n    here()\n    self.all()\n  def all(self):\n    for x in self.loader: print(x)",
            Often.UNKNOWN,
        ),
        ("class R:\n    def sample(self):\n        here()", Often.EVALUATION),
        (TRAINING.format(epoch="here()", step="pass"), Often.EPOCH),
        (TRAINING.format(epoch="pass", step="here()"), Often.STEP),
        (TRAINING.format(epoch="pass", step="if i % 10 == 0: here()"), Often.RARELY),
        (TRAINING.format(epoch="pass", step="if x.abs().max() > 1: print(here())"), Often.RARELY),
        (TRAINING.format(epoch="pass", step="if x.abs().max() > 1: y = here()"), Often.STEP),
        (TRAINING.format(epoch="pass", step="if self.monitors: print(here())"), Often.STEP),
        ("class Net(nn.Module):\n    def __init__(self):\n        here()", Often.ONCE),
        ("class Net(nn.Module):\n    def forward(self, x):\n        here()", Often.STEP),
        (
            "class Net(nn.Module):\n    def forward(self, x):\n        if self.lora_rank > 0:\n            here()",
            Often.STEP,
        ),
        (
            "class Net(nn.Module):\n    def forward(self, x):\n        if self.debug:\n            here()",
            Often.RARELY,
        ),
        (
            "class Net(nn.Module):\n    def forward(self, x):\n        for layer in self.layers:\n            here()",
            Often.LAYER,
        ),
        ("class Rows(Dataset):\n    def __getitem__(self, i):\n        here()", Often.ELEMENT),
        ("class L1Loss:\n    def __call__(self, a, b):\n        here()", Often.STEP),
        ("def mask(x):\n    here()\n    return x.device", Often.EVALUATION),
        ("def mask(x: Tensor):\n    here()", Often.EVALUATION),
        ("def build_mask(x: Tensor):\n    here()", Often.EVALUATION),
        ("def load_weights(x: Tensor):\n    here()", Often.ONCE),
        ("class A:\n    def __repr__(self):\n        return here() + self.device", Often.ONCE),
        ("def helper(a):\n    here()", Often.UNKNOWN),
        ("def helper(a):\n    here()\n\ndef training_step(self, batch):\n    helper(3)", Often.STEP),
        ("def load_all(names):\n    for name in names:\n        here()", Often.ONCE),
        ("def validation_step(self, batch):\n    here()", Often.EVALUATION),
        # Data sets, not batches.
        ("for name, data_loader in zip(cfg.DATASETS.TEST, data_loaders_val):\n    here()", Often.ONCE),
        ("def run(loaders):\n  for name, loader in loaders.items():\n    here()", Often.EPOCH),
        ("def run(loaders):\n  for i, dataset in enumerate(self.datasets):\n    here()", Often.EPOCH),
        ("def run(loaders):\n  for name in val_loaders:\n    here()", Often.EPOCH),
        ("for name in val_loaders:\n  for batch in val_loaders[name]:\n    here()", Often.EVALUATION),
        ("for images, labels in loaders:\n    here()", Often.EVALUATION),
        ("for dataset_name, image in loader:\n    here()", Often.EVALUATION),
        ("for (x, y), dataset in zip(train_loader, names):\n    here()", Often.EVALUATION),
        ("for batch in tqdm(loaders):\n    here()", Often.EVALUATION),
    ],
)
def test_scale(code: str, often: Often) -> None:
    assert _of(code).often is often


def test_a_script_runs_its_main_block_and_no_import_does() -> None:
    code = "def run():\n    here()\n\nif __name__ == '__main__':\n    run()\n"
    assert _of(code) == Frequency(Often.ONCE, 0, "once in a run", basis="callers")
    assert _of("here()").reason == "when the module is loaded"


def test_items_of_a_dataset_run_in_a_worker() -> None:
    assert _of("class Rows(Dataset):\n    def __getitem__(self, i):\n        here()").in_worker


def test_the_reason_names_one_function_on_the_way() -> None:
    chain = "".join(f"def f{i}(a):\n    f{i + 1}(a)\n\n" for i in range(4))
    found = _of(f"{chain}def f4(a):\n    here()\n\ndef training_step(self, batch):\n    f0(batch)\n")
    assert found.often is Often.STEP
    assert found.reason.count("through") == 1


@pytest.mark.parametrize("data", ["val_loader", "enumerate(validation_loader)", "tqdm(test_data)"])
def test_an_evaluation_within_a_step_is_no_part_of_it(data: str) -> None:
    found = _of(
        "for x in loader:\n    model(x).backward()\n    optimizer.step()\n    if step % 1000 == 0:\n"
        f"        for y in {data}:\n            here()"
    )
    assert (found.often, found.trains) == (Often.EVALUATION, False)


@pytest.mark.parametrize("data", ["device_blocks", "enumerate(val)", "evaluate(x)"])
def test_what_is_no_evaluation_within_a_step_is_part_of_it(data: str) -> None:
    found = _of(
        f"for x in loader:\n    for y in {data}:\n        here()\n    model(x).backward()\n    optimizer.step()"
    )
    assert (found.often > Often.EVALUATION, found.trains) == (True, True)


ROWS = """
class Rows(Dataset):
    def __getitem__(self, i):
        return spectrogram(self.rows[i])
"""
SPECTROGRAM = "def spectrogram(y):\n    here()\n    return y\n"
TRAINS = """from {module} import spectrogram

def train(model, loader, val_loader, optimizer):
    for x in loader:
        loss = (spectrogram(model(x)) - x).abs().mean()
        loss.backward()
        optimizer.step()
"""
EVALUATES = """from {module} import spectrogram

def evaluate(model, val_loader):
    for x in val_loader:
        for y in x:
            print(spectrogram(y))
"""


def _across(code: str, **others: str) -> Frequency:
    files = {
        f"{name}.py": (HEADER + textwrap.dedent(text.replace("{module}", "audio"))).encode()
        for name, text in {"audio": code, **others}.items()
    }
    file = SourceFile.parse("audio.py", files["audio.py"], repository=Repository(files))
    call = next(c for c in file.calls_named("here"))
    return file.frequencies.of(call)


def test_a_function_of_workers_that_the_step_calls_too_is_part_of_the_step() -> None:
    found = _across(SPECTROGRAM + ROWS, train=TRAINS)
    assert (found.often, found.trains, found.in_worker) == (Often.STEP, True, False)
    assert " of train.py" in found.reason
    rows = "from audio import spectrogram\n" + ROWS
    found = _across(SPECTROGRAM, rows=rows, train=TRAINS)
    assert (found.often, found.in_worker) == (Often.STEP, False)


def test_the_training_is_named_before_an_evaluation_of_more_iterations() -> None:
    for order in ({"a": EVALUATES, "train": TRAINS}, {"train": TRAINS, "z": EVALUATES}):
        assert " of train.py" in _across(SPECTROGRAM, **order).reason
    here = EVALUATES.replace("from {module} import spectrogram", "")
    training = TRAINS.replace("from {module} import spectrogram", "")
    assert _across(SPECTROGRAM + here + training).trains


def test_a_function_of_workers_that_an_evaluation_calls_too_stays_theirs() -> None:
    assert _across(SPECTROGRAM + ROWS, evaluate=EVALUATES).in_worker
