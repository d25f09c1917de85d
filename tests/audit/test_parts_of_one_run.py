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


def test_attention_in_part_is_advised_for_the_calls_that_lack_it(audited: Auditor) -> None:
    audit = audited({"train.py": TRAIN, "net.py": ATTENDS.format(own="", cross=", need_weights=False")})
    found = gap(audit, "attention")
    assert "with `need_weights=False`" in found.action and found.level is Level.LOW
    assert [place.line for place in found.evidence] == [10] and not found.impact
