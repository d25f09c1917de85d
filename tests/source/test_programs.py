"""What one module needs bounds the versions of the programs that need it, and of no others."""

from __future__ import annotations

import pytest

from ptopt.rules import find_rule
from ptopt.rules.engine import run
from ptopt.source.file import SourceFile
from ptopt.source.repository import Repository

OLD = b"import math\nfrom torch._six import inf\n"
NETWORK = b"""\
import torch
from torch import nn


class Attention(nn.Module):
    def forward(self, q, k, v):
        attn = (q @ k.transpose(-2, -1)) * self.scale
        attn = attn.softmax(dim=-1)
        return attn @ v
"""
GUARDED = b"try:\n    from torch._six import inf\nexcept ImportError:\n    from math import inf\n"


def file_in(files: dict[str, bytes]) -> SourceFile:
    return SourceFile.parse(
        "net/attention.py", NETWORK, repository=Repository({**files, "net/attention.py": NETWORK})
    )


@pytest.mark.parametrize(
    ("files", "old"),
    [
        ({"util/misc.py": OLD, "main.py": b"import util.misc as misc\nfrom net.attention import Attention\n"}, True),
        ({"util/misc.py": OLD, "main.py": b"from util import misc\nfrom net import (\n    attention,\n)\n"}, True),
        (
            {
                "util/misc.py": OLD,
                "engine.py": b"from util.misc import norm\n",
                "net/build.py": b"from .attention import Attention\n",
                "main.py": b"import engine\nimport net.build\n",
            },
            True,
        ),
        # Another program, an import that a condition or a function holds, and one that needs nothing old.
        ({"util/misc.py": OLD, "old.py": b"import util.misc\n", "main.py": b"import net.attention\n"}, False),
        ({"util/misc.py": OLD, "main.py": b"import net.attention\nif True:\n    import util.misc\n"}, False),
        ({"util/misc.py": GUARDED, "main.py": b"import util.misc\nimport net.attention\n"}, False),
        ({"main.py": b"import net.attention\nfrom transformers import AutoModel\n"}, False),
        ({}, False),
    ],
)  # fmt: skip
def test_a_program_runs_with_what_all_of_its_modules_admit(files: dict[str, bytes], old: bool) -> None:
    file = file_in(files)
    assert file.facts.excludes("torch", "2.0") is old
    assert not file.own_facts.excludes("torch", "2.0")  # of the file alone
    rule = find_rule("attention-by-hand")
    assert rule is not None
    assert (run(file, [rule()]) == []) is old


def test_the_line_of_the_import_is_named() -> None:
    file = file_in({"util/misc.py": OLD, "main.py": b"import util.misc\nimport net.attention\n"})
    assert file.facts.span("torch") == "`torch._six` (util/misc.py:2), which exists up to torch 1.13.1"


def test_advice_leaves_out_what_the_program_lacks() -> None:
    """Rules word what they find by the same versions by which it is withheld."""
    loop = b"""\
import torch
from torch import nn


class Net(nn.Module):
    def forward(self, x: torch.Tensor, mask: torch.Tensor):
        total = 0.0
        for i in range(x.shape[0]):
            total = total + x[i][mask[i] == 1].mean()
        return total
"""
    rule = find_rule("slice-loop")
    assert rule is not None
    files = {"net.py": loop, "util/misc.py": OLD, "main.py": b"import util.misc\nimport net\n"}
    (hit,) = run(SourceFile.parse("net.py", loop, repository=Repository(files)), [rule()])
    assert "vmap" not in hit.problem.message and "to all of `x` at once" in hit.problem.message
    (hit,) = run(SourceFile.parse("net.py", loop, repository=Repository({"net.py": loop})), [rule()])
    assert "vmap" in hit.problem.message
