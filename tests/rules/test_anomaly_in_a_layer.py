"""Anomaly detection that a layer switches on is on in the runs that use the layer."""

from __future__ import annotations

from tests.rules.messages import messages

LAYER = """
    import torch
    from torch import nn

    class Mixer(nn.Module):
        def forward(self, x):
            torch.autograd.set_detect_anomaly(True)
            return x
"""


def test_a_switch_in_a_layer_names_the_layer() -> None:
    (said,) = messages("anomaly-detection-on", LAYER)
    assert "in every run with a `Mixer`, from its first call on: Python waits" in said
    (said,) = messages("anomaly-detection-on", LAYER.replace("def forward(self, x)", "def setup(self, x)"))
    assert "NaN, in every run: Python waits" in said
