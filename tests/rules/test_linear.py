"""What a rule costs grows about linearly with the file: with 4 times the lines, at most 6 times the visited nodes."""

from __future__ import annotations

import pytest

from ptopt.rules import rules
from ptopt.rules.base import Rule
from ptopt.rules.engine import run
from ptopt.source.file import SourceFile
from ptopt.source.work import limited
from tests import hostile

_SHORT, _LONG = 150, 600
_MOST = 1.5
_PLENTY = 1 << 60
_FLOOR = 3_000  # nodes; below that what is done once for a file decides


def _visited(rule: Rule, text: str) -> int:
    file = SourceFile.parse("train.py", text.encode())
    with limited(_PLENTY) as account:
        run(file, [rule])
    return account.spent


def _growth(rule: Rule, shape: str, example: str) -> float:
    """Visited nodes a line of the long program over those of the short one."""
    make = hostile.SHAPES[shape]
    short, long = make(example, _SHORT), make(example, _LONG)
    visited = max(_visited(rule, long), _FLOOR) / max(_visited(rule, short), _FLOOR)
    return visited / (long.count("\n") / short.count("\n"))


@pytest.mark.slow
@pytest.mark.parametrize("rule", rules(), ids=lambda rule: rule.name)
def test_work_grows_with_the_lines(rule: Rule) -> None:
    example = hostile.examples(rule)[0]
    growth = {shape: _growth(rule, shape, example) for shape in hostile.SHAPES}
    assert max(growth.values()) <= _MOST, growth
