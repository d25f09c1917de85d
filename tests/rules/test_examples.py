"""Every rule is right about its own examples, and its fixes do what they say."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from ptopt.rules import all_rules, find_rule, rules
from ptopt.rules.base import HEADINGS, Invalid, Problem, Rule
from ptopt.rules.examples import plain
from ptopt.rules.shared.calls import CallRule, ResolvedCall
from ptopt.rules.testing import fault_of_invalid, fault_of_valid, faults
from ptopt.source.frequency import Often

VALID = [pytest.param(r, code, id=f"{r.id}-{i}") for r in rules() for i, code in enumerate(r.VALID)]
INVALID = [pytest.param(r, case, id=f"{r.id}-{i}") for r in rules() for i, case in enumerate(r.INVALID)]


@pytest.mark.parametrize(("rule", "code"), VALID)
def test_valid_code_is_left_alone(rule: Rule, code: str) -> None:
    assert fault_of_valid(rule, code) == ""


@pytest.mark.parametrize(("rule", "case"), INVALID)
def test_invalid_code_is_reported_where_marked_and_its_fix_is_the_stated_one(
    rule: Rule, case: Invalid
) -> None:
    assert fault_of_invalid(rule, case) == ""


class _Wrong(CallRule):
    """A rule that is wrong about its examples."""

    id, name, family = "ACME002", "sorted-every-step", "acme"
    functions = frozenset({"torch.sort"})
    at_least = Often.STEP
    when_wrong = "never"
    _LOOP = """
    for batch in loader:
        torch.sort(batch)  # !
        model(batch).mean().backward()
        optimizer.step()
    """
    VALID = (_LOOP, "torch.sort(batch)")
    INVALID = (
        Invalid(_LOOP),
        Invalid("torch.sort(batch)"),
        Invalid("torch.sort(batch)  # !"),
        Invalid(_LOOP, "x"),
    )

    def check_call(self, call: ResolvedCall) -> Iterator[Problem]:
        yield Problem(call.node, "sorts", 0.9)


def test_what_is_wrong_with_examples_is_reported() -> None:
    assert faults(_Wrong()) == [
        "ACME002 VALID[0]: is reported: line 12: sorts",
        "ACME002 INVALID[1]: no line of it is marked with `# !`",
        "ACME002 INVALID[2]: is reported on the lines [] of the example with its imports, not on [11]",
        "ACME002 INVALID[3]: a fix of it does not pass its own verification",
    ]


def test_the_lines_that_a_fix_writes_may_stand_below_those_that_it_replaces() -> None:
    case = Invalid("""
        for batch in loader:
            a = f(batch)  # !
            # + a = g(batch)
            # + if a:
            # +     break
            print(a)
            # +
            use(a)
    """)
    assert (
        plain(case.code) == "for batch in loader:\n    a = f(batch)\n    print(a)\n    use(a)\n"
        and plain(case.fixed or "")
        == "for batch in loader:\n    a = g(batch)\n    if a:\n        break\n    use(a)\n"
    )
    assert Invalid("a = 1  # !").fixed is None
    advised = Invalid("a = b.half()  # !\n# ~ a = b")
    assert (advised.code, advised.fixed, advised.instead) == ("a = b.half()  # !", None, "a = b")


def test_a_page_takes_from_the_class_what_the_docstring_leaves_out() -> None:
    fixed = Invalid("a = b.half()  # !\n# + a = b")

    class Short(_Wrong):
        """Halves.

        ## Fix safety
        Safe.

        ## What it does
        Finds halves.
        """

        INVALID = (Invalid("a = b  # !"), fixed)

    assert list(Short.sections().items()) == [
        ("What it does", "Finds halves."),
        ("When this is wrong", "When never."),
        ("Example", "```python\na = b.half()\n```"),
        ("Use instead", "```python\na = b\n```"),
        ("Fix safety", "Safe."),
    ]
    Short.INVALID = (Invalid("a = b  # !"),)
    assert Short.sections()["Use instead"] == f"```python\n{plain(_Wrong.VALID[0]).rstrip()}\n```"


@pytest.mark.parametrize("rule", all_rules(), ids=lambda r: r.id)
def test_rule_tells_its_whole_story(rule: type[Rule]) -> None:
    assert tuple(rule.sections()) == HEADINGS
    assert all(rule.sections().values())
    assert rule.summary().endswith(".")
    assert len(rule.VALID) >= 3 and len(rule.INVALID) >= 2
    assert rule.when_wrong and not rule.when_wrong.endswith(".")
    assert find_rule(rule.id) is find_rule(rule.name) is rule


def test_ids_and_names_are_unique() -> None:
    assert len({r.id for r in all_rules()}) == len({r.name for r in all_rules()}) == len(all_rules())
