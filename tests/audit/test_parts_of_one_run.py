"""A measure of which a run has a part, and conditions of advice that the code decides."""

from __future__ import annotations

import pytest

from ptopt.audit.values import Audit, Gap, Level, Measure, State
from tests.audit.conftest import Auditor


def row(audit: Audit, key: str) -> Measure:
    (entry,) = audit.entries
    return next(measure for measure in entry.measures if measure.key == key)


def gap(audit: Audit, key: str) -> Gap:
    return next(gap for gap in audit.gaps if gap.key == key)


TRAIN = """\
import torch
from net import Net

model = Net().cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for x in torch.utils.data.DataLoader(torch.randn(99, 8, 64), batch_size=9):
    loss = model(x.cuda()).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""
ATTENDS = """\
from torch import nn

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.own = nn.MultiheadAttention(64, 4)
        self.cross = nn.MultiheadAttention(64, 4)

    def forward(self, x, need_weights=False):
        x = self.own(x, x, x{own})[0]
        return self.cross(x, x, x{cross})[0]
"""


@pytest.mark.parametrize(
    ("own", "cross", "state", "said"),
    [
        ("", "", State.OFF, "computes its weights: no fused kernel"),
        ("", ", need_weights=need_weights", State.OFF, "in 1 of 2 calls, which take no fused kernel; 1 may give them up"),
        ("", ", need_weights=False", State.OFF, "in 1 of 2 calls, which take no fused kernel; 1 gives them up: SDPA"),
        (", need_weights=False", ", need_weights=need_weights", State.UNKNOWN, "where it is called with"),
        (", need_weights=False", ", need_weights=False", State.ON, "without its weights: SDPA"),
    ],
)  # fmt: skip
def test_each_call_of_an_attention_layer_counts(
    audited: Auditor, own: str, cross: str, state: State, said: str
) -> None:
    audit = audited({"train.py": TRAIN, "net.py": ATTENDS.format(own=own, cross=cross)})
    found = row(audit, "attention")
    assert found.state is state and said in found.detail


def test_the_layer_is_not_fused_before_torch_2(audited: Auditor) -> None:
    net = ATTENDS.format(own=", need_weights=False", cross=", need_weights=False")
    found = row(audited({"train.py": TRAIN, "net.py": net, "requirements.txt": "torch==1.10.2"}), "attention")
    assert found.state is State.OFF and "torch has SDPA since 2.0" in found.detail


def test_attention_in_part_is_advised_for_the_calls_that_lack_it(audited: Auditor) -> None:
    audit = audited({"train.py": TRAIN, "net.py": ATTENDS.format(own="", cross=", need_weights=False")})
    found = gap(audit, "attention")
    assert "with `need_weights=False`" in found.action and found.level is Level.LOW
    assert [place.line for place in found.evidence] == [10] and not found.impact


READS = """\
from torch import nn

class Base(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 3, 3)

class Net(Base):
    def forward(self, x):
        {reads}
        return self.conv(x)
"""


@pytest.mark.parametrize(
    ("reads", "said", "varies"),
    [
        ("counts = [n.item() for n in x]; most = max(counts); x = x[:, :most]", True, True),
        ("self.seen = x.max().item()", True, False),
        ("if self.logs: self.seen = x.max().item()", False, False),
        ("x = x[:, :3]", False, False),
    ],
)
def test_a_network_that_reads_values_is_compiled_in_parts(
    audited: Auditor, reads: str, said: bool, varies: bool
) -> None:
    audit = audited({"train.py": TRAIN, "net.py": READS.format(reads=reads)})
    assert ("ends the graph" in row(audit, "compile").detail) is said
    found = gap(audit, "compile")
    assert ("wrap its parts that read none" in found.action) is said
    assert ("Shapes vary" in found.action) is varies
    assert ("breaks the graph" in found.wrong_if) is not said
    assert ("shapes change" in found.wrong_if) is not varies
    assert (found.level is Level.LOW) is said and bool(found.impact) is not said


STAGES = """\
import hydra
import torch
from torch import nn

@hydra.main(config_path="conf", config_name="train")
def main(cfg):
    for stage in ["first", "second"]:
        run(cfg[stage])

def run(part):
    net = nn.Sequential(nn.Conv2d(3, 3, 3), nn.Linear(7, 7)).cuda()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    for x in torch.utils.data.DataLoader(torch.randn(99, 3, 9, 9), batch_size=9):
        with torch.autocast("cuda", enabled=part.amp):
            loss = net(x.cuda()).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

main()
"""


def test_two_stages_of_one_run_are_no_two_configurations(audited: Auditor) -> None:
    conf = "batch_size: 9\nfirst:\n  amp: false\nsecond:\n  amp: true\n"
    audit = audited({"train.py": STAGES, "conf/train.yaml": conf})
    found = row(audit, "precision")
    assert found.state is State.UNKNOWN
    assert "differs between the parts of conf/train.yaml (False at line 3, True at line 5)" in found.detail
    assert gap(audit, "tf32").level is Level.LOW  # a part of the run is in float32
    advice = gap(audit, "channels_last")
    assert "only a part of the run uses" in advice.action and "float32" not in advice.wrong_if
    assert "which need four dimensions" in advice.action


TABLE = """\
import torch

class Scale:
    def __init__(self):
        self.mean = torch.tensor([0.5, 0.4, 0.3])

    def __call__(self, x):
        return x - self.mean.to(x.device)
"""


@pytest.mark.parametrize(("runs", "planned"), [(True, True), (False, False)])
def test_the_plan_is_of_code_that_a_training_runs(audited: Auditor, runs: bool, planned: bool) -> None:
    train = TRAIN.replace("x.cuda()", "scale(x.cuda())" if runs else "x.cuda()")
    train = train.replace("model = ", "scale = Scale()\nmodel = " if runs else "model = ")
    head = "from tables import Scale\n" if runs else ""
    net = "from torch import nn\n\nclass Net(nn.Linear):\n    def __init__(self):\n        super().__init__(64, 64)\n"
    audit = audited({"train.py": head + train, "net.py": net, "tables.py": TABLE})
    (found,) = (each for each in audit.findings if each.finding.name == "table-copied-every-call")
    steps = [step.title for phase in audit.plan for step in phase.steps]
    assert any("table-copied-every-call" in title for title in steps) is planned
    assert bool(found.finding.impact) is planned


def test_workers_that_the_script_divides_among_processes(audited: Auditor) -> None:
    train = TRAIN.replace("model = ", "cfg.workers //= gpus()\nmodel = ").replace(
        "batch_size=9", "batch_size=9, num_workers=cfg.workers"
    )
    parser = (
        "import argparse\nparser = argparse.ArgumentParser()\n"
        "parser.add_argument('--workers', type=int, default=16)\ncfg = parser.parse_args()\n"
    )
    net = "from torch import nn\n\nclass Net(nn.Linear):\n    pass\n"
    found = row(audited({"train.py": parser + train, "net.py": net}), "workers")
    assert found.detail == "`num_workers` is 16 (default of `--workers`), before `cfg.workers //= gpus()`"
    assert found.state is State.ON and len(found.evidence) == 2


SAVES = """\
import torch
from net import Net

class Trainer:
    def __init__(self):
        self.net = Net()
        self.optimizer = torch.optim.SGD(self.net.parameters(), lr=0.1)

    def fit(self, loader):
        for step, x in enumerate(loader):
            self.optimizer.zero_grad()
            self.net(x).mean().backward()
            self.optimizer.step()
            if step % 5000 == 0:
                self.save(step)
            copy = step > 90000
            if step % (1000 if copy else 9000) == 0:
                self.save(step, copy=copy)

    def save(self, step, copy=False):
        if copy:
            torch.save(self.net.state_dict(), f"{step}.pth")
        torch.save(self.net.state_dict(), "last.pth")

if __name__ == "__main__":
    trainer = Trainer()
    trainer.fit(torch.utils.data.DataLoader(torch.randn(99, 64)))
"""


def test_a_copy_is_saved_as_often_as_the_calls_that_ask_for_one(audited: Auditor) -> None:
    net = "from torch import nn\n\nclass Net(nn.Linear):\n    pass\n"
    ways = row(audited({"train.py": SAVES, "net.py": net}), "saving").detail.removesuffix(", synchronous")
    copies = [way for way in ways.split("; ") if way.endswith("if `copy`")]
    assert len(copies) == 1 and "5000" not in copies[0] and "every 5000 steps" in ways
