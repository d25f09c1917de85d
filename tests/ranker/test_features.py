"""What is known of a hit, as numbers."""

from __future__ import annotations

import textwrap

import pytest

from ptopt.ranker.features import features
from ptopt.rules import find_rule
from ptopt.rules.engine import run
from ptopt.source.file import SourceFile
from ptopt.source.repository import Repository

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


def of_first_hit(
    code: str, rule: str, path: str = "train.py", around: dict[str, str] | None = None
) -> dict[str, float]:
    data = textwrap.dedent(code).encode()
    others = {name: textwrap.dedent(text).encode() for name, text in (around or {}).items()}
    file = SourceFile.parse(path, data, repository=Repository(others))
    found = find_rule(rule)
    assert found is not None
    hits = run(file, [found()])
    assert hits
    return features(hits[0], file, len(hits))


def test_a_hit_in_a_training_loop() -> None:
    known = of_first_hit(TRAIN, "item-every-step")
    assert known["often:step"] == known["often:in training"] == known["in a loop"] == 1.0
    assert known["use:reported"] == 1.0
    assert known["path:train"] == known["symbol:train"] == 1.0
    assert known["other waits"] > 0 and "waits:none other" not in known


def test_how_wide_the_network_is() -> None:
    small = "import torch\nnet = torch.nn.Linear(400, 300)\n" + textwrap.dedent(TRAIN)
    known = of_first_hit(small, "item-every-step")
    assert known["layers:narrow"] == 1.0
    wide = of_first_hit(small.replace("400", "4096"), "item-every-step")
    assert wide["layers:widest"] > known["layers:widest"] and "layers:narrow" not in wide
    assert "layers:widest" not in of_first_hit(TRAIN, "item-every-step")


def test_how_wide_it_is_by_default() -> None:
    option = 'p.add_argument("--hidden-dim", type=int, default=1024)\nrun(dim = 64)\n'
    known = of_first_hit(option + textwrap.dedent(TRAIN), "item-every-step")
    assert known["layers:widest by name"] > 6 and "layers:narrow by name" not in known
    small = "p = run\nnet = Net(dim = 64, depth = 2)\nbatch_size = 16\n" + textwrap.dedent(TRAIN)
    assert of_first_hit(small, "item-every-step")["layers:narrow by name"] == 1.0
    assert of_first_hit(small, "item-every-step")["layers:batch"] > 2


def test_code_that_cannot_run() -> None:
    assert (
        of_first_hit("from lib import *\n" + textwrap.dedent(TRAIN), "item-every-step").get(
            "file:undefined names", 0
        )
        == 0
    )
    bound = "\n".join(
        f"{name} = None" for name in ("model", "loader", "optimizer", "F", "device", "criterion")
    )
    whole = bound + "\n" + textwrap.dedent(TRAIN)
    known, broken = (of_first_hit(text, "item-every-step") for text in (whole, whole + "\nprint(kwargs)\n"))
    assert broken["file:undefined names"] == 1.0
    assert known.get("file:undefined names", 0) == 0, known


SIZED = """
    import torch

    class Net(torch.nn.Module):
        def forward(self, x: torch.Tensor, lengths: torch.Tensor):
            return x + torch.arange({size}).to(x.device)
"""


def test_a_wait_in_the_finding_itself() -> None:
    waits = of_first_hit(SIZED.format(size="lengths.max().item()"), "factory-then-move")
    assert waits["waits:in the statement"] == 1.0
    assert "waits:in the statement" not in of_first_hit(SIZED.format(size="8"), "factory-then-move")


def test_nothing_that_is_zero_is_kept() -> None:
    assert 0.0 not in of_first_hit(TRAIN, "item-every-step").values()


def test_the_path_tells_what_the_code_is_for() -> None:
    known = of_first_hit(TRAIN, "item-every-step", "tests/helpers/run.py")
    assert known["kind:tests"] == 1.0
    assert "path:train" not in known


LOSS = """
    import torch

    class PairLoss(torch.nn.Module):
        def __init__(self, margin=0.2, mine=False):
            super().__init__()
            self.margin = margin
            self.mine = mine

        def pair_distances(self, x):
            if x is None:
                return None
            if self.mine:
                return x + torch.zeros(x.shape).to(x.device)
            return x
"""
TRAINER = """
    import torch
    from losses import PairLoss

    def train(model, loader, optimizer, criterion):
        for x in loader:
            loss = criterion.pair_distances(model(x.cuda())).mean()
            loss.backward()
            optimizer.step()
            print(loss.item())
"""


def test_what_an_earlier_exit_and_an_option_say() -> None:
    known = of_first_hit(LOSS, "factory-then-move", "losses.py")
    assert known["exit:none"] == 1.0
    assert known["guard:off by default"] == 1.0
    assert "guard:on by default" not in known


def test_waits_of_the_callers_in_other_files() -> None:
    known = of_first_hit(LOSS, "factory-then-move", "losses.py", {"train.py": TRAINER})
    assert known["waits:in every caller"] == 1.0
    quiet = TRAINER.replace("print(loss.item())", "pass")
    assert "waits:in a caller" not in of_first_hit(
        LOSS, "factory-then-move", "losses.py", {"train.py": quiet}
    )


def test_a_class_that_nothing_mentions() -> None:
    assert of_first_hit(LOSS, "factory-then-move", "losses.py")["mentioned:nowhere else"] == 1.0
    around = {"train.py": TRAINER}
    assert "mentioned:nowhere else" not in of_first_hit(LOSS, "factory-then-move", "losses.py", around)


MOVED = """
    import torch
    from torch import nn

    class Attention(nn.Module):
        def forward(self, x, heads):
            {made}
            return x

    class Model(nn.Module):
        def __init__(self):
            {built}
"""


def of_made(made: str, built: str = "pass", around: dict[str, str] | None = None) -> dict[str, float]:
    return of_first_hit(MOVED.format(made=made, built=built), "factory-then-move", "layer.py", around)


@pytest.mark.parametrize(
    ("kept", "expected"),
    [
        ("[0] * heads", "made:values"),
        ("[i for i in range(heads)]", "made:values"),
        ("list(heads)", "made:values"),
        ("0.5", "made:one number"),
        ("heads", "made:one number"),
    ],
)
def test_an_attribute_that_holds_a_list_is_no_single_number(kept: str, expected: str) -> None:
    found = of_first_hit(
        f"""
        import torch
        from torch import nn

        class Attention(nn.Module):
            def __init__(self, heads):
                super().__init__()
                self.counts = {kept}

            def forward(self, x):
                return x / torch.tensor(self.counts).to(x.device)
        """,
        "constant-rebuilt-every-step",
    )
    assert {name for name in found if name.startswith("made:")} == {expected}


def test_how_large_a_made_tensor_is() -> None:
    table = of_made("t = torch.zeros(batch_size, seq_len, vocab).to(x.device)")
    assert table["made:wide dimensions"] == 2.0 and table["made:of batches"] == 1.0
    few = of_made("t = torch.zeros(2, 2).to(x.device)")
    assert few["made:known size"] > 0 and "made:open dimensions" not in few
    assert of_made("t = torch.ones(n, n).to(x.device)")["made:square"] == 1.0
    assert of_made("t = torch.zeros(x.shape).to(x.device)")["made:like another"] == 1.0
    assert of_made("t = torch.arange(heads).to(x.device)")["made:range"] == 1.0


def test_a_layer_of_a_network() -> None:
    made = "t = torch.zeros(heads).to(x.device)"
    assert "class:part of a module" not in of_made(made)
    assert of_made(made, "self.first = Attention()")["class:part of a module"] == 1.0
    assert "class:one of several" not in of_made(made, "self.first = Attention()")
    layers = "self.layers = nn.ModuleList(Attention() for _ in range(8))"
    assert of_made(made, layers)["class:one of several"] == 1.0
    model = "from layer import Attention\n\nclass Decoder:\n    def __init__(self):\n        self.a = Attention()\n"
    assert of_made(made, around={"model.py": model})["class:part of a module elsewhere"] == 1.0


def test_a_training_loop_elsewhere_that_reads_its_loss() -> None:
    made = "t = torch.zeros(heads).to(x.device)"
    reads = "def train(bar, loss):\n    loss.backward()\n    bar.set_postfix(loss=loss.item())\n"
    known = of_made(made, around={"train.py": reads, "model.py": "import layer\n"})
    assert known["file:steps are read"] == 1.0 and "file:named nowhere else" not in known
    quiet = of_made(made, around={"train.py": reads.replace("loss.backward()", "pass")})
    assert "file:steps are read" not in quiet and quiet["file:named nowhere else"] == 1.0
