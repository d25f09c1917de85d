"""Every rule about configurations is right about its own examples, and its fixes do what they say."""

from __future__ import annotations

import pytest

from ptopt.config_proposals import seen_in, verified
from ptopt.configs.file import ConfigFile, load
from ptopt.configs.schema import known_keys
from ptopt.rules import config_rules
from ptopt.rules.base import Invalid
from ptopt.rules.configs import ConfigProblem, ConfigRule, SettingRule
from ptopt.rules.examples import config_path, marked_lines, plain
from ptopt.verify import apply_edits

VALID = [pytest.param(r, code, id=f"{r.id}-{i}") for r in config_rules() for i, code in enumerate(r.VALID)]
INVALID = [
    pytest.param(r, case, id=f"{r.id}-{i}") for r in config_rules() for i, case in enumerate(r.INVALID)
]


def _read(code: str) -> ConfigFile:
    found = load(config_path(code), plain(code).encode())
    assert isinstance(found, ConfigFile), found
    return found


def _problems(rule: ConfigRule, file: ConfigFile) -> list[ConfigProblem]:
    return [problem for _, problem in seen_in(file, [rule])]


@pytest.mark.parametrize(("rule", "code"), VALID)
def test_valid_configurations_are_left_alone(rule: ConfigRule, code: str) -> None:
    found = load(config_path(code), plain(code).encode())
    if isinstance(found, ConfigFile):  # others are of no known kind, which is what they show
        assert [problem.message for problem in _problems(rule, found)] == []


@pytest.mark.parametrize("rule", config_rules(), ids=lambda rule: rule.id)
def test_most_valid_examples_are_of_a_kind_that_the_rule_looks_at(rule: ConfigRule) -> None:
    read = [load(config_path(code), plain(code).encode()) for code in rule.VALID]
    assert sum(isinstance(file, ConfigFile) and not rule.kinds.isdisjoint(file.kinds) for file in read) >= 2


@pytest.mark.parametrize(("rule", "case"), INVALID)
def test_invalid_configurations_are_reported_where_marked(rule: ConfigRule, case: Invalid) -> None:
    file = _read(case.code)
    found = [file.span(problem.start, problem.end).start for problem in _problems(rule, file)]
    assert found == marked_lines(case.code) and found


@pytest.mark.parametrize(("rule", "case"), INVALID)
def test_fixes_give_the_stated_configuration(rule: ConfigRule, case: Invalid) -> None:
    file = _read(case.code)
    problems = _problems(rule, file)
    fixes = [fix for problem in problems if (fix := verified(file, rule, problem, len(problems)))]
    if case.fixed is None:
        assert fixes == []
        assert case.instead is None or _problems(rule, _read(case.instead)) == []
        return
    assert len(fixes) == len(problems)
    fixed = apply_edits(file.text, [edit for fix in fixes for edit in fix.edits])
    assert fixed == plain(case.fixed)
    assert _problems(rule, _read(fixed)) == []


@pytest.mark.parametrize(
    "rule", [r for r in config_rules() if isinstance(r, SettingRule)], ids=lambda r: r.id
)
def test_settings_have_the_names_of_their_libraries(rule: SettingRule) -> None:
    for kind, settings in rule.settings.items():
        known = known_keys(kind) | {"attn_implementation"} if kind == "transformers" else known_keys(kind)
        for setting in settings if known else ():
            assert setting.path[0] in known, (kind, setting.path)
            if setting.path[0] == "zero_optimization":
                assert setting.path[1] in known_keys("deepspeed.zero_optimization")
