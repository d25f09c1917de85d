"""What is known of a hit, as numbers."""

from __future__ import annotations

import textwrap

from ptopt.change import whole_file
from ptopt.ranker.features import features
from ptopt.rules import find_rule
from ptopt.rules.engine import run
from ptopt.source.file import SourceFile

TRAIN = """
    import torch

    def train(model, loader, optimizer, device):
        total = 0.0
        for x, y in loader:
            loss = torch.nn.functional.cross_entropy(model(x.to(device)), y.to(device))
            loss.backward()
            optimizer.step()
            total += loss.item()
            print(loss.max().item())
        return total
"""


def of_first_hit(code: str, rule: str, path: str = "train.py") -> dict[str, float]:
    data = textwrap.dedent(code).encode()
    file = SourceFile.parse(path, data)
    found = find_rule(rule)
    assert found is not None
    hits = run(file, [found()])
    assert hits
    return features(hits[0], file, whole_file(path, data), len(hits))


def test_a_hit_in_a_training_loop() -> None:
    known = of_first_hit(TRAIN, "item-every-step")
    assert known["often:step"] == known["often:in training"] == known["in a loop"] == 1.0
    assert known["use:reported"] == 1.0
    assert known["path:train"] == known["symbol:train"] == 1.0
    assert known["other waits"] > 0 and "waits:none other" not in known
    assert known["share of the file that is new"] == 1.0


def test_nothing_that_is_zero_is_kept() -> None:
    assert 0.0 not in of_first_hit(TRAIN, "item-every-step").values()


def test_the_path_tells_what_the_code_is_for() -> None:
    known = of_first_hit(TRAIN, "item-every-step", "tests/helpers/run.py")
    assert known["kind:tests"] == 1.0
    assert "path:train" not in known
