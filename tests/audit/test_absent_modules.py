"""A module of the project that is imported and not there leaves open what it may set: no row calls that off."""

from __future__ import annotations

import pytest

from ptopt.audit.values import Measure, State
from tests.audit.conftest import Auditor

TRAIN = """
    import torch
    import torch.nn.functional as F
    from torch.nn.parallel import DistributedDataParallel
    from torch.utils.data import DataLoader
    {imported}


    def main():
        model = Generator().cuda()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for x, y in DataLoader(pairs(), num_workers=4):
            loss = F.l1_loss(model(x.cuda()), y.cuda())
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()


    if __name__ == "__main__":
        main()
"""
MODELS = """
    from torch import nn


    class Generator(nn.Module):
        def __init__(self):
            super().__init__()
            self.layers = nn.Sequential(nn.Linear(512, 512), nn.ReLU())

        def forward(self, x):
            return self.layers(x)
"""
OF_THE_NETWORK = (
    "attention",
    "channels_last",
    "cudnn_benchmark",
    "precision",
    "compile",
    "gradient_checkpointing",
)
OF_THE_RUN = ("tf32", "distributed", "padding", "monitoring", "evaluation")


def rows(audited: Auditor, files: dict[str, str]) -> dict[str, Measure]:
    (entry,) = audited(files).entries
    return {measure.key: measure for measure in entry.measures}


@pytest.mark.parametrize(
    "imported", ["from models import Generator, pairs", "from .models import Generator, pairs"]
)
def test_what_a_module_that_is_not_there_may_set_is_unknown(audited: Auditor, imported: str) -> None:
    found = rows(audited, {"train.py": TRAIN.format(imported=imported)})
    name = imported.split()[1]
    for key in (*OF_THE_NETWORK, *OF_THE_RUN):
        assert found[key].state is State.UNKNOWN, key
        assert f"`{name}`, which it imports, is not among the files" in found[key].detail, key
    assert (found["workers"].state, found["accumulation"].state) == (State.ON, State.OFF)  # they are seen


def test_a_network_that_is_made_out_of_sight_is_unknown(audited: Auditor) -> None:
    """Its name may be that of an installed package. Losses and wrappers make none."""
    found = rows(audited, {"train.py": TRAIN.format(imported="from melgan import Generator, pairs")})
    for key in OF_THE_NETWORK:
        assert found[key].state is State.UNKNOWN, key
    assert found["tf32"].state is State.OFF


@pytest.mark.parametrize(
    "imported",
    [
        "from models import Generator, pairs",
        "from .models import Generator, pairs",
        "from models import Generator, pairs\n    import einops",
        "from models import Generator, pairs\n    try:\n        import utils\n    except ImportError:\n        utils = None",
        "from models import Generator, pairs\n    from .version import __version__",
    ],
)
def test_packages_and_what_need_not_be_there_are_not_missed(audited: Auditor, imported: str) -> None:
    found = rows(audited, {"train.py": TRAIN.format(imported=imported), "models.py": MODELS})
    assert found["attention"].state is found["channels_last"].state is State.NOT_APPLICABLE
    assert found["precision"].state is found["tf32"].state is State.OFF
