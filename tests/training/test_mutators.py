from __future__ import annotations

import ast

import pytest

from ptopt.rules import rules
from ptopt.rules.engine import run
from ptopt.source.file import SourceFile
from training.mutators import Mutator, mutators
from training.mutators.base import apply, remove_keyword

RULES = {rule.name: rule for rule in rules()}
EXAMPLES = [
    pytest.param(mutator, before, after, id=f"{type(mutator).__name__}-{number}")
    for mutator in mutators()
    for number, (before, after) in enumerate(mutator.examples)
]


def hits(text: str, rule: str) -> int:
    source = SourceFile.parse("a.py", text.encode())
    return sum(hit.problem.confidence >= 0.6 for hit in run(source, [RULES[rule]]))


@pytest.mark.parametrize(("mutator", "before", "after"), EXAMPLES)
def test_an_example_gets_its_problem(mutator: Mutator, before: str, after: str) -> None:
    source = SourceFile.parse("a.py", before.encode())
    made = [apply(before, m.edits)[0] for m in mutator.mutate(source) if not m.guarded]
    assert after in made
    assert hits(after, mutator.rule) > hits(before, mutator.rule)


@pytest.mark.parametrize(("mutator", "before", "after"), EXAMPLES)
def test_look_alikes_leave_the_rule_silent(mutator: Mutator, before: str, after: str) -> None:
    source = SourceFile.parse("a.py", before.encode())
    for mutation in mutator.mutate(source):
        if mutation.guarded:
            assert hits(apply(before, mutation.edits)[0], mutator.rule) == 0


@pytest.mark.parametrize("text", sorted({p.values[1] for p in EXAMPLES} | {p.values[2] for p in EXAMPLES}))
def test_every_mutation_leads_back(text: str) -> None:
    source = SourceFile.parse("a.py", text.encode())
    for mutator in mutators():
        for mutation in mutator.mutate(source):
            mutated, back = apply(text, mutation.edits)
            ast.parse(mutated)
            assert apply(mutated, back)[0] == text


def test_most_families_have_mutators() -> None:
    names = {mutator.rule for mutator in mutators()}
    assert names <= set(RULES)
    assert len(names) >= 50
    assert len({RULES[name].family for name in names}) >= 9


def test_the_same_file_is_mutated_the_same_way() -> None:
    text = EXAMPLES[0].values[1]
    first, second = (
        [m.edits for mutator in mutators() for m in mutator.mutate(SourceFile.parse("a.py", text.encode()))]
        for _ in range(2)
    )
    assert first == second


@pytest.mark.parametrize(
    ("call", "left"),
    [
        ("f(a, device=d)", "f(a)"),
        ("f(device=d)", "f()"),
        ("f(device=d, b=1)", "f(b=1)"),
        ("f(a, device=torch.device('cuda'), b=(1))", "f(a, b=(1))"),
        ("f(a)", None),
        ("f((a), device=d)", None),
    ],
)
def test_a_keyword_is_taken_with_its_comma(call: str, left: str | None) -> None:
    source = SourceFile.parse("a.py", f"x = {call}\n".encode())
    node = next(source.index.of_type(ast.Assign)).value
    assert isinstance(node, ast.Call)
    edit = remove_keyword(source, node, "device")
    assert (None if edit is None else apply(source.text, (edit,))[0]) == (
        None if left is None else f"x = {left}\n"
    )


def test_edits_that_overlap_are_refused() -> None:
    from ptopt.findings import Edit

    with pytest.raises(ValueError, match="overlap"):
        apply("abcdef", (Edit(0, 3, "x"), Edit(2, 4, "y")))
