"""What people who tried an audit for the first time found wrong in it."""

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


HF = """
    from transformers import AutoModelForCausalLM, HfArgumentParser, Trainer, TrainingArguments


    def main():
        (args,) = HfArgumentParser(TrainingArguments).parse_args_into_dataclasses()
        model = AutoModelForCausalLM.from_pretrained("meta-llama/Llama-2-7b-hf")
        Trainer(model=model, args=args, train_dataset=load()).train()


    if __name__ == "__main__":
        main()
"""


RUN = "python train.py --dataloader_num_workers 4\n"


def test_what_the_pinned_transformers_lacks_is_an_upgrade_first(audited: Auditor) -> None:
    audit = audited(
        {"train.py": HF, "run.sh": RUN, "requirements.txt": "transformers==4.31.0\ntorch==2.1.0\n"}
    )
    assert "came with transformers 4.36" in row(audit, "persistent_workers").detail
    actions = {gap.key: gap.action for gap in audit.gaps}
    assert actions["attention"].startswith("Use transformers 4.36 or later. Then: ")
    assert actions["persistent_workers"].startswith("Use transformers 4.36 or later. Then: ")
    newer = audited(
        {"train.py": HF, "run.sh": RUN, "requirements.txt": "transformers==4.46.0\ntorch==2.1.0\n"}
    )
    assert all("Use transformers" not in gap.action for gap in newer.gaps)


def test_an_option_that_no_script_passes_is_not_set(audited: Auditor) -> None:
    audit = audited({"train.py": HF, "run.sh": "python train.py --do_train True\n"})
    assert "no script of the repository passes `--torch_compile`" in row(audit, "compile").detail
    assert "the command line sets" not in str(audit.entries)


def test_a_script_that_only_generates_is_no_training_run(audited: Auditor) -> None:
    audit = audited({
        "train.py": HF,
        "run.sh": "python train.py --do_train True --bf16 True\n",
        "generate.sh": "python train.py --do_train False --do_predict True\n",
    })  # fmt: skip
    assert (row(audit, "precision").state, "launch scripts" in row(audit, "precision").detail) == (
        State.ON,
        False,
    )


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


def test_old_torch_is_told_to_set_gradients_to_none_itself(audited: Auditor) -> None:
    audit = audited(
        {"train.py": TRAIN, "net.py": NET, "data.py": DATA, "requirements.txt": "torch==1.12.0\n"}
    )
    (action,) = [gap.action for gap in audit.gaps if gap.key == "set_to_none"]
    assert "zero_grad(set_to_none=True)" in action and "Drop" not in action
