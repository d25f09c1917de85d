"""What a fix may take away."""

from __future__ import annotations

import ast

import pytest

from ptopt.model.deletions import DELETABLE, only_deletes, takes_away
from ptopt.rules import rules

LOOP = """\
for x in loader:
    loss = model(x)
    total += loss.item()
    if step % 10 == 0:
        print(total)
"""


@pytest.mark.parametrize(
    ("old", "new", "deletes"),
    [
        ("    total += loss.item()\n", "", True),
        ("    total += loss.item()\n", "    pass\n", True),
        ("    total += loss.item()\n", "    # slow\n\n", True),
        ("        print(total)\n", "        pass\n", True),
        (
            "    if step % 10 == 0:\n        print(total)\n",
            "    print(total)\n",
            True,
        ),  # the header of a block
        ("    total += loss.item()\n", "    total += loss.detach()\n", False),
        ("    total += loss.item()\n", "    total += loss.item()  # slow\n", False),
        ("    loss = model(x)\n", "    loss = model(x)\n    x = None\n", False),
        ("step % 10", "step", False),
    ],
)
def test_statements_that_are_gone_and_nothing_else(old: str, new: str, deletes: bool) -> None:
    before, after = ast.parse(LOOP), ast.parse(LOOP.replace(old, new))
    assert only_deletes(before, after) is deletes
    assert takes_away("item-every-step", before, after) is deletes
    assert not takes_away("synchronize-every-step", before, after)


def test_the_rules_that_may_delete_are_rules() -> None:
    assert {rule.name for rule in rules()} >= DELETABLE
