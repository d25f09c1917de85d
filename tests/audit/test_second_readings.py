"""What readers of the tables of fresh repositories found wrong: versions, loaders of libraries, and rows without a place."""

from __future__ import annotations

import pytest

from ptopt.audit.values import State
from ptopt.configs.lines import read_lines
from ptopt.project.facts import read_facts
from tests.audit.conftest import Auditor
from tests.audit.test_pins import TRAIN, rows

ON, OFF, UNKNOWN, NOT_APPLICABLE = State.ON, State.OFF, State.UNKNOWN, State.NOT_APPLICABLE


@pytest.mark.parametrize(
    "text",
    [
        "My environment is\n```\npython==3.7.0  torchvision==0.5.0  pytorch==1.4.0  \n```\n",
        "python 3.7, numpy==1.18, torch==1.4.0",
    ],
)
def test_torch_is_read_behind_other_packages_of_a_line(audited: Auditor, text: str) -> None:
    found = rows(audited, {"train.py": TRAIN, "README.md": text})
    assert found["tf32"].state is NOT_APPLICABLE
    assert "torch==1.4.0 (README.md:" in found["tf32"].detail


@pytest.mark.parametrize("text", ["With pytorch==1.4.0 it was slow.", "Tested: torch 2.1, not torch==1.4.0"])
def test_torch_of_a_sentence_pins_nothing(text: str) -> None:
    assert not read_facts({"README.md": text.encode()}).excludes("torch", "1.5")


def test_torch_under_its_other_name_in_requirements(audited: Auditor) -> None:
    found = rows(audited, {"train.py": TRAIN, "requirements.txt": "pytorch >= 1.0.0\nnumpy\n"})
    assert "torch>=1.0.0 (requirements.txt:1) admits older ones" in found["set_to_none"].detail
    assert "torch>=1.0.0 (requirements.txt:1) admits older ones" in found["fused_optimizer"].detail
    assert not read_facts({"requirements.txt": b"pytorch==1.0.2\n"}).known("torch")


def test_workers_prefetch_before_the_option_came(audited: Auditor) -> None:
    row = rows(audited, {"train.py": TRAIN, "requirements.txt": "torch==1.4.0\n"})["prefetch"]
    assert row.state is ON
    assert row.detail.startswith("2 for each worker, fixed: torch has `prefetch_factor` since 1.7")


OF_A_LIBRARY = """
    import argparse
    import torch
    from torch import nn
    from {library}.data import {name}


    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.layers = nn.Sequential(nn.Conv2d(3, 64, 3), nn.ReLU())

        def forward(self, x):
            return self.layers(x)


    def main():
        parser = argparse.ArgumentParser()
        parser.add_argument("--workers", type=int, default=8)
        parser.add_argument("--pin-mem", action="store_true")
        args = parser.parse_args()
        net = Net().cuda()
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
        loader_train = {name}(data(), is_training=True, num_workers=args.workers, pin_memory=args.pin_mem)
        for x, y in loader_train:
            loss = nn.functional.mse_loss(net(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()


    if __name__ == "__main__":
        main()
"""


def test_a_loader_that_another_library_makes(audited: Auditor) -> None:
    script = OF_A_LIBRARY.format(library="tlt", name="create_token_label_loader")
    found = rows(audited, {"train.py": script})
    assert (found["workers"].state, found["workers"].detail) == (
        ON,
        "`num_workers` is 8 (default of `--workers`)",
    )
    assert found["pin_memory"].state is OFF
    said = "`create_token_label_loader` of `tlt` makes the loader"
    for key in ("persistent_workers", "prefetch", "non_blocking"):
        assert found[key].state is UNKNOWN, key
        assert said in found[key].detail


def test_what_a_library_makes_for_an_evaluation_is_no_loader_of_the_training(audited: Auditor) -> None:
    script = OF_A_LIBRARY.format(library="tlt", name="create_loader").replace("loader_train", "loader_eval")
    assert rows(audited, {"train.py": script})["workers"].state is NOT_APPLICABLE


def test_networks_of_torchvision_that_convolve(audited: Auditor) -> None:
    files = {
        "network.py": """
            from torch import nn
            from torchvision import models


            class AlexNet(nn.Module):
                def __init__(self):
                    super().__init__()
                    self.features = models.alexnet(pretrained=True).features

                def forward(self, x):
                    return self.features(x)
        """,
        "train.py": TRAIN.replace(
            "from torch import nn", "from torch import nn\n    from network import AlexNet"
        )
        .replace("Net().cuda()", 'config["net"]().cuda()')
        .replace("def main():", 'config = {"net": AlexNet}\n\n\n    def main():'),
    }
    found = rows(audited, files)
    assert (found["cudnn_benchmark"].state, found["channels_last"].state) == (OFF, OFF)


COLLATES = """
    import numpy as np


    def collate(items):
        batch = {{}}
        for key in items[0].keys():
            batch[key] = {made}([item[key] for item in items])
        return batch
"""
PINS = TRAIN.replace("num_workers=4", "num_workers=4, pin_memory=True, collate_fn=collate").replace(
    "import torch\n", "import torch\n    from data import collate\n", 1
)


def test_arrays_of_numpy_are_not_pinned(audited: Auditor) -> None:
    files = {"train.py": PINS, "data.py": COLLATES.format(made="np.array")}
    row = rows(audited, files)["pin_memory"]
    assert (row.state, row.detail) == (
        OFF,
        "`pin_memory` is True; `collate` returns arrays of NumPy, which pinning leaves as they are",
    )
    action = next(gap.action for gap in audited(files).gaps if gap.key == "pin_memory")
    assert action.startswith("Return tensors from the function that collates")
    assert "does not pin" not in rows(audited, files)["non_blocking"].detail


@pytest.mark.parametrize(
    "code",
    [
        COLLATES.format(made="torch.tensor"),
        COLLATES.format(made="np.array").replace("return batch", "return default_collate(batch)"),
        COLLATES.format(made="np.array").replace("return batch", "fill(batch)\n        return batch"),
    ],
)
def test_batches_with_tensors_are_pinned(audited: Auditor, code: str) -> None:
    assert rows(audited, {"train.py": PINS, "data.py": code})["pin_memory"].state is ON


ATTENDS = """
        def forward(self, x):
            queries = self.layers(x)
            attention = torch.mm(queries, x.transpose(0, 1))
            attention = nn.functional.softmax(attention / 22.6, 1)
            return torch.mm(attention, x)
"""


def test_attention_by_products_of_two_matrices(audited: Auditor) -> None:
    script = TRAIN.replace(
        "        def forward(self, x):\n            return self.layers(x)\n", ATTENDS.lstrip("\n")
    )
    row = rows(audited, {"train.py": script})["attention"]
    assert (row.state, row.detail) == (OFF, "computed by separate products and softmax in `forward`")


def test_folds_that_are_joined_after_the_cut_pack_nothing(audited: Auditor) -> None:
    folds = """
    def folds(items, n, index):
        chunked = [items[i : i + n] for i in range(0, len(items), n)]
        test = chunked.pop(index)
        return list(itertools.chain.from_iterable(chunked)), test


    def main():
        train, test = folds(load(), 10, 0)
"""
    script = TRAIN.replace("    def main():\n", folds.lstrip("\n")).replace(
        "import torch\n", "import itertools\n    import torch\n", 1
    )
    assert rows(audited, {"train.py": script})["padding"].state is NOT_APPLICABLE


def test_the_number_behind_a_name_of_the_function(audited: Auditor) -> None:
    script = (
        TRAIN.replace("for x, y in", "every = 10000\n        for step, (x, y) in enumerate(")
        .replace("num_workers=4):", "num_workers=4)):")
        .replace(
            "            optimizer.step()\n",
            "            optimizer.step()\n            if step % every == every - 1:\n                torch.save(net.state_dict(), 'x.pt')\n",
        )
    )
    row = rows(audited, {"train.py": script})["saving"]
    assert row.detail == "every 10000 steps (`every`), synchronous"


OF_LINES = {
    "options.py": """
        import configargparse


        def parse():
            parser = configargparse.ArgumentParser()
            parser.add_argument("--config", is_config_file=True)
            parser.add_argument("--workers", type=int, default=8)
            parser.add_argument("--i_weights", type=int, default=10000)
            parser.add_argument("--distributed", action="store_true")
            return parser.parse_args()
    """,
    "train.py": TRAIN.replace("import torch\n", "import torch\n    from options import parse\n", 1)
    .replace("def main():\n", "def main():\n        args = parse()\n")
    .replace("net = Net().cuda()\n", "net = Net().cuda()\n        if args.distributed:\n            net = nn.parallel.DistributedDataParallel(net)\n")
    .replace("for x, y in", "for step, (x, y) in enumerate(")
    .replace("num_workers=4):", "num_workers=args.workers)):")
    .replace(
        "            optimizer.step()\n",
        "            optimizer.step()\n            if step % args.i_weights == 0:\n                torch.save(net.state_dict(), 'x.pt')\n",
    ),
    "README.md": "```\npython -m torch.distributed.launch --nproc_per_node=8 train.py --config configs/all.txt\n```\n",
    "configs/all.txt": "### INPUT\nexpname = all\nroot = /data/  # your path\ndistributed = True\ni_weights = 5000\nworkers = 4\nnames = [a, b]\n",
    "configs/eval.txt": "expname = eval\ndistributed = False\n",
}  # fmt: skip


def test_configurations_of_lines_that_configargparse_reads(audited: Auditor) -> None:
    found = rows(audited, OF_LINES)
    assert found["saving"].detail == "every 5000 steps (`i_weights` of configs/all.txt), synchronous"
    assert found["workers"].detail == "`num_workers` is 4 (`workers` of configs/all.txt)"
    assert found["distributed"].detail == "DDP (`distributed` of configs/all.txt)"


def test_texts_that_are_no_configurations_are_not_read(audited: Auditor) -> None:
    other = OF_LINES["options.py"].replace("configargparse", "argparse")
    found = rows(audited, {**OF_LINES, "options.py": other})
    assert found["saving"].detail == "every 10000 steps (default of `--i_weights`), synchronous"
    assert found["distributed"].detail == "DDP: off, default of `--distributed`"
    prose = "These are the settings that we used.\nThey are described in the paper.\nworkers = 4\n"
    assert "is 8" in rows(audited, {**OF_LINES, "configs/all.txt": prose})["workers"].detail


HOLDS = """
    class Rays:
        def __init__(self, data, device):
            self.images = data["images"]
            self.step = 4

        def draw(self, number):
            return self.images{copy}

        def shown(self):
            return self.images.cuda(), self.step.cuda()


    def main():
        net = Net().cuda()
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
        for step, batch in enumerate(DataLoader(data(), num_workers=4, pin_memory=True)):
            rays = Rays(batch, "cuda")
            loss = net(rays.draw(4)).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            if step % 100 == 0:
                log(rays.shown())


    if __name__ == "__main__":
        main()
"""


def test_copies_by_an_object_that_each_step_makes_of_its_batch(audited: Auditor) -> None:
    start = TRAIN[: TRAIN.index("    def main")]
    waits = rows(audited, {"train.py": start + HOLDS.format(copy=".cuda()").lstrip("\n")})["non_blocking"]
    assert (waits.state, waits.detail) == (OFF, "copies of the batch wait")
    assert len(waits.evidence) == 1
    free = HOLDS.format(copy=".cuda(non_blocking=True)").lstrip("\n")
    assert rows(audited, {"train.py": start + free})["non_blocking"].state is ON
    none = rows(audited, {"train.py": start + HOLDS.format(copy="").lstrip("\n")})["non_blocking"]
    assert none.state is NOT_APPLICABLE


EMBEDS = """
        def __init__(self):
            super().__init__()
            self.entities = nn.Parameter(torch.zeros(1000, 64))

        def forward(self, x):
            head, tail = self.entities[x[:, 0]], self.entities[x[:, 1]]
            return {score}
"""


@pytest.mark.parametrize(
    ("score", "state"),
    [("(head * tail).sum(1)", NOT_APPLICABLE), ("head @ tail.t()", OFF), ("torch.mm(head, tail.t())", OFF)],
)
def test_tf32_without_a_product_of_matrices(audited: Auditor, score: str, state: State) -> None:
    first, last = TRAIN.index("        def __init__"), TRAIN.index("    def main")
    script = TRAIN[:first] + EMBEDS.format(score=score).lstrip("\n") + "\n\n" + TRAIN[last:]
    assert rows(audited, {"train.py": script})["tf32"].state is state


def test_an_optimizer_without_a_fused_update_that_a_table_holds(audited: Auditor) -> None:
    script = TRAIN.replace("torch.optim.SGD(", 'config["optimizer"]["type"](').replace(
        "    def main():", '    config = {"optimizer": {"type": torch.optim.RMSprop}}\n\n\n    def main():'
    )
    row = rows(audited, {"train.py": script})["fused_optimizer"]
    assert (row.state, row.detail) == (NOT_APPLICABLE, "`RMSprop` of torch has no fused update")


@pytest.mark.parametrize("value", ["9" * 5000, " " * 60_000 + "x", " \t" * 30_000 + "# end"])
def test_lines_of_hostile_length_are_read(value: str) -> None:
    document = read_lines(f"workers = 4\nname = {value}\n".encode())
    assert document is not None and document.root is not None
    assert next(entry.value.start for entry in document.root.entries) == 10
