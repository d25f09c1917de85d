"""Trainers, loaders and settings that a framework finds by name: what its rows say of them."""

from __future__ import annotations

import pytest

from ptopt.audit.values import Measure, State
from tests.audit.conftest import Auditor

TRAINER = """
import torch
from torch.nn.parallel import DistributedDataParallel


class Trainer:
    def __init__(self, config, model):
        self.optimizer = torch.optim.Adam(model.parameters())
        if not config["single"]:
            model = DistributedDataParallel(model)
        self.model = model
        self.amp = config["enable_amp"]

    def fit(self, loader):
        for batch in loader:
            self.optimizer.zero_grad()
            with torch.autocast("cuda", enabled=self.amp):
                loss = self.model(batch.to("cuda"))
            loss.backward()
            self.optimizer.step()


class LaterTrainer(Trainer):
    def fit(self, loader):
        for batch in loader:
            self.optimizer.zero_grad()
            self.model(batch.to("cuda")).backward()
            self.optimizer.step()
"""
FILES = {
    "run.py": """
        from package.start import run

        if __name__ == "__main__":
            run("Name")
        """,
    "package/__init__.py": "",
    "package/start.py": """
        import importlib

        import lightgbm as lgb

        from package.data import EvalLoader, TrainLoader
        from package.seeds import init_seed


        def get_trainer(name):
            return getattr(importlib.import_module("package.trainer"), name + "Trainer")


        def run(name):
            config = load("package/settings.yaml")
            init_seed(config["reproducible"])
            trainer = get_trainer(name)(config, model)
            trainer.fit(TrainLoader(config, data))
            evaluate(EvalLoader(config, data), lgb.Booster())
        """,
    "package/seeds.py": """
        import torch


        def init_seed(reproducible):
            if reproducible:
                torch.backends.cudnn.benchmark = False
            else:
                torch.backends.cudnn.benchmark = True
        """,
    "package/data.py": """
        import torch
        from torch.nn.utils.rnn import pad_sequence
        from torch.utils.data import DataLoader


        class BaseLoader(DataLoader):
            def __init__(self, config, dataset):
                super().__init__(to_tensor(dataset), num_workers=config["worker"])


        class TrainLoader(BaseLoader):
            def __init__(self, config, dataset):
                super().__init__(config, dataset)


        class EvalLoader(BaseLoader):
            def __init__(self, config, dataset):
                super().__init__(config, dataset)


        def to_tensor(dataset):
            return pad_sequence([torch.as_tensor(each) for each in dataset])
        """,
    "package/trainer/__init__.py": "from package.trainer.loop import *\n",
    "package/trainer/loop.py": TRAINER,
    "package/settings.yaml": "worker: 0\nreproducible: true\nenable_amp: false\nlearning_rate: 0.1\n",
    "requirements.txt": "torch>=1.10.0\n",
}


def row(audited: Auditor, key: str) -> Measure:
    (entry,) = audited(FILES).entries
    return next(m for m in entry.measures if m.key == key)


def test_a_class_that_a_function_finds_by_name_trains(audited: Auditor) -> None:
    (entry,) = audited(FILES).entries
    assert (entry.path, entry.framework) == ("run.py", "PyTorch")
    assert str(entry.loop) == "package/trainer/loop.py:19"


def test_loaders_that_hand_their_arguments_to_a_base_class_are_that_of_the_base(audited: Auditor) -> None:
    workers = row(audited, "workers")
    assert workers.state is State.OFF
    assert workers.detail == "`num_workers` is 0 (`worker` of package/settings.yaml)"
    assert [str(place) for place in workers.evidence] == ["package/settings.yaml:1"]


def test_a_condition_that_is_negated_says_not(audited: Auditor) -> None:
    assert row(audited, "distributed").detail == "DDP, if not `config['single']`"


def test_a_data_set_that_is_padded_whole_is_no_batch(audited: Auditor) -> None:
    assert row(audited, "padding").state is State.UNKNOWN


def test_a_minimum_below_a_changed_default_is_named(audited: Auditor) -> None:
    note = "torch>=1.10.0 (requirements.txt:1) admits older ones"
    assert note in row(audited, "set_to_none").detail
    assert note in row(audited, "tf32").detail


def test_a_search_of_cudnn_that_a_setting_keeps_off_names_the_setting(audited: Auditor) -> None:
    files = {**FILES, "package/trainer/loop.py": TRAINER + "\n\nCONV = torch.nn.Conv2d(3, 8, 3)\n"}
    (entry,) = audited(files).entries
    found = next(m for m in entry.measures if m.key == "cudnn_benchmark")
    assert found.state is State.OFF
    assert "`reproducible` of package/settings.yaml" in found.detail


def test_advice_names_the_option_that_is_there_and_off(audited: Auditor) -> None:
    (gap,) = (gap for gap in audited(FILES).gaps if gap.key == "precision")
    assert "`enable_amp` of package/settings.yaml, which is off" in gap.action


HYDRA = {
    "train.py": """
        from dataclasses import dataclass

        from hydra.utils import get_class, instantiate

        SOURCE = dict(_target_="package.data.Source")


        @dataclass
        class NetConfig:
            _target_: str = "package.net.Net"
            width: int = 8


        if __name__ == "__main__":
            trainer = get_class("package.loop.Loop")(instantiate(NetConfig()), instantiate(SOURCE))
            trainer.run()
        """,
    "package/__init__.py": "",
    "package/net.py": """
        import torch
        from torch import nn


        class Net(nn.Module):
            def __init__(self, width):
                super().__init__()
                self.layer = nn.Conv2d(3, width, 3)

            def forward(self, x):
                return self.layer(x)
        """,
    "package/data.py": """
        from torch.utils.data import DataLoader


        class Source:
            def __init__(self):
                self.loader = DataLoader(files(), num_workers=3)
        """,
    "package/loop.py": """
        import torch


        class Loop:
            def run(self):
                optimizer = torch.optim.Adam(self.net.parameters())
                for batch in self.source.loader:
                    loss = self.net(batch.to("cuda")).mean()
                    loss.backward()
                    optimizer.step()
        """,
}


def test_targets_that_stand_in_code_are_followed(audited: Auditor) -> None:
    (entry,) = audited(HYDRA).entries
    rows = {measure.key: measure for measure in entry.measures}
    assert str(entry.loop) == "package/loop.py:10" and not entry.limits
    assert rows["channels_last"].state is State.OFF
    assert (rows["workers"].state, rows["compile"].state) == (State.ON, State.OFF)


@pytest.mark.parametrize(
    "name", ['"nets.{}".format(args.net)', '"nets.{net}".format(net=args.net)', '"nets.%s" % args.net']
)
def test_networks_of_modules_whose_names_are_filled_in_are_read(audited: Auditor, name: str) -> None:
    files = {
        "code/train.py": f"""
            import argparse
            import importlib

            import torch

            if __name__ == "__main__":
                parser = argparse.ArgumentParser()
                parser.add_argument("--net", type=str)
                args = parser.parse_args()
                net = importlib.import_module({name}).Net().cuda()
                optimizer = torch.optim.Adam(net.parameters())
                for batch in torch.utils.data.DataLoader(data):
                    optimizer.zero_grad()
                    net(batch.to("cuda")).mean().backward()
                    optimizer.step()
            """,
        "code/nets/__init__.py": "",
        "code/nets/small.py": """
            from torch import nn


            class Net(nn.Module):
                def __init__(self):
                    super().__init__()
                    self.layer = nn.Conv2d(3, 8, 3)

                def forward(self, x):
                    return self.layer(x)
            """,
    }
    (entry,) = audited(files).entries
    rows = {measure.key: measure.state for measure in entry.measures}
    assert rows["channels_last"] is State.OFF
    assert rows["attention"] is State.NOT_APPLICABLE
    assert rows["gradient_checkpointing"] is State.OFF
