"""What is costly to find out is asked once, and only where the answer is shown: scripts of a repository share most of their code."""

from __future__ import annotations

from collections import Counter

import pytest

from ptopt.audit import calling, documented, trained
from ptopt.audit.measures import padding
from tests.audit.conftest import Auditor
from tests.audit.test_critical import train
from tests.audit.test_row_details import code, row


def count(monkeypatch: pytest.MonkeyPatch, module: object, name: str, at: int) -> Counter[object]:
    """How often the function of the module is called, by its argument at a position."""
    asked: Counter[object] = Counter()
    real = getattr(module, name)

    def counted(*args: object) -> object:
        asked[args[at]] += 1
        return real(*args)

    monkeypatch.setattr(module, name, counted)
    return asked


def test_the_lengths_of_padding_are_asked_until_one_is_not_known(
    audited: Auditor, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = count(monkeypatch, padding, "_length", 2)
    lengths = ["64", "length", "32", "16", "8", "4"]
    calls = [f'ids = tokenizer(batch["x"], padding="max_length", max_length={n})' for n in lengths]
    found = row(audited, "padding", {"train.py": code(copies="\n".join(calls))})
    assert found.detail == "sequences are padded to the maximum length" and asked.total() == 2
    shown = row(audited, "padding", {"train.py": code(copies="\n".join([calls[0], *calls[2:]]))})
    assert shown.detail == "sequences are padded to the maximum length (64 tokens)"
    assert asked.total() == 2 + len(shown.evidence) == 6


def test_pages_and_shell_scripts_are_searched_once_for_all_scripts(
    audited: Auditor, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = "Trained on eight V100 GPUs: `sh tools/dist.sh`\n"
    shell = "python train_a.py --steps 9\npython train_b.py --steps 9\n"
    scripts = {f"train_{name}.py": train(workers="") for name in "abc"}
    gpus = count(monkeypatch, documented, "_gpu", 1)
    shells = count(monkeypatch, documented, "_names_shell", 1)
    audit = audited({**scripts, "README.md": page, "tools/dist.sh": shell})
    assert len(audit.entries) == 3
    assert all("V100" in str(entry.obstacles) for entry in audit.entries)
    assert gpus[page] == 2 and shells["tools/dist.sh"] == 1  # two patterns


def test_what_makes_an_optimizer_is_asked_once_of_a_call(
    audited: Auditor, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = count(monkeypatch, trained, "is_of_torch", 0)
    shared = "import torch\n\ndef make(net):\n    return torch.optim.Adamax(net.parameters())\n"
    script = train(imports="from shared import make", workers="").replace(
        "torch.optim.SGD(model.parameters(), lr=0.1)", "make(model)"
    )
    audit = audited({"train_a.py": script, "train_b.py": script, "shared.py": shared})
    assert len(audit.entries) == 2 and asked["torch.optim.Adamax"] == 1


def test_where_a_function_is_bound_is_looked_for_once_for_all_its_parameters(
    audited: Auditor, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = count(monkeypatch, calling, "_partials", 1)
    script = train(workers=", num_workers=workers, pin_memory=pinned")
    audited({"train.py": script.replace("def main(paths):", "def main(paths, workers=4, pinned=True):")})
    assert list(asked.values()) == [1]
