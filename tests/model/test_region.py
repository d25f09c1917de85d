from __future__ import annotations

import ast
import json
import textwrap
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ptopt.model.region import (
    ADVISE_TOKENS,
    JUDGE_TOKENS,
    Candidate,
    Region,
    estimate,
    file_line,
    fit,
    region_of_function,
    regions_of,
    render,
    shown_number,
)
from ptopt.model.region_facts import statements
from ptopt.project.facts import read_facts
from ptopt.source.file import SourceFile
from tests.model.hostile import texts

CODE = textwrap.dedent(
    """\
    import torch

    device = torch.device("cuda")


    class Trainer:
        lr = 0.1

        @torch.no_grad()
        def evaluate(self, model, loader):
            for x in loader:
                model(x)

        def fit(self, model, loader, opt):
            total = 0

            for i, x in enumerate(loader):
                loss = model(x).mean()
                loss.backward()
                opt.step()
                total += loss.item()
                if i % 100 == 0:
                    print(loss.item())

            def helper():
                return total

            return helper


    def twice(x):
        return 2 * x


    model = torch.nn.Linear(1, 1)
    """
)


def parsed(code: str = CODE, path: str = "train.py") -> SourceFile:
    return SourceFile.parse(path, code.encode("utf-8", "surrogatepass"))


def line_of(text: str, code: str = CODE) -> int:
    return next(n for n, line in enumerate(code.split("\n"), 1) if text in line)


def region(name: str, code: str = CODE, *candidates: Candidate) -> Region:
    source = parsed(code)
    node = next(n for n in ast.walk(source.tree) if getattr(n, "name", "") == name)
    assert isinstance(node, (ast.FunctionDef, ast.ClassDef))
    return region_of_function(source, node, None, candidates)


def test_a_changed_line_brings_the_whole_outermost_function() -> None:
    (found,) = regions_of(parsed(), {line_of("return total")}, [])
    assert found.symbol == "Trainer.fit"
    assert (found.start, found.end) == (line_of("def fit"), line_of("return helper"))
    assert found.indent == "    "
    assert found.lines[0].text == "def fit(self, model, loader, opt):"
    assert [line.number for line in found.lines if line.changed] == [line_of("return total")]
    assert not found.cut


def test_decorators_belong_to_the_function() -> None:
    (found,) = regions_of(parsed(), {line_of("@torch.no_grad")}, [])
    assert found.symbol == "Trainer.evaluate"
    assert found.lines[0].text == "@torch.no_grad()"


def test_without_a_candidate_only_code_that_works_with_torch_is_shown() -> None:
    assert [r.symbol for r in regions_of(parsed(), None, [])] == ["", "Trainer.evaluate", "Trainer.fit", ""]
    assert regions_of(parsed(), {line_of("return 2 * x")}, []) == []
    assert regions_of(parsed("def train(model):\n    model.fit()\n"), None, []) == []
    assert regions_of(parsed("import torch\nfrom torch import nn\n"), None, []) == []
    assert regions_of(parsed(), set(), []) == []


def test_a_candidate_brings_its_region_even_where_nothing_changed() -> None:
    (found,) = regions_of(parsed(), set(), [Candidate("element-loop", (line_of("return 2 * x"),))])
    assert found.symbol == "twice"
    assert found.candidates == (Candidate("element-loop", (line_of("return 2 * x"),)),)


def test_candidates_of_one_rule_in_one_region_become_one() -> None:
    first, second = line_of("total += loss.item()"), line_of("print(loss.item())")
    given_ = [
        Candidate("item-every-step", (second,)),
        Candidate("b", (first,)),
        Candidate("item-every-step", (first,)),
    ]
    (found,) = regions_of(parsed(), set(), given_)
    assert found.candidates == (Candidate("item-every-step", (second, first)), Candidate("b", (first,)))


@given(st.lists(st.tuples(st.sampled_from("abc"), st.lists(st.integers(-3, 60), max_size=4)), max_size=6))
def test_each_candidate_is_in_exactly_one_region(drawn: list[tuple[str, list[int]]]) -> None:
    candidates = [Candidate(rule, tuple(lines)) for rule, lines in drawn]
    found = regions_of(parsed(), set(), candidates)
    assert sum(len(r.candidates) for r in found) == len(
        {(c.rule, r.start) for r in found for c in r.candidates}
    )
    covered = {n for r in found for n in range(r.start, r.end + 1)}
    assert sum(r.end - r.start + 1 for r in found) == len(covered)
    for rule, lines in drawn:
        holders = [
            r for r in found if any(c.rule == rule and set(c.lines) & set(lines) for c in r.candidates)
        ]
        assert holders or not covered & set(lines)
    assert all(r.start <= n <= r.end for r in found for c in r.candidates for n in c.lines)


def test_facts_are_told_in_shown_numbers() -> None:
    found = region("fit")
    shown = {text: shown_number(found, line_of(text)) for text in ("loss = model", "total += loss", "print(")}
    assert found.facts == (
        f"lines {shown['loss = model']}-{shown['total += loss']}: training step",
        f"line {shown['print(']}: rare",
        f"Python waits for the GPU: line {shown['total += loss']}",
        "may run on a GPU",
    )
    assert "lines 3-4: no gradients" not in region("fit").facts
    assert "line 4: no gradients" in region("evaluate").facts
    assert "line 4: evaluation" in region("evaluate").facts


def test_pins_are_facts() -> None:
    facts = read_facts({"requirements.txt": b"torch==2.1\n"})
    source = SourceFile.parse("a.py", CODE.encode(), facts)
    assert regions_of(source, {line_of("def fit")}, [])[0].facts[-1] == "torch==2.1"


def test_modules_and_datasets_are_facts() -> None:
    code = "from torch import nn\nclass A(nn.Module):\n    def forward(self, x):\n        return x\n"
    assert region("forward", code).facts == ("runs on every step", "line 2: forward pass", "names no GPU")
    code = "import torch\nclass D:\n    def __getitem__(self, i):\n        return torch.load(i)\n"
    assert region("__getitem__", code).facts == (
        "runs for each sample or element",
        "line 2: loads an item",
        "names no GPU",
    )


def test_numbers_lead_back() -> None:
    found = region("fit")
    assert shown_number(found, found.start) == 1
    assert all(file_line(found, shown_number(found, line.number)) == line.number for line in found.lines)
    source = parsed()
    for line in found.lines:
        assert source.line(line.number).strip() == line.text.strip()


def test_the_code_is_numbered_from_one() -> None:
    assert render(region("twice")) == "1 def twice(x):\n2     return 2 * x\n"


def test_a_notebook_counts_lines_of_its_code() -> None:
    cell = ["import torch\n", "def f(x):\n", "    return torch.cat([x])\n"]
    notebook = json.dumps(
        {
            "cells": [{"cell_type": "code", "source": cell, "metadata": {}, "outputs": []}],
            "nbformat": 4,
            "metadata": {},
        },
        indent=1,
    )
    source = SourceFile.parse("a.ipynb", notebook.encode())
    head = next(n for n, line in enumerate(notebook.split("\n"), 1) if "torch.cat" in line)
    (found,) = regions_of(source, {head}, [Candidate("cat-in-loop", (head,))])
    assert found.symbol == "f"
    (line,) = found.candidates[0].lines
    assert source.line(line) == "    return torch.cat([x])"
    assert source.head_line(line) == head
    assert [x.number for x in found.lines if x.changed] == [line]


LONG = "def train(model, loader, opt):\n" + "".join(
    f"    for x{i} in loader:\n        a{i} = model(x{i})\n        b{i} = a{i}.mean()\n" for i in range(200)
)


def test_what_fits_is_left_alone() -> None:
    whole = region("fit")
    assert fit(whole, 10_000) is whole


@pytest.mark.parametrize("limit", [100, JUDGE_TOKENS, ADVISE_TOKENS])
def test_what_is_near_stays(limit: int) -> None:
    target = line_of("b100 =", LONG)
    whole = region("train", LONG, Candidate("item-every-step", (target,)))
    small = fit(whole, limit)
    kept = [line.number for line in small.lines]
    assert small.cut
    assert estimate(render(small)) <= limit
    assert kept[0] == 1  # the signature
    assert {target, target - 2} <= set(kept)  # the line, and the header of its loop
    near = kept[1:]
    assert near == list(range(near[0], near[-1] + 1))
    assert abs((near[0] + near[-1]) / 2 - target) <= 2
    assert render(small).split("\n")[1] == "..."
    assert render(small).endswith("...\n")


def test_without_candidates_the_change_is_near() -> None:
    target = line_of("a50 =", LONG)
    whole = regions_of(parsed("import torch\n" + LONG), {target + 1}, [])[0]
    kept = [line.number for line in fit(whole, 100).lines]
    assert target + 1 in kept
    assert max(kept) < target + 20


def test_a_line_is_kept_whole_or_not_at_all() -> None:
    code = "def f(x):\n    y = '" + "word " * 5_000 + "'\n    return torch.cat(x)\n"
    small = fit(region("f", code, Candidate("cat-in-loop", (2,))), 100)
    assert [line.number for line in small.lines] == [1, 3]
    assert render(small) == "1 def f(x):\n...\n3     return torch.cat(x)\n"


def test_cutting_again_cuts_more() -> None:
    whole = region("train", LONG, Candidate("a", (300,)))
    once, twice = fit(whole, 400), fit(fit(whole, 400), 100)
    assert set(twice.lines) < set(once.lines)
    assert estimate(render(twice)) <= 100
    assert fit(fit(whole, 0), 0).lines == ()


_LINES = st.lists(
    st.one_of(st.sampled_from(["    if x:", "        y = x.item()", "    pass", ""]), texts), max_size=30
)


@given(_LINES, st.integers(0, 200), st.lists(st.integers(1, 30), max_size=3))
def test_any_code_fits(lines: list[str], limit: int, wanted: list[int]) -> None:
    body = "".join(f"    {line!r}\n" for line in lines) or "    pass\n"
    code = f"def f(x):\n{body}"
    whole = region("f", code, Candidate("a", tuple(wanted)))
    small = fit(whole, limit)
    assert set(small.lines) <= set(whole.lines)
    assert [x.number for x in small.lines] == sorted(x.number for x in small.lines)
    assert not small.lines or estimate(render(small)) <= limit
    assert small == fit(whole, limit)
    assert (small.start, small.end, small.facts, small.candidates) == (
        whole.start, whole.end, whole.facts, whole.candidates,
    )  # fmt: skip


@given(texts)
def test_any_comment_and_string_is_shown_on_its_line(text: str) -> None:
    flat = "".join(c for c in text if c not in "\r\n\0" and not "\ud800" <= c <= "\udfff")
    code = f"def f(x):\n    # {flat}\n    return x\n"
    found = region("f", code)
    shown = render(found).split("\n")
    assert len(shown) == len(found.lines) + 1
    assert [s.split(" ")[0] for s in shown[:-1]] == ["1", "2", "3"]


def test_counts_by_another_counter_hold_too() -> None:
    small = fit(region("train", LONG, Candidate("a", (300,))), 500, count=len)
    assert 400 < len(render(small)) <= 500


def test_the_estimate_is_on_the_safe_side_of_nothing() -> None:
    assert estimate("") == 0
    assert estimate("x") == 1
    assert estimate("日本語") == 9
    assert estimate("a" * 50) == 10


def test_mixed_indentation_is_kept() -> None:
    code = 'class A:\n    def f(self):\n        x = """\nleft\n"""\n        return x\n'
    found = region("f", code)
    assert found.indent == ""
    assert found.lines[0].text == "    def f(self):"


def test_code_too_deep_to_be_printed_has_no_facts_of_lines() -> None:
    deep = "with " + "- " * 800 + "x:\n        y = 1"
    code = f"import torch\ndef train(loss, x):\n    for i in x:\n        loss.backward()\n    {deep}\n"
    (found, *_) = regions_of(parsed(code), None, [Candidate("a", (3,))])
    assert found.facts == ("names no GPU",)


def test_a_region_is_made_without_reading_the_other_functions() -> None:
    """A file of many functions has as many regions: reading all of it for each would be quadratic."""

    class Untouched(list[ast.stmt]):
        def __iter__(self) -> Iterator[ast.stmt]:
            raise AssertionError("another function was read")

    source = SourceFile.parse(
        "a.py", b"def f(x):\n    x.item()\n\n\ndef g(x):\n    x.cpu()\n", read_facts({})
    )
    second = source.tree.body[1]
    assert isinstance(second, ast.FunctionDef)
    second.body = Untouched(second.body)
    assert [ast.unparse(node) for node in statements(source, 1, 2)] == ["x.item()"]
