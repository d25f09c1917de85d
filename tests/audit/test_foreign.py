"""Frameworks whose loop is not read: what the script's own code decides all the same, and what it does not."""

from __future__ import annotations

from typing import Any

import pytest

from ptopt.audit.values import Measure, State
from tests.audit.conftest import Auditor

SCRIPT = """
    import argparse

    import torch
    from torch.nn import functional as F

    from homura import callbacks, init_distributed, optim, reporters
    from homura.trainers import SupervisedTrainer
    from homura.vision import DATASET_REGISTRY
    from nets import small

    if __name__ == "__main__":
        parser = argparse.ArgumentParser()
        parser.add_argument("--workers", type=int, default=4)
        args = parser.parse_args()
        train_loader, test_loader = DATASET_REGISTRY("cifar10")(64, num_workers=args.workers)
        model = small(classes=10)
        found = [callbacks.AccuracyCallback()]
        with SupervisedTrainer(model, optim.SGD(lr=0.1), F.cross_entropy, callbacks=found) as trainer:
            trainer.train(train_loader)
            trainer.test(test_loader)
    """
NETS = """
    from torch import nn


    class Net(nn.Module):
        def __init__(self, classes=10):
            super().__init__()
            self.layer = nn.Conv2d(3, classes, 3)

        def forward(self, x):
            return self.layer(x)


    def small(**options):
        return Net(**options)
    """
FILES = {"train.py": SCRIPT, "nets.py": NETS, "README.md": "```\npython train.py\n```\n"}


def rows_of(audited: Auditor, **files: str) -> dict[str, Measure]:
    changed = {name.replace("_", "."): text for name, text in files.items()}
    (entry,) = audited({**FILES, **changed}).entries
    assert entry.framework == "homura"
    return {measure.key: measure for measure in entry.measures}


def test_a_network_of_the_repository_decides_for_itself(audited: Auditor) -> None:
    rows = rows_of(audited)
    assert rows["attention"].state is State.NOT_APPLICABLE
    assert rows["gradient_checkpointing"].state is State.OFF


def test_the_framework_may_switch_on_what_is_no_part_of_the_network(audited: Auditor) -> None:
    rows = rows_of(audited)
    keys = "precision tf32 compile pin_memory fused_optimizer accumulation channels_last cudnn_benchmark saving monitoring"
    assert {key: rows[key].state for key in keys.split()} == dict.fromkeys(keys.split(), State.UNKNOWN)


@pytest.mark.parametrize(
    "files",
    [
        {"train_py": SCRIPT.replace("small(classes=10)", "DATASET_REGISTRY('resnet')")},
        {"train_py": SCRIPT.replace("SupervisedTrainer(model,", "SupervisedTrainer(load('model'),")},
        {"nets_py": NETS.replace("from torch import nn", "from torch import nn\n    from homura.modules import Attention")},
        {"train_py": SCRIPT.replace("small(classes=10)", "small(body=optim.body())")},
    ],
)  # fmt: skip
def test_a_network_with_parts_of_the_framework_does_not(audited: Auditor, files: dict[str, Any]) -> None:
    rows = rows_of(audited, **files)
    assert rows["attention"].state is rows["gradient_checkpointing"].state is State.UNKNOWN


def test_workers_that_the_script_states_count(audited: Auditor) -> None:
    row = rows_of(audited)["workers"]
    assert (row.state, row.detail) == (State.ON, "`num_workers` is 4 (default of `--workers`)")
    unstated = SCRIPT.replace(", num_workers=args.workers", "")
    assert rows_of(audited, train_py=unstated)["workers"].state is State.UNKNOWN


def test_one_process_where_python_starts_the_script_and_nothing_asks_for_more(audited: Auditor) -> None:
    assert rows_of(audited)["distributed"].state is State.OFF
    assert rows_of(audited, README_md="Nothing.\n")["distributed"].state is State.UNKNOWN
    launched = "```\npython -m torch.distributed.launch --nproc_per_node=4 train.py\n```\n"
    assert rows_of(audited, README_md=launched)["distributed"].state is State.UNKNOWN
    asks = SCRIPT.replace("args = parser", "init_distributed()\n        args = parser")
    row = rows_of(audited, train_py=asks)["distributed"]
    assert (row.state, row.detail) == (State.UNKNOWN, "`init_distributed` decides")


def test_callbacks_of_the_framework_that_save_and_report(audited: Auditor) -> None:
    more = "[callbacks.WeightSave('.'), reporters.TensorboardReporter('.')]"
    rows = rows_of(audited, train_py=SCRIPT.replace("[callbacks.AccuracyCallback()]", more))
    assert (rows["saving"].state, rows["saving"].detail) == (State.ON, "`WeightSave` of homura")
    assert (rows["monitoring"].state, rows["monitoring"].detail) == (State.ON, "TensorBoard")
