from __future__ import annotations

import dataclasses
import re
import textwrap
from pathlib import Path

import pytest

from ptopt.change import whole_file
from ptopt.config import Config
from ptopt.project.facts import NO_FACTS
from ptopt.prove.extract import compared, pair_of
from ptopt.prove.reasons import Reason, RefusedError
from ptopt.review import review_files


def _code(text: str) -> str:
    return textwrap.dedent(text)


BEFORE = _code('''
    import math
    import os
    import torch
    import torch.nn.functional as F
    from torch import Tensor

    LIMIT: int = 3
    NAMES = ["a"]


    def half(x):
        return x / 2


    def f(x: Tensor, n: int = LIMIT):
        """Text."""
        return half(x.clone()) * math.pi + F.relu(x) * LIMIT


    def other():
        return os.getcwd(), NAMES
''')
AFTER = BEFORE.replace("x.clone()", "x")


def test_a_side_holds_what_the_function_reads_and_no_more() -> None:
    pair = compared(BEFORE, AFTER)

    assert (pair.name, pair.symbol) == ("f", "f")
    assert pair.before.imports == {"math": "math", "F": "torch.nn.functional"}
    assert "LIMIT = 3" in pair.before.source and "def half" in pair.before.source
    assert "other" not in pair.before.source and "NAMES" not in pair.before.source
    assert "x.clone()" in pair.before.source and "x.clone()" not in pair.after.source
    assert [p.name for p in pair.parameters] == ["x", "n"]


def test_a_finding_with_a_fix_makes_a_pair() -> None:
    text = "import torch\n\n\ndef f(x):\n    return torch.log(torch.softmax(x, dim=-1))\n"
    found = review_files(
        [whole_file("f.py", text.encode())],
        config=Config(**{"min-confidence": 0.0}),
        facts=NO_FACTS,
        limit_to_change=False,
    ).findings[0]

    assert "log_softmax" in pair_of(found, text).after.source
    with pytest.raises(RefusedError) as refused:
        pair_of(dataclasses.replace(found, fix=None), text)
    assert refused.value.reason is Reason.NO_FIX


@pytest.mark.parametrize(
    ("before", "after", "reason"),
    [
        ("x = 1\n", "x = 2\n", Reason.NOT_ONE_FUNCTION),
        ("def f(x):\n    return 1\n\n\ndef g(x):\n    return 1\n", "def f(x):\n    return 2\n\n\ndef g(x):\n    return 2\n",
         Reason.NOT_ONE_FUNCTION),
        ("def f(x):\n    return 1\n", "def f(x, y):\n    return 2\n", Reason.NOT_ONE_FUNCTION),
        ("def f(x):\n    return 1\n", "K = 1\n\n\ndef f(x):\n    return 2\n", Reason.NOT_ONE_FUNCTION),
        ("class A:\n    def f(self, x):\n        return self.y\n", "class A:\n    def f(self, x):\n        return self.z\n",
         Reason.NEEDS_OBJECT),
        ("def f(x):\n    return CONFIG\n", "def f(x):\n    return CONFIG + 1\n", Reason.OUTSIDE_NAME),
        ("import os\n\n\ndef f(x):\n    return os.x\n", "import os\n\n\ndef f(x):\n    return os.y\n", Reason.OUTSIDE_NAME),
        ("N = 1\nN = 2\n\n\ndef f(x):\n    return N\n", "N = 1\nN = 2\n\n\ndef f(x):\n    return -N\n", Reason.OUTSIDE_NAME),
        ("def f(x):\n    print(x)\n", "def f(x):\n    print(-x)\n", Reason.INPUT_OUTPUT),
        ("def f(x):\n    return x.cuda()\n", "def f(x):\n    return -x.cuda()\n", Reason.DEVICE),
        ("def f(*x):\n    return 1\n", "def f(*x):\n    return 2\n", Reason.PARAMETERS),
        ("def f(x: dict):\n    return 1\n", "def f(x: dict):\n    return 2\n", Reason.PARAMETERS),
    ],
)  # fmt: skip
def test_what_is_no_pure_function_is_refused(before: str, after: str, reason: Reason) -> None:
    with pytest.raises(RefusedError) as refused:
        compared(before, after)
    assert refused.value.reason is reason
    assert refused.value.reason.text in str(refused.value)


@pytest.mark.parametrize("head", ["    @staticmethod\n    def f(x):", "    def f(self, x):"])
def test_a_method_that_reads_no_object_is_a_function(head: str) -> None:
    before = f"class A:\n{head}\n        return x.clone()\n"
    pair = compared(before, before.replace(".clone()", ""))
    assert (pair.name, pair.symbol, [p.name for p in pair.parameters]) == ("f", "A.f", ["x"])
    assert "self" not in pair.before.source and "staticmethod" not in pair.before.source


def test_an_import_that_the_fix_adds_is_no_other_change() -> None:
    before = "import torch\n\n\ndef f(x):\n    return torch.relu(x)\n"
    after = "import torch\nimport torch.nn.functional as F\n\n\ndef f(x):\n    return F.relu(x)\n"
    assert compared(before, after).after.imports == {"F": "torch.nn.functional"}


def test_the_page_lists_every_reason() -> None:
    page = (Path(__file__).resolve().parents[2] / "docs" / "prove.md").read_text(encoding="utf-8")
    listed = re.findall(r"^\| `([a-z-]+)` \| (.+) \|$", page, re.M)
    assert listed == [(reason.value, reason.text) for reason in Reason]
