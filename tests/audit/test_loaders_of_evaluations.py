"""Rows of the training loader say nothing of loaders that evaluations alone read."""

from __future__ import annotations

import pytest

from ptopt.audit.values import Audit, Measure, State
from tests.audit.conftest import Auditor

DATA = """
    from torch.utils.data import DataLoader

    def images(split, args):
        return DataLoader(Folder(args.root, split), batch_size=64)

    def captions(args):
        return DataLoader(
            Captions(args.root), num_workers=args.workers, pin_memory=True, persistent_workers=True
        )

    def get_data(args):
        data = {}
        data["captions"] = captions(args)
        data["imagenet-val"] = images("val", args)
        return data
"""
NEIGHBOURS = """
    import torch
    from torch.utils.data import DataLoader

    def bank_loader(dataset):
        return DataLoader(dataset, batch_size=64)

    @torch.no_grad()
    def neighbour_eval(model, bank):
        return [model(x) for x in bank_loader(bank)]
"""
TRAIN = """
    import argparse
    import torch
    from data import get_data
    from neighbours import neighbour_eval

    def main():
        parser = argparse.ArgumentParser()
        parser.add_argument("--root")
        parser.add_argument("--workers", type=int, default=4)
        args = parser.parse_args()
        model = torch.nn.Linear(64, 64)
        optimizer = torch.optim.AdamW(model.parameters())
        data = get_data(args)
        for x in data["captions"]:
            optimizer.zero_grad()
            model(x).sum().backward()
            optimizer.step()
        neighbour_eval(model, Bank(args.root))

    if __name__ == "__main__":
        main()
"""
FILES = {"data.py": DATA, "neighbours.py": NEIGHBOURS, "train.py": TRAIN}


def row(audited: Auditor, key: str, more: dict[str, str]) -> Measure:
    return next(each for each in audited(FILES | more).entries[0].measures if each.key == key)


def rows_of(audit: Audit) -> dict[str, Measure]:
    return {each.key: each for each in audit.entries[0].measures}


@pytest.mark.parametrize("key", ["workers", "pin_memory", "persistent_workers"])
def test_a_loader_that_evaluations_alone_read_does_not_switch_the_row_off(audited: Auditor, key: str) -> None:
    assert row(audited, key, {}).state is State.ON
    both = {"data.py": DATA.replace('data["imagenet-val"]', 'data["images"]').replace('"val"', '"all"')}
    assert row(audited, key, both).state is State.OFF


def test_the_number_of_workers_names_each_value_that_the_commands_give(audited: Auditor) -> None:
    lines = "".join(f"python train.py --workers {n}\n" for n in (6, 6, 6, 6, 8))
    found = row(audited, "workers", {"run.sh": lines})
    assert (found.state, "`num_workers` is 6 or 8" in found.detail) == (State.ON, True), found


def test_a_loader_that_is_only_tested_with_is_none_of_the_training(audited: Auditor) -> None:
    tested = TRAIN.replace(
        "        neighbour_eval(",
        "        train_again = DataLoader(Bank(args.root))\n        trainer.test(model, dataloaders=train_again)\n"
        "        neighbour_eval(",
    ).replace("    import torch\n", "    import torch\n    from torch.utils.data import DataLoader\n", 1)
    assert row(audited, "workers", {"train.py": tested}).state is State.ON
    used = tested.replace(".test(", ".fit(")
    assert row(audited, "workers", {"train.py": used}).state is State.OFF


LIT = """
    import torch
    import pytorch_lightning as pl
    from torch.utils.data import DataLoader
    from settings import Settings


    class Lit(pl.LightningModule):
        def __init__(self, conf: Settings):
            super().__init__()
            self.conf = conf
            self.net = torch.nn.Linear(8, 8)

        def train_dataloader(self):
            return self.conf.make_loader(data(), shuffle=True)

        def training_step(self, batch, index):
            self.look()
            return self.net(batch).sum()

        def look(self):
            def draw():
                with torch.no_grad():
                    loader = DataLoader(self.noise, batch_size=8)
                    return [self.net(x) for x in loader]

            return draw()

        def test_step(self, batch, index):
            return self.infer(self.train_dataloader())

        def infer(self, loader):
            return [self.net(x) for x in loader]

        def configure_optimizers(self):
            return torch.optim.AdamW(self.net.parameters())


    if __name__ == "__main__":
        pl.Trainer().fit(Lit(Settings()))
"""
SETTINGS = """
    from dataclasses import dataclass
    from torch.utils.data import DataLoader


    @dataclass
    class Settings:
        num_workers: int = 4

        def make_loader(self, dataset, shuffle, num_worker=None):
            return DataLoader(dataset, shuffle=shuffle, num_workers=num_worker or self.num_workers, pin_memory=True)
"""


def test_the_loader_of_a_hook_counts_and_one_made_without_a_graph_does_not(audited: Auditor) -> None:
    (entry,) = audited({"train.py": LIT, "settings.py": SETTINGS}).entries
    workers = next(row for row in entry.measures if row.key == "workers")
    assert workers.state is State.ON
    assert [place.path for place in workers.evidence] == ["settings.py"]


MADE = """
    import torch
    from torch.utils.data import DataLoader

    def build(paths, validation=False, workers=1):
        return DataLoader(Files(paths), batch_size=4, num_workers=workers)

    def main(paths):
        model = torch.nn.Linear(64, 64)
        optimizer = torch.optim.AdamW(model.parameters())
        {first} = build(paths, workers=2)
        {second} = build(paths, validation=True, workers=0)
        for x in {first}:
            optimizer.zero_grad()
            model(x).sum().backward()
            optimizer.step()

    main(["a"])
"""


@pytest.mark.parametrize(
    ("first", "second", "detail", "state"),
    [
        ("train_loader", "val_loader", "is 2", State.ON),
        ("one", "other", "the calls of `build` differ", State.UNKNOWN),
        ("train_loader", "train_eval_loader", "is 2", State.ON),
    ],
)
def test_a_function_that_makes_loaders_is_judged_by_the_call_of_the_training(
    audited: Auditor, first: str, second: str, detail: str, state: State
) -> None:
    row = rows_of(audited({"train.py": MADE.format(first=first, second=second)}))["workers"]
    assert (row.state, detail in row.detail) == (state, True)


def test_a_loader_that_evaluates_on_training_data_is_no_training_loader(audited: Auditor) -> None:
    code = """
        import torch
        from torch.utils.data import DataLoader

        def main(data):
            model = torch.nn.Linear(64, 64)
            optimizer = torch.optim.AdamW(model.parameters())
            loader_train = DataLoader(data, pin_memory=True)
            loader_train_eval = DataLoader(data)
            for x in loader_train:
                optimizer.zero_grad()
                model(x.cuda()).sum().backward()
                optimizer.step()

        main([1])
    """
    assert rows_of(audited({"train.py": code}))["pin_memory"].state is State.ON


LOADED = """
    import argparse
    import torch
    from omegaconf import OmegaConf
    from torch.utils.data import DataLoader

    def main(data, epochs=1, workers=32):
        model = torch.nn.Linear(64, 64)
        optimizer = torch.optim.AdamW(model.parameters())
        for x in DataLoader(data, num_workers=workers):
            optimizer.zero_grad()
            model(x).sum().backward()
            optimizer.step()

    if __name__ == "__main__":
        parser = argparse.ArgumentParser()
        parser.add_argument("--config", required=True)
        config = OmegaConf.load(parser.parse_args().config)
        main(**config)
"""


@pytest.mark.parametrize(
    ("configuration", "detail"),
    [
        ("data: x\nepochs: 2\nlearning_rate: 0.1\n", "is 32 (default of `workers` of `main`)"),
        ("data: x\nepochs: 2\nlearning_rate: 0.1\nworkers: 3\n", "is 3 "),
    ],
)
def test_what_no_configuration_gives_a_function_is_its_default(
    audited: Auditor, configuration: str, detail: str
) -> None:
    row = rows_of(audited({"train.py": LOADED, "configs/base.yaml": configuration}))["workers"]
    assert detail in row.detail and row.state is State.ON


NESTED = """
    import torch
    from torch.utils.data import DataLoader

    class Episodes:
        def __init__(self, classes):
            self.parts = [DataLoader(each, num_workers=0) for each in classes]

        def __getitem__(self, i):
            return {read}

    def main(classes):
        model = torch.nn.Linear(64, 64)
        optimizer = torch.optim.AdamW(model.parameters())
        for x in DataLoader(Episodes(classes), num_workers=12):
            optimizer.zero_grad()
            model(x).sum().backward()
            optimizer.step()

    main([1])
"""


@pytest.mark.parametrize(
    ("read", "state"), [("next(iter(self.parts[i]))", State.ON), ("self.parts[i]", State.OFF)]
)
def test_a_loader_that_a_data_set_reads_is_none_of_the_training(
    audited: Auditor, read: str, state: State
) -> None:
    assert rows_of(audited({"train.py": NESTED.format(read=read)}))["workers"].state is state
