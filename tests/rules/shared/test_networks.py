"""Whether a call runs the network that it is given, by functions of other files."""

from __future__ import annotations

import ast

import pytest

from ptopt.rules.shared.networks import runs_argument
from ptopt.source.file import SourceFile
from ptopt.source.repository import Repository

CODE = b"def evaluate(model, diffusion, x):\n    return diffusion.training_losses(model, x)\n"
BASE = (
    "import torch\nclass Diffusion:\n    def training_losses(self, net, x):\n        return net(x).mean()\n"
)
OVERRIDES = """
from base import Diffusion
class Spaced(Diffusion):
    def training_losses(self, net, x):
        return super().training_losses(self.wrapped(net), x)
"""


@pytest.mark.parametrize(
    ("around", "expected"),
    [
        ({}, None),
        ({"base.py": BASE}, True),
        ({"base.py": BASE, "spaced.py": OVERRIDES}, True),
        ({"spaced.py": OVERRIDES}, None),
        ({"base.py": BASE.replace("net(x).mean()", "x.mean()")}, False),
        ({"base.py": BASE.replace("    def", "    @torch.no_grad()\n    def")}, False),
        ({"base.py": BASE, "spaced.py": OVERRIDES.replace("    def", "    @torch.no_grad()\n    def").replace("from", "import torch\nfrom", 1)}, False),
        ({f"{n}.py": BASE for n in range(4)}, None),
    ],
)  # fmt: skip
def test_a_method_runs_the_network_that_it_is_given(around: dict[str, str], expected: bool | None) -> None:
    repository = Repository({path: text.encode() for path, text in around.items()})
    file = SourceFile.parse("train.py", CODE, repository=repository)
    (call,) = file.index.of_type(ast.Call)
    assert runs_argument(call, "model", file) is expected
