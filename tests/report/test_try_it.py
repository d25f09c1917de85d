"""The file that a rule's page prints is reported by the command beside it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from ptopt.report.rulelist import page
from ptopt.rules import all_rules, find_rule
from ptopt.rules.base import ModelRule, Rule
from tests.cli.command import findings, run

_FILE = re.compile(r"`ptopt (check (\S+) [^`]+)` reports it in this file, [^\n]*\n\n```\w+\n(.*?)```", re.S)
_PINS = re.compile(r"beside a `requirements.txt` with `([^`]+)`")


@pytest.mark.parametrize("rule", all_rules(), ids=lambda rule: rule.id)
def test_what_the_page_prints_is_reported(
    rule: type[Rule], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = page(rule).partition("## Try it")[2]
    printed = _FILE.search(text)
    if issubclass(rule, ModelRule):
        assert printed is None and "--model-server URL" in text
        return
    if rule.family == "regressions":
        assert printed is None and "`ptopt review` reports it" in text
        return
    assert printed is not None
    pins = _PINS.search(text)
    if pins is not None:
        (tmp_path / "requirements.txt").write_text(f"{pins[1]}\n")
    file = tmp_path / printed[2]
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(printed[3])
    monkeypatch.chdir(tmp_path)
    assert {found[0] for found in findings(run(*printed[1].split(), "--format", "json"))} == {rule.id}


def test_a_file_has_the_imports_that_it_needs() -> None:
    rule = find_rule("item-every-step")
    assert rule is not None
    assert "```python\nimport torch\nimport torch.nn.functional as F\n\nfor x, y in loader:\n" in page(rule)
