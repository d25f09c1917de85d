"""Code beside the training step, and that of other scripts, does not decide the rows and the advice of a script."""

from __future__ import annotations

from ptopt.audit.values import Audit, Measure, State
from tests.audit.conftest import Auditor

TRAIN = """
    import torch
    from torch import nn
    from torch.utils.data import DataLoader
    from net import Net
    from data import Pairs


    def train():
        model = Net().cuda()
        optimizer = torch.optim.AdamW(model.parameters())
        loader = DataLoader(Pairs(), batch_size=8)
        for epoch in range(3):
            for batch in loader:
                batch = {name: value.to("cuda") for name, value in batch.items()}
                loss = nn.functional.mse_loss(model(batch["x"]), batch["y"])
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()


    def write(tokenizer, model, prompts, device):
        with torch.no_grad():
            for prompt in prompts:
                encoded = tokenizer(prompt).to(device)
                model.generate(encoded)


    if __name__ == "__main__":
        train()
"""
NET = """
    from torch import nn


    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.layers = nn.Sequential(nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 512))

        def forward(self, x):
            return self.layers(x)
"""
DATA = """
    import torch
    from torch.utils.data import Dataset


    class Pairs(Dataset):
        def __len__(self):
            return 100

        def __getitem__(self, i):
            return {"x": torch.load(f"{i}.pt"), "y": torch.zeros(512)}
"""
ON_DEVICE = """
    import torch
    from torch.utils.data import DataLoader, Dataset


    class Moved(Dataset):
        def __len__(self):
            return 100

        def __getitem__(self, i):
            return torch.load(f"{i}.pt").to("cuda")


    def show():
        for x in DataLoader(Moved(), batch_size=8):
            print(x.shape)
"""


def row(audit: Audit, key: str) -> Measure:
    return next(measure for measure in audit.entries[0].measures if measure.key == key)


def test_a_dataset_of_another_script_takes_no_advice_away(audited: Auditor) -> None:
    files = {"train.py": TRAIN, "net.py": NET, "data.py": DATA}
    alone = {gap.key for gap in audited(files).gaps}
    assert {"workers", "pin_memory"} <= alone
    beside = audited({**files, "notes/show.py": ON_DEVICE})
    assert {gap.key for gap in beside.gaps} == alone
    own = audited({**files, "data.py": DATA.replace('{"x": torch.load(f"{i}.pt"), "y": torch.zeros(512)}',
                                                    'torch.load(f"{i}.pt").to("cuda")')})  # fmt: skip
    assert not {"workers", "pin_memory"} & {gap.key for gap in own.gaps}


def test_copies_of_the_batch_are_those_of_the_training_step(audited: Auditor) -> None:
    found = row(audited({"train.py": TRAIN, "net.py": NET, "data.py": DATA}), "non_blocking")
    assert (found.state, [place.line for place in found.evidence]) == (State.OFF, [15])


EVALUATED = """
    import torch
    from lib import helper


    def evaluate(model, loader):
        model.eval()
        losses = []
        for x, y in loader:
            losses.append(loss_of(model, x.cuda(), y.cuda()))
        model.train()
        return torch.stack(losses).mean().item()


    def loss_of(model, x, y):
        return torch.nn.functional.cross_entropy(model(x), y)


    def main(model, loader, val, optimizer):
        helper.setup(model)
        for x, y in loader:
            loss = torch.nn.functional.cross_entropy(model(x.cuda()), y.cuda())
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        print(evaluate(model, val))


    if __name__ == "__main__":
        main(make(), data(), held_out(), optimizer_of())
"""
LIBRARY = """
    import torch


    def setup(model):
        return find(model, [1])


    def find(model, tokens):
        with torch.no_grad():
            return model(tokens)
"""


def test_code_of_the_library_does_not_speak_for_the_evaluation_of_the_script(audited: Auditor) -> None:
    audit = audited({"train.py": EVALUATED, "lib/helper.py": LIBRARY, "lib/__init__.py": ""})
    found = row(audit, "evaluation")
    assert found.state is State.OFF and {place.path for place in found.evidence} == {"train.py"}
    assert "Evaluation without a graph" not in {good.title for good in audit.good}
