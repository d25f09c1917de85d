"""Which of several objects a row is of: the loader of the training, the writer of the repository, autocast of the training."""

from __future__ import annotations

import pytest

from ptopt.audit.values import Measure, State
from tests.audit.conftest import Auditor

TRAIN = """
    import argparse
    import torch
    from torch.utils.data import DataLoader

    def make(root, train, mode):
{make}

    def run(model, loader, held_out):
        optimizer = torch.optim.AdamW(model.parameters())
        for x in loader:
            optimizer.zero_grad()
            model(x).sum().backward()
            optimizer.step()

    if __name__ == "__main__":
        parser = argparse.ArgumentParser()
        parser.add_argument("--root")
        args = parser.parse_args()
        first = make(args.root, True, "train")
        second = make(args.root, False, "check")
        run(torch.nn.Linear(64, 64), first, second)
"""
FAST = "DataLoader(Folder(root), num_workers=4, pin_memory=True)"
SLOW = "DataLoader(Folder(root))"


def row(audited: Auditor, key: str, files: dict[str, str]) -> Measure:
    return next(each for each in audited(files).entries[0].measures if each.key == key)


@pytest.mark.parametrize("key", ["workers", "pin_memory"])
@pytest.mark.parametrize(
    ("lines", "state"),
    [
        (["if train:", f"    return {FAST}", "else:", f"    return {SLOW}"], State.ON),
        (["if train:", f"    return {SLOW}", "else:", f"    return {FAST}"], State.OFF),
        (["if not train:", f"    return {SLOW}", "else:", f"    return {FAST}"], State.ON),
        (["if train:", f"    return {FAST}", f"return {SLOW}"], State.ON),
        ([f"return {FAST} if train else {SLOW}"], State.ON),
        (['if mode == "train":', f"    return {FAST}", "else:", f"    return {SLOW}"], State.ON),
        (['if mode != "train":', f"    return {SLOW}", f"return {FAST}"], State.ON),
        # Nothing says which is which.
        (["if root:", f"    return {FAST}", f"return {SLOW}"], State.OFF),
    ],
)
def test_the_loader_of_the_training_decides(
    audited: Auditor, key: str, lines: list[str], state: State
) -> None:
    code = TRAIN.format(make="\n".join(f"        {line}" for line in lines))
    found = row(audited, key, {"train.py": code})
    assert found.state is state, found


@pytest.mark.parametrize(
    ("origin", "state"),
    [("from tensorboardX", State.ON), ("from torch.utils.tensorboard", State.ON), ("from files", State.OFF)],
)
def test_a_class_that_derives_from_a_writer_monitors(audited: Auditor, origin: str, state: State) -> None:
    writer = f"""
        {origin} import SummaryWriter

        class Base(SummaryWriter):
            def log(self, loss, step):
                self.add_scalar("loss", loss, step)

        class Writer(Base):
            pass
    """
    code = TRAIN.format(make=f"        return {SLOW}")
    used = code.replace("    import argparse\n", "    import argparse\n    from writer import Writer\n")
    used = used.replace("        first =", '        writer = Writer("logs")\n        first =')
    assert row(audited, "monitoring", {"train.py": used, "writer.py": writer}).state is state
    unused = used.replace('writer = Writer("logs")', "writer = None")
    assert row(audited, "monitoring", {"train.py": unused, "writer.py": writer}).state is State.OFF


NET = """
    import torch
    from torch.cuda.amp import autocast

    class Net(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = torch.nn.Linear(64, 64)

        @autocast(enabled=False)
        def forward(self, x):
            return self.layer(x)

    class System:
        def __init__(self, net):
            self.net = net

        def __call__(self, x):
            with autocast(enabled=True):
                return self.net(x)
"""
AMP = """
    import torch
    from torch.utils.data import DataLoader
    from net import Net, System

    @torch.no_grad()
    def look(net, images):
        system = System(net)
        return [system(x) for x in images]

    def main():
        net = Net()
        optimizer = torch.optim.AdamW(net.parameters())
        for x in DataLoader(Folder()):
            optimizer.zero_grad()
            net(x).sum().backward()
            optimizer.step()
        look(net, Folder())

    if __name__ == "__main__":
        main()
"""


@pytest.mark.parametrize(
    ("old", "new", "state"),
    [
        ("", "", State.OFF),
        ("    @torch.no_grad()\n", "", State.ON),
        ("net(x).sum()", "System(net)(x).sum()", State.ON),
        ("return [system(x) for x in images]", "return system", State.ON),
    ],
)
def test_autocast_of_what_is_only_evaluated(audited: Auditor, old: str, new: str, state: State) -> None:
    found = row(audited, "precision", {"net.py": NET, "train.py": AMP.replace(old, new) if old else AMP})
    assert found.state is state, found


JOINED = """
    import torch
    from torch.utils.data import DataLoader

    def main():
        device = torch.device("cuda")
        net = torch.nn.Linear(64, 64).to(device)
        optimizer = torch.optim.AdamW(net.parameters())
        shift = torch.zeros(64)
        other = torch.ones(64)
        for step, (query, near, far) in enumerate(DataLoader(Folder())):
            joined = torch.cat([query, near, far])
            joined = joined.to(device)
            optimizer.zero_grad()
            net(joined).sum().backward()
            optimizer.step()

    if __name__ == "__main__":
        main()
"""


def test_parts_of_a_batch_that_are_joined_and_copied(audited: Auditor) -> None:
    assert row(audited, "non_blocking", {"train.py": JOINED}).state is State.OFF
    beside = JOINED.replace("[query, near, far]", "[shift, other]")
    assert row(audited, "non_blocking", {"train.py": beside}).state is State.NOT_APPLICABLE


CHOSEN = """
import argparse
import torch
from torch.backends import cudnn
from torch.nn.parallel import DistributedDataParallel as DDP
{imports}

class Plain(torch.nn.Module):
    def __init__(self, net, **options):
        super().__init__()
        self.net = net

    def forward(self, x):
        return self.net(x)

class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Conv2d(4, 4, 3)

    def forward(self, x):
        return self.layer(x)

if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--gpus", default="0")
    gpus = []
    for text in parser.parse_args().gpus.split(","):
        {fill}
    if len(gpus) > 0:
        cudnn.benchmark = True
    net = ({wrapper} if torch.distributed.is_initialized() else Plain)(Net())
    optimizer = torch.optim.AdamW(net.parameters())
    for x in batches():
        optimizer.zero_grad()
        net(x).sum().backward()
        optimizer.step()
"""


@pytest.mark.parametrize(
    ("fill", "wrapper", "states"),
    [
        ("gpus.append(int(text))", "DDP", {"cudnn_benchmark": State.UNKNOWN, "distributed": State.ON}),
        ("print(text)", "Plain", {"cudnn_benchmark": State.OFF, "distributed": State.OFF}),
    ],
)
def test_a_list_that_is_filled_and_a_wrapper_that_is_chosen(
    audited: Auditor, fill: str, wrapper: str, states: dict[str, State]
) -> None:
    audit = audited({"train.py": CHOSEN.format(imports="", fill=fill, wrapper=wrapper)})
    found = {measure.key: measure.state for measure in audit.entries[0].measures}
    assert {key: found[key] for key in states} == states


FALLBACK = """
try:
    from torch.nn.functional import scaled_dot_product_attention as attend
except {error}:
    def attend(q, k, v):
        return (q @ k.transpose(-2, -1)).softmax(-1) @ v
"""


def test_a_fallback_is_not_what_runs(audited: Auditor) -> None:
    code = CHOSEN.replace("return self.layer(x)", "return attend(x, x, x)")
    files = {
        "train.py": code.format(
            imports=FALLBACK.format(error="ImportError"), fill="print(text)", wrapper="DDP"
        )
    }
    row = next(m for m in audited(files).entries[0].measures if m.key == "attention")
    assert (row.state, "attend" in row.detail) == (State.ON, True)
