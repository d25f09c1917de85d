"""What a model is shown of a table, and which of its answers count."""

from __future__ import annotations

import json
from typing import Any

import jsonschema
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ptopt.audit.measures import ALL
from ptopt.model.audit_measures import MEANINGS
from ptopt.model.audit_rows import (
    MOST_EVIDENCE,
    ROW_STATES,
    TABLE_TOKENS,
    Line,
    Row,
    RowAnswer,
    Sheet,
    Shown,
    answers,
    chosen,
    doubt,
    read,
    stands,
)
from ptopt.model.region import estimate
from tests.model.hostile import SPECIAL, texts

ROW = Row("precision", "Mixed precision", "off", "float32 throughout", (("train.py", 3),))
OTHER = Row("tf32", "TF32 matrix products", "off", "the default", ())
SHOWN = Shown(
    {
        "train.py": ((3, "for x in loader:"), (9, "with autocast():")),
        "run.sh": ((1, "python train.py --amp"),),
    },
    4,
)
SHEET = Sheet(
    "train.py", "PyTorch", (ROW, OTHER), ("classes are found by name at a.py:3",), SHOWN, {"tf32": ("allow_tf32",)},
    frozenset({"train.py"}),
)  # fmt: skip
AGREES: dict[str, Any] = {"measure": "tf32", "because": "", "evidence": [], "state": "off", "agrees": True}
CHANGE: dict[str, Any] = {
    "measure": "precision", "because": "`run.sh` passes `--amp`.", "evidence": ["run.sh:1", "train.py:9"], "state": "on", "agrees": False,
}  # fmt: skip


def _answer(*rows: object) -> str:
    return json.dumps({"rows": rows})


def test_every_row_of_the_table_has_a_meaning() -> None:
    assert list(MEANINGS) == [key for key, _, _ in ALL]


def test_the_prompt_has_the_table_the_lines_and_what_is_absent() -> None:
    prompt = read(SHEET)
    assert prompt == read(SHEET) and not prompt.examples
    assert "- precision (Mixed precision): off: float32 throughout [train.py:3]\n" in prompt.user
    assert "The analysis says of itself: classes are found by name at a.py:3\n" in prompt.user
    assert "=== train.py\n   3| for x in loader:\n   ...\n   9| with autocast():\n" in prompt.user
    assert "In no file of the repository that was read: allow_tf32.\n" in prompt.user
    assert "4 lines that tell less were left out" in prompt.user
    assert all(f"- {key}: " in prompt.system for key in MEANINGS)
    jsonschema.Draft202012Validator.check_schema(dict(prompt.schema or {}))
    jsonschema.validate(json.loads(_answer(CHANGE, AGREES)), dict(prompt.schema or {}))


def test_a_file_that_the_script_does_not_import_says_so() -> None:
    other = Shown({"other.py": ((1, "x = 1"),), "train.py": ((1, "y = 1"),)}, 0)
    user = read(Sheet("train.py", "PyTorch", (ROW,), (), other, {}, frozenset({"train.py"}))).user
    assert user.index("=== train.py\n") < user.index(
        "=== other.py (the analysis sees no import of it by the script)\n"
    )


def test_the_second_look_has_both_sides_and_the_meaning_of_the_row_alone() -> None:
    (answer,) = answers(_answer(CHANGE), SHEET)[0].values()
    prompt = doubt(SHEET, ROW, answer, SHOWN)
    assert "The analysis: off: float32 throughout [train.py:3]\n" in prompt.user
    assert "The reviewer: on: `run.sh` passes `--amp`. [run.sh:1, train.py:9]\n" in prompt.user
    assert MEANINGS["precision"] in prompt.user and MEANINGS["tf32"] not in prompt.user
    jsonschema.Draft202012Validator.check_schema(dict(prompt.schema or {}))


@given(texts, texts)
def test_nothing_of_the_repository_reaches_past_the_prompt(code: str, path: str) -> None:
    row = Row("tf32", "TF32", "off", code, ((path, 1),))
    shown = Shown({path: ((1, code.replace("\n", " ")),)}, 0)
    sheet = Sheet(path, code, (row,), (code,), shown, {}, frozenset())
    answer = RowAnswer("tf32", "on", code, ((path, 1),), False)
    for prompt in (read(sheet), doubt(sheet, row, answer, shown)):
        text = prompt.system + prompt.user
        assert not any(token in text for token in SPECIAL)
        assert "\r" not in text and "\u2028" not in text


def test_what_tells_most_is_shown_within_the_budget() -> None:
    lines = [Line("big.py", n, f"value_{n} = compute(value_{n - 1})  # {n}", 0.1) for n in range(1, 9_000)]
    lines.append(Line("run.sh", 7, "python big.py --amp", 5.0))
    shown = chosen(lines, TABLE_TOKENS)
    assert shown.has("run.sh", 7) and shown.left_out > 0
    sheet = Sheet("big.py", "PyTorch", (), (), shown, {}, frozenset())
    assert TABLE_TOKENS * 0.9 < estimate(read(sheet).user) < TABLE_TOKENS * 1.05
    assert shown == chosen(list(reversed(lines)), TABLE_TOKENS)


def test_the_head_of_a_function_and_short_gaps_come_with_a_line() -> None:
    lines = [Line("a.py", n, f"line {n}", 0.0, heads=2 if n > 2 else 0) for n in range(1, 60)]
    lines[39] = Line("a.py", 40, "with autocast():", 2.0, heads=2)
    lines[42] = Line("a.py", 43, "loss.backward()", 1.0, heads=2)
    shown = chosen(lines, 60)
    numbers = [number for number, _ in shown.files["a.py"]]
    assert {2, 40, 41, 42, 43} <= set(numbers)


def test_a_whole_answer() -> None:
    found, valid = answers(_answer(CHANGE, AGREES), SHEET)
    assert valid
    assert found["precision"] == RowAnswer(
        "precision", "on", "`run.sh` passes `--amp`.", (("run.sh", 1), ("train.py", 9)), False
    )
    assert found["tf32"] == RowAnswer("tf32", "off", "the default", (), True)


@pytest.mark.parametrize(
    "change",
    [
        {"evidence": ["run.sh:2"]}, {"evidence": ["run.sh:1", "other.py:1"]}, {"evidence": []}, {"evidence": ["run.sh"]},
        {"evidence": ["run.sh:1"] * (MOST_EVIDENCE + 1)}, {"evidence": "run.sh:1"}, {"evidence": [1]}, {"evidence": ["run.sh:-1"]},
        {"evidence": ["run.sh:١"]}, {"state": "maybe"}, {"state": None}, {"because": " "}, {"because": "x" * 301}, {"because": 3},
        {"agrees": 0}, {"agrees": "false"}, {"measure": "attention"}, {"measure": ["precision"]}, {"more": 1},
    ],
)  # fmt: skip
def test_a_row_that_does_not_conform_is_lost_and_no_other(change: dict[str, Any]) -> None:
    found, valid = answers(_answer({**CHANGE, **change}, AGREES), SHEET)
    assert list(found) == ["tf32"] and not valid


def test_a_row_counts_once() -> None:
    found, valid = answers(_answer(CHANGE, {**CHANGE, "state": "unknown"}), SHEET)
    assert found["precision"].state == "on" and not valid
    assert not answers(_answer(AGREES), SHEET)[1]  # a row is missing


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | texts, lambda x: st.lists(x) | st.dictionaries(texts, x)
    )
)
def test_a_hostile_answer_breaks_nothing(data: Any) -> None:
    for text in (
        json.dumps(data),
        json.dumps({"rows": data}),
        json.dumps({"rows": [data, {**CHANGE, "evidence": data}]}),
    ):
        found, _ = answers(text, SHEET)
        for answer in found.values():
            assert answer.state in ROW_STATES and all(
                SHOWN.has(*place) or answer.agrees for place in answer.evidence
            )
        assert stands(text) is None or data["verdict"] in ("stands", "wrong", "unclear")


@pytest.mark.parametrize(
    "text", ["", "no", "[]", "[" * 100_000, '{"rows": 1}', " " * 70_000 + "{}", '{"rows": [], "x": 1}']
)
def test_what_is_no_answer(text: str) -> None:
    assert answers(text, SHEET) == ({}, False)
    assert stands(text) is None


@pytest.mark.parametrize(
    ("verdict", "accepted"),
    [("stands", True), ("wrong", False), ("unclear", False), ("yes", None), ([], None)],
)
def test_the_second_look(verdict: object, accepted: bool | None) -> None:
    assert stands(json.dumps({"because": "so", "verdict": verdict})) is accepted
