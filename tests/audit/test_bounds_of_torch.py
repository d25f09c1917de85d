"""What else bounds the torch of a script: its CUDA, prose, requirements that exclude a pin, and code that newer versions refuse."""

from __future__ import annotations

import pytest

from ptopt.audit.values import State
from tests.audit.conftest import Auditor
from tests.audit.test_pins import NOT_APPLICABLE, OFF, ON, TRAIN, rows


@pytest.mark.parametrize(
    ("path", "text", "state"),
    [
        ("environment.yml", "dependencies:\n  - pytorch=1.8.1\n  - cudatoolkit=10.1.243\n", NOT_APPLICABLE),
        ("environment.yml", "dependencies:\n  - pytorch=1.8.1\n  - cudatoolkit=11.3\n", ON),
        ("README.md", "conda install pytorch==1.8.1 cudatoolkit=10.2 -c pytorch", NOT_APPLICABLE),
        ("README.md", "conda install pytorch==1.8.1 cudatoolkit=10.2 -c pytorch\nconda install pytorch==1.8.1 cudatoolkit=11.1", ON),
        ("requirements.txt", "torch==1.8.1+cu101", NOT_APPLICABLE),
        ("requirements.txt", "torch==1.8.1+cu111", ON),
        ("requirements.txt", "torch==1.8.1", ON),
    ],
)  # fmt: skip
def test_tf32_takes_cuda_11(audited: Auditor, path: str, text: str, state: State) -> None:
    row = rows(audited, {"train.py": TRAIN, path: text})["tf32"]
    assert row.state is state
    assert ("it takes CUDA 11; the project needs" in row.detail) is (state is NOT_APPLICABLE)


@pytest.mark.parametrize(
    ("files", "detail", "state"),
    [
        ({"README.md": "# Net\n- [Pytorch](http://pytorch.org/) before 0.4"}, "torch<0.4 (README.md:2)", NOT_APPLICABLE),
        ({"Dockerfile": "FROM pytorch/pytorch:1.7.1-cuda11.0\n", "requirements.txt": "torch>=1.9"}, "nothing is compiled", OFF),
        ({"Dockerfile": "FROM pytorch/pytorch:1.7.1-cuda11.0\n", "requirements.txt": "torch>=1.6"}, "torch==1.7.1", NOT_APPLICABLE),
    ],
)  # fmt: skip
def test_bounds_in_prose_and_pins_that_requirements_exclude(
    audited: Auditor, files: dict[str, str], detail: str, state: State
) -> None:
    row = rows(audited, {"train.py": TRAIN, **files})["compile"]
    assert (row.state, detail in row.detail) == (state, True)


NEXT = """
    import torch
    from torch.utils.data import DataLoader

    def main(train_loader):
        net = torch.nn.Linear(4, 4)
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
        batches = iter({holder})
        for step in range(100):
            {take}
            optimizer.zero_grad()
            net(x).sum().backward()
            optimizer.step()

    if __name__ == "__main__":
        main(DataLoader([1]))
"""
RESTARTS = (
    "try:\n                x = batches.next()\n            except {}:\n                x = next(batches)"
)


@pytest.mark.parametrize(
    ("holder", "take", "bounded"),
    [
        ("train_loader", "x = batches.next()", True),
        ("train_loader", RESTARTS.format("StopIteration"), True),
        ("train_loader", RESTARTS.format("AttributeError"), False),
        ("train_loader", "x = next(batches)", False),
        ("prefetcher", "x = batches.next()", False),
    ],
)
def test_iterators_of_loaders_had_a_method_next(
    audited: Auditor, holder: str, take: str, bounded: bool
) -> None:
    row = rows(audited, {"train.py": NEXT.format(holder=holder, take=take)})["compile"]
    assert row.state is (NOT_APPLICABLE if bounded else OFF)
    assert ("`batches.next()` (train.py:" in row.detail) is bounded
