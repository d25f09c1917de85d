"""What the rule about dropped copies leaves alone."""

from __future__ import annotations

import textwrap

import pytest

from ptopt.rules import rules
from ptopt.rules.base import Problem
from ptopt.rules.engine import run
from ptopt.source.file import SourceFile

_RULES = {rule.name: rule for rule in rules()}
_IMPORTS = "import cv2\nimport torch\nfrom torch import nn\nimport torch.nn.functional as F\n\n"


def _problems(name: str, code: str) -> list[Problem]:
    file = SourceFile.parse("model.py", (_IMPORTS + textwrap.dedent(code)).encode())
    return [hit.problem for hit in run(file, [_RULES[name]])]


@pytest.mark.parametrize(
    "line",
    ["batch.to(device)", "model.to(device)", "x.to(device, inplace=True)", "self.to(device)", "y.to(device)"],
)
def test_what_may_work_in_place_is_left_alone(line: str) -> None:
    code = f"def forward(self, x: torch.Tensor, y, batch, model, device):\n    {line}\n    return x, y\n"
    assert _problems("copy-dropped", code) == []


def test_an_element_of_a_loop_gets_no_fix() -> None:
    code = "def forward(self, xs: list[torch.Tensor], device):\n    for x in xs:\n        x.unsqueeze(0)\n        x.to(device)\n"
    (problem,) = _problems("copy-dropped", code)
    assert problem.fix is None
