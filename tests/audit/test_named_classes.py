"""Classes that a run makes by their names, and those that it only compares."""

from __future__ import annotations

import textwrap

from ptopt.audit.values import Measure, State
from tests.audit.conftest import Auditor

TRAIN = textwrap.dedent("""
    import torch
    import yaml
    from net import parse

    def main():
        model = parse(yaml.safe_load(open("net.yaml"))).cuda()
        optimizer = torch.optim.Adam(model.parameters())
        for epoch in range(9):
            for x, y in loader:
                loss = model(x).mean()
                loss.backward()
                optimizer.step()

    if __name__ == "__main__":
        main()
""")
NET = textwrap.dedent("""
    from layers import *

    def parse(rows):
        layers = []
        for name, args in rows["backbone"]:
            kind = eval(name)
            if kind in [Conv, Attending]:
                args = [rows["width"], *args]
            if kind is Attending or kind == Other:
                args = args[:1]
            layers.append(kind(*args))
        return nn.Sequential(*layers)
""")
LAYERS = textwrap.dedent("""
    import torch.nn as nn

    class Conv(nn.Module):
        def __init__(self, width):
            super().__init__()
            self.conv = nn.Conv2d(3, width, 3)

        def forward(self, x):
            return self.conv(x)

    class Attending(nn.Module):
        def __init__(self, width):
            super().__init__()
            self.attend = nn.MultiheadAttention(width, 8)

        def forward(self, x):
            return self.attend(x, x, x)[0]

    class Other(Attending):
        pass
""")


def rows(audited: Auditor, **texts: str) -> dict[str, Measure]:
    files = {"train.py": TRAIN, "net.py": NET, "layers.py": LAYERS}
    (entry,) = audited({**files, **{name.replace("__", "."): text for name, text in texts.items()}}).entries
    return {row.key: row for row in entry.measures}


def test_a_class_that_no_configuration_names_is_not_made(audited: Auditor) -> None:
    found = rows(audited, net__yaml="width: 64\nbackbone:\n  - [Conv, [3]]\n")
    assert (found["attention"].state, found["attention"].detail) == (
        State.NOT_APPLICABLE,
        "no attention in the code that runs",
    )
    assert found["channels_last"].state is State.OFF


def test_a_class_that_a_configuration_or_a_text_of_the_code_names_is_made(audited: Auditor) -> None:
    named = rows(audited, net__yaml="backbone:\n  - [Conv, [3]]\n  - [Attending, [64]]\n")
    assert "nn.MultiheadAttention" in named["attention"].detail
    quoted = rows(audited, train__py=TRAIN.replace('yaml.safe_load(open("net.yaml"))', '["Attending"]'))
    assert "nn.MultiheadAttention" in quoted["attention"].detail
    assert quoted["channels_last"].state is State.NOT_APPLICABLE


def test_where_nothing_names_one_any_may_be_made(audited: Auditor) -> None:
    found = rows(audited)
    assert "nn.MultiheadAttention" in found["attention"].detail
    assert found["channels_last"].state is State.OFF
