"""What a rule costs grows about linearly with the file: with 16 times the lines, at most 24 times the visited nodes."""

from __future__ import annotations

import pytest

from ptopt.rules import rules
from ptopt.rules.base import Rule
from ptopt.rules.engine import run
from ptopt.source.file import SourceFile
from ptopt.source.work import limited
from ptopt.syntax import ParseError
from tests import hostile

_SHORT, _LONG = 500, 8_000
_MOST = 24 / 16
_PLENTY = 1 << 60
_FLOOR = 20_000  # nodes; below that what is done once for a file decides


def _visited(rule: Rule, text: str) -> int:
    file = SourceFile.parse("train.py", text.encode())
    with limited(_PLENTY) as account:
        run(file, [rule])
    return account.spent


def _growth(rule: Rule, shape: str, example: str) -> float:
    """Visited nodes a line of the long program over those of the short one."""
    make = hostile.SHAPES[shape]
    short, long = make(example, _SHORT), make(example, _LONG)
    few = _visited(rule, short)
    while True:
        try:
            many = _visited(rule, long)
            break
        except ParseError:  # too many words to be read
            long = make(example, long.count("\n") // 2)
    return max(many, _FLOOR) / max(few, _FLOOR) / (long.count("\n") / short.count("\n"))


@pytest.mark.slow
@pytest.mark.parametrize("shape", hostile.SHAPES)
@pytest.mark.parametrize("rule", rules(), ids=lambda rule: rule.name)
def test_work_grows_with_the_lines(rule: Rule, shape: str) -> None:
    assert _growth(rule, shape, hostile.examples(rule)[0]) <= _MOST
