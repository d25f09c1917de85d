"""Networks that decorators put into a table, and that the script takes from it by a name in its configuration."""

from __future__ import annotations

import pytest

from ptopt.audit.values import State
from tests.audit.conftest import Auditor

TRAIN = """
    import sys

    import torch
    import yaml

    import models


    def main():
        config = yaml.safe_load(open(sys.argv[1]))
        net = models.make(config["model"]).cuda()
        optimizer = torch.optim.AdamW(net.parameters())
        for x in batches():
            optimizer.zero_grad()
            net(x).sum().backward()
            optimizer.step()


    if __name__ == "__main__":
        main()
"""
BY_FUNCTION = """
    known = {}


    def register(name):
        def into_table(cls):
            known[name] = cls
            return cls

        return into_table


    def make(spec):
        return known[spec["name"]](**spec["args"])
"""
BY_CLASS = """
    class Registry:
        def __init__(self, name):
            self.held = dict()

        def register_module(self):
            def into_table(cls):
                self.held[cls.__name__] = cls
                return cls

            return into_table

        def build(self, spec):
            return self.held[spec["name"]](**spec["args"])


    MODELS = Registry("models")


    def make(spec):
        return MODELS.build(spec)
"""
OF_ANOTHER = """
    from mmengine import Registry

    MODELS = Registry("models")


    def make(spec):
        return MODELS.build(spec)
"""
NETWORK = """
    from torch import nn

    from models.table import {name}


    @{decorator}
    class EDSR(nn.Module):
        def __init__(self, width):
            super().__init__()
            self.head = nn.Conv2d(3, width, 3)

        def forward(self, x):
            return self.head(x)
"""
OUTER = """
    from torch import nn

    from models import make
    from models.table import register


    @register("liif")
    class LIIF(nn.Module):
        def __init__(self, encoder):
            super().__init__()
            self.encoder = make(encoder)

        def forward(self, x):
            return self.encoder(x)
"""
PACKAGE = "from .table import make\nfrom . import edsr\n"
CONFIG = "model:\n  name: {}\n  args: {{width: 64}}\nbatch_size: 16\n"


def network(name: str, decorator: str) -> str:
    return NETWORK.format(name=name, decorator=decorator)


@pytest.mark.parametrize(
    ("table", "decorated", "key"),
    [
        (BY_FUNCTION, network("register", 'register("edsr-baseline")'), "edsr-baseline"),
        (BY_CLASS, network("MODELS", "MODELS.register_module()"), "EDSR"),
        (OF_ANOTHER, network("MODELS", 'MODELS.register_module(name="edsr")'), "edsr"),
    ],
)
def test_networks_of_a_table_run(audited: Auditor, table: str, decorated: str, key: str) -> None:
    files = {"train.py": TRAIN, "models/__init__.py": PACKAGE, "models/table.py": table}
    files |= {"models/edsr.py": decorated, "configs/train.yaml": CONFIG.format(key)}
    (entry,) = audited(files).entries
    rows = {measure.key: measure for measure in entry.measures}
    assert rows["channels_last"].state is rows["cudnn_benchmark"].state is State.OFF
    assert [str(place) for place in rows["channels_last"].evidence] == ["models/edsr.py:11"]
    assert (rows["precision"].state, rows["attention"].state) == (State.OFF, State.NOT_APPLICABLE)


def test_a_network_takes_its_parts_from_the_table(audited: Auditor) -> None:
    """The script names the outer network itself."""
    train = TRAIN.replace('models.make(config["model"])', 'models.liif.LIIF(**config["model"]["args"])')
    files = {
        "train.py": train,
        "models/__init__.py": f"{PACKAGE}from . import liif\n",
        "models/table.py": BY_FUNCTION,
    }
    files |= {"models/edsr.py": network("register", 'register("edsr")'), "models/liif.py": OUTER}
    files["configs/train.yaml"] = CONFIG.format("liif")
    (entry,) = audited(files).entries
    found = next(measure for measure in entry.measures if measure.key == "channels_last")
    assert found.state is State.OFF


def test_only_what_a_text_names_is_taken(audited: Auditor) -> None:
    linear = network("MODELS", "MODELS.register_module()").replace("EDSR", "MLP").replace("nn.Conv2d(3, width, 3)", "nn.Linear(3, width)")  # fmt: skip
    files = {
        "train.py": TRAIN,
        "models/__init__.py": f"{PACKAGE}from . import mlp\n",
        "models/table.py": BY_CLASS,
    }
    files |= {"models/edsr.py": network("MODELS", "MODELS.register_module()"), "models/mlp.py": linear}
    for name, state in (("MLP", State.NOT_APPLICABLE), ("EDSR", State.OFF)):
        (entry,) = audited(files | {"configs/train.yaml": CONFIG.format(name)}).entries
        found = next(measure for measure in entry.measures if measure.key == "channels_last")
        assert found.state is state, name


def test_a_table_that_nobody_asks_runs_nothing(audited: Auditor) -> None:
    train = TRAIN.replace('models.make(config["model"])', "torch.nn.Linear(8, 8)")
    files = {"train.py": train, "models/__init__.py": PACKAGE, "models/table.py": BY_FUNCTION}
    files["models/edsr.py"] = network("register", 'register("edsr")')
    (entry,) = audited(files).entries
    found = next(measure for measure in entry.measures if measure.key == "channels_last")
    assert found.state is State.NOT_APPLICABLE
