"""Every rule is right about its own examples, and its fixes do what they say."""

from __future__ import annotations

import pytest

from ptopt.rules import all_rules, find_rule, rules
from ptopt.rules.base import HEADINGS, SURE, Invalid, Rule
from ptopt.rules.engine import Prefilter, run
from ptopt.rules.examples import PRELUDE, as_change, as_file, expected_lines
from ptopt.source.file import SourceFile
from ptopt.verify import apply_edits, verified

VALID = [pytest.param(r, code, id=f"{r.id}-{i}") for r in rules() for i, code in enumerate(r.VALID)]
INVALID = [pytest.param(r, case, id=f"{r.id}-{i}") for r in rules() for i, case in enumerate(r.INVALID)]


def _hits(rule: Rule, text: str, *, proposals: bool = False, file: SourceFile | None = None) -> list:
    """What is said; with `proposals`, what a rule only proposes to the ranker when it says nothing."""
    file = file or SourceFile.parse("example.py", text.encode(), rule.PROJECT)
    change = as_change("example.py", text)
    problems = [hit.problem for hit in run(file, Prefilter([rule])(text.encode()), change=change)]
    said = [p for p in problems if p.confidence >= SURE]
    return said or problems if proposals else said


@pytest.mark.parametrize(("rule", "code"), VALID)
def test_valid_code_is_left_alone(rule: Rule, code: str) -> None:
    assert [(p.node.lineno, p.message) for p in _hits(rule, as_file(code))] == []


@pytest.mark.parametrize(("rule", "case"), INVALID)
def test_invalid_code_is_reported_where_marked(rule: Rule, case: Invalid) -> None:
    expected = expected_lines(case.code)
    assert expected, "mark the expected lines with `# !`"
    found = [
        (p.span.start if p.span else p.node.lineno) for p in _hits(rule, as_file(case.code), proposals=True)
    ]
    assert sorted(set(found)) == expected


@pytest.mark.parametrize(("rule", "case"), INVALID)
def test_fix_gives_the_stated_code(rule: Rule, case: Invalid) -> None:
    text = as_file(case.code)
    file = SourceFile.parse("example.py", text.encode(), rule.PROJECT)
    problems = _hits(rule, text, proposals=True, file=file)
    before = len(run(file, [rule]))
    fixes = [fix for p in problems if (fix := verified(file, rule, p, before)) is not None]
    if case.fixed is None:
        assert fixes == []
        return
    assert len(fixes) == len(problems), "a fix of this rule does not pass its own verification"
    fixed = apply_edits(text, sorted({edit for fix in fixes for edit in fix.edits}))
    assert _without_prelude(fixed) == _without_prelude(as_file(case.fixed))
    assert _hits(rule, fixed) == []


def _without_prelude(text: str) -> str:
    """The code but for the usual imports, which a fix takes out when it leaves them unused."""
    usual = PRELUDE.split("\n")
    return "\n".join(line for line in text.split("\n") if line not in usual or not line).strip("\n")


@pytest.mark.parametrize("rule", all_rules(), ids=lambda r: r.id)
def test_rule_tells_its_whole_story(rule: type[Rule]) -> None:
    assert tuple(rule.sections()) == HEADINGS
    assert all(rule.sections().values())
    assert rule.summary().endswith(".")
    assert len(rule.VALID) >= 3 and len(rule.INVALID) >= 3
    assert rule.when_wrong and not rule.when_wrong.endswith(".")
    assert find_rule(rule.id) is find_rule(rule.name) is rule


def test_ids_and_names_are_unique() -> None:
    assert len({r.id for r in all_rules()}) == len({r.name for r in all_rules()}) == len(all_rules())
