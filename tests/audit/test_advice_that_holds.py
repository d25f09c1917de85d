"""What is advised holds of the code: conditions under which advice is wrong, and which the code decides, are decided."""

from __future__ import annotations

import dataclasses

import pytest

from ptopt.audit.plan import plan
from ptopt.audit.values import Audit, Measure, State
from ptopt.findings import Fix, Safety
from tests.audit.conftest import Auditor


def row(audit: Audit, key: str) -> Measure:
    (entry,) = audit.entries
    return next(measure for measure in entry.measures if measure.key == key)


def advised(audit: Audit) -> set[str]:
    return {gap.key for gap in audit.gaps}


LIGHTNING = """\
import torch
import lightning as L
from torch import nn


class Model(L.LightningModule):
    def __init__(self):
        super().__init__()
        self.layer = nn.TransformerEncoderLayer(512, 8)

    def training_step(self, batch, index):
        return self.layer(batch).mean()

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters(), lr=1e-3)


trainer = L.Trainer({arguments})
trainer.fit(Model(), torch.utils.data.DataLoader(torch.randn(100, 10, 512), num_workers=4))
"""


ITEMS = """\
import torch


def main(model, loader, optimizer):
    model = model.cuda()
    for images, labels in loader:
        weight = torch.tensor([1.0, 2.0]).cuda()
        loss = (model(images.cuda()) * weight).sum()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


main(torch.nn.Linear(2, 2), torch.utils.data.DataLoader(range(9)), None)
"""


@pytest.mark.parametrize(
    ("arguments", "requirement", "state"),
    [
        ('precision="bf16", gradient_clip_val=1.0', "lightning==2.2.1", State.NOT_APPLICABLE),
        ('precision="16-mixed", gradient_clip_val=1.0', "lightning>=2.0", State.NOT_APPLICABLE),
        ('precision="bf16-true", gradient_clip_val=1.0', "lightning==2.2.1", State.OFF),
        ('precision="bf16-mixed"', "lightning==2.2.1", State.OFF),
        ('precision="bf16-mixed", gradient_clip_val=0.0', "lightning==2.2.1", State.OFF),
        ("gradient_clip_val=1.0", "lightning==2.2.1", State.OFF),
        ('precision="bf16", gradient_clip_val=1.0', "pytorch-lightning==1.7.0", State.OFF),
    ],
)
def test_lightning_refuses_a_fused_optimizer_where_it_clips(
    audited: Auditor, arguments: str, requirement: str, state: State
) -> None:
    """Its AMP plugin raises since 1.8.1, with bfloat16, too."""
    audit = audited(
        {"train.py": LIGHTNING.replace("{arguments}", arguments), "requirements.txt": requirement}
    )
    found = row(audit, "fused_optimizer")
    assert found.state is state
    assert ("fused_optimizer" in advised(audit)) is (state is State.OFF)
    said = " ".join(step.title + step.command for phase in audit.plan for step in phase.steps)
    if state is State.NOT_APPLICABLE:
        assert "raises" in found.detail and [place.line for place in found.evidence] == [15, 18]
        assert "fused" not in said and "PTO701" not in said
        assert not any(each.finding.rule == "PTO701" for each in audit.findings)


def test_the_command_of_the_plan_selects_the_rule_of_the_fix(audited: Auditor) -> None:
    """A comment may carry the fix of another rule on its lines: `ptopt fix` applies it where that one is selected."""
    audit = audited({"train.py": ITEMS})
    each = audit.findings[0]
    finding = dataclasses.replace(each.finding, fix=Fix(Safety.UNSAFE, ()), fix_rule="PTO999")
    of_another = dataclasses.replace(each, finding=finding)
    (command,) = (step.command for phase in plan((), (of_another,)) for step in phase.steps)
    assert "--select PTO999" in command and each.finding.rule not in command
