"""What a method of the network switches is decided by the calls of the method."""

from __future__ import annotations

import pytest

from ptopt.audit.values import Measure, State
from tests.audit.conftest import Auditor

NETWORK = """
    import torch
    from torch.utils.checkpoint import checkpoint

    class Tower(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.checkpointing = False
            self.blocks = torch.nn.ModuleList(torch.nn.Linear(64, 64) for _ in range(8))

        def set_checkpointing(self, enable=True, way="inline"):
            if way == "composable":
                from torch.distributed._composable import checkpoint as composable
                composable(self)
            else:
                self.checkpointing = enable

        def forward(self, x):
            for block in self.blocks:
                x = checkpoint(block, x, use_reentrant=False) if self.checkpointing else block(x)
            return x

    class TextTower(Tower):
        def set_checkpointing(self, enable=True, way="inline"):
            self.checkpointing = enable

        def forward(self, x):
            if self.checkpointing:
                return checkpoint(self.blocks[0], x, use_reentrant=False)
            return self.blocks[0](x)

    class Both(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.image, self.text = Tower(), TextTower()

        def set_checkpointing(self, enable=True, way="inline"):
            self.image.set_checkpointing(enable, way=way)
            self.text.set_checkpointing(enable, way=way)

        def forward(self, x):
            return self.text(self.image(x))
"""
TRAIN = """
    import argparse
    import torch
    from network import Both

    def main():
        parser = argparse.ArgumentParser()
        parser.add_argument("--checkpointing", action="store_true")
        parser.add_argument("--fsdp", action="store_true")
        args = parser.parse_args()
        model = Both()
        if args.checkpointing:
            model.set_checkpointing(way="composable" if args.fsdp else "inline")
        optimizer = torch.optim.AdamW(model.parameters())
        for x in batches():
            optimizer.zero_grad()
            model(x).sum().backward()
            optimizer.step()

    if __name__ == "__main__":
        main()
"""
FILES = {"network.py": NETWORK, "train.py": TRAIN}


def checkpointing(audited: Auditor, more: dict[str, str]) -> Measure:
    measures = audited(FILES | more).entries[0].measures
    return next(measure for measure in measures if measure.key == "gradient_checkpointing")


@pytest.mark.parametrize(
    ("lines", "state", "detail"),
    [
        (["python train.py"], State.OFF, "default of `--checkpointing`"),
        (["python train.py --checkpointing"], State.ON, "`checkpoint`"),
        (
            ["python train.py --checkpointing", "python train.py"],
            State.UNKNOWN,
            "`--checkpointing` differs between 2 commands (True, False)",
        ),
    ],
)
def test_activation_checkpointing_behind_a_method_is_decided_by_the_option_of_its_call(
    audited: Auditor, lines: list[str], state: State, detail: str
) -> None:
    found = checkpointing(audited, {"run.sh": "\n".join(lines) + "\n"})
    assert (found.state, detail in found.detail) == (state, True), found


def test_a_container_of_modules_is_switched_by_the_repository_alone(audited: Auditor) -> None:
    contained = NETWORK.replace("class Tower(torch.nn.Module)", "class Tower(torch.nn.ModuleDict)")
    found = checkpointing(audited, {"network.py": contained})
    assert (found.state, "default of `--checkpointing`" in found.detail) == (State.OFF, True), found


def test_an_option_that_commands_give_by_a_variable_does_not_differ(audited: Auditor) -> None:
    train = TRAIN.replace('"--checkpointing", action="store_true"', '"--checkpointing", type=int, default=0')
    line = "python train.py --checkpointing $1\n"
    found = checkpointing(audited, {"train.py": train, "run.sh": line * 2})
    assert (found.state, "`--checkpointing` is a variable of run.sh:1" in found.detail) == (
        State.UNKNOWN,
        True,
    )


PARTS = """
    import torch
    from torch.utils.checkpoint import checkpoint

    class Tower(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.checkpointing = False
            self.block = torch.nn.Linear(64, 64)

        def forward(self, x):
            return checkpoint(self.block, x) if self.checkpointing else self.block(x)

    class Both(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.image = Tower()

        def set_checkpointing(self, enable=True, way="inline"):
            self.image.checkpointing = enable

        def forward(self, x):
            return self.image(x)
"""


@pytest.mark.parametrize(
    ("given", "state", "said"),
    [("", State.OFF, "default of `--checkpointing`"), (" --checkpointing", State.ON, "`checkpoint`")],
)
def test_a_method_of_the_whole_switches_a_part(audited: Auditor, given: str, state: State, said: str) -> None:
    found = checkpointing(audited, {"network.py": PARTS, "run.sh": f"python train.py{given}\n"})
    assert (found.state, said in found.detail) == (state, True), found.detail
