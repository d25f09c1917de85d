"""The schema offers the lines of the region and no others; the reader trusts no answer."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

import jsonschema
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ptopt.model.region import Region, fit, regions_of
from ptopt.model.schema import (
    MAX_FINDINGS,
    MAX_REPLACEMENT,
    Advice,
    advice_schema,
    answer,
    is_valid,
    parse,
)
from ptopt.rules import rules
from ptopt.source.file import SourceFile

CODE = "import torch\n\n\ndef step(model, x, log):\n" + "".join(f"    y{i} = model(x)\n" for i in range(60))
SOURCE = SourceFile.parse("a.py", CODE.encode())
(REGION,) = (region for region in regions_of(SOURCE, None, []) if region.symbol == "step")
CUT = fit(
    dataclasses.replace(
        REGION, lines=tuple(dataclasses.replace(x, changed=x.number == 40) for x in REGION.lines)
    ),
    100,
)
GOOD: dict[str, Any] = {
    "rule": "item-every-step", "start_line": 2, "end_line": 3, "replacement": "pass", "reason": "slow",
}  # fmt: skip


def test_the_schema_is_one_and_names_lines_and_rules() -> None:
    schema = advice_schema(CUT)
    jsonschema.Draft202012Validator.check_schema(schema)
    fields = schema["properties"]["findings"]["items"]["properties"]
    assert fields["rule"]["enum"] == [rule.name for rule in rules()]
    assert fields["start_line"] == fields["end_line"] == {"type": "integer", "minimum": 1, "maximum": 64}


def test_regions_of_like_length_share_a_schema() -> None:
    """A server compiles a grammar for each schema: one that names the lines of a region is new each time."""
    seen = set()
    for length in range(1, 400):
        code = "def f(model):\n" + "    model()\n" * length
        (region,) = (
            r
            for r in regions_of(SourceFile.parse("a.py", b"import torch\n" + code.encode()), None, [])
            if r.symbol
        )
        schema = advice_schema(region)
        seen.add(json.dumps(schema))
        bound = schema["properties"]["findings"]["items"]["properties"]["end_line"]["maximum"]
        assert length + 1 <= bound < max(33, 2 * (length + 1))
    assert len(seen) == 5


def test_a_line_that_was_not_shown_is_no_answer() -> None:
    shown = {line.number - 3 for line in CUT.lines}
    hidden = next(n for n in range(1, 61) if n not in shown)
    text = json.dumps({"findings": [{**GOOD, "start_line": hidden, "end_line": hidden}]})
    jsonschema.validate(json.loads(text), advice_schema(CUT))
    assert parse(text, CUT) == () and not is_valid(text, CUT)


def test_what_is_trained_on_is_valid_and_read_back() -> None:
    advice = (Advice("item-every-step", 5, 6, "    pass", "é <b>"), Advice("cat-in-loop", 7, 7, "", ""))
    text = answer(advice, REGION)
    jsonschema.validate(json.loads(text), advice_schema(REGION))
    assert parse(text, REGION) == advice and is_valid(text, REGION)
    assert json.loads(text)["findings"][0]["start_line"] == 2
    assert parse(answer((), REGION), REGION) == () and is_valid(answer((), REGION), REGION)


@pytest.mark.parametrize(
    "change",
    [
        {"rule": "rm-rf"}, {"rule": "PTO101"}, {"rule": ["item-every-step"]}, {"rule": None},
        {"start_line": 0}, {"start_line": -1}, {"start_line": 10**30}, {"start_line": True}, {"start_line": 2.0},
        {"start_line": "2"}, {"end_line": 1_000}, {"end_line": None},
        {"replacement": None}, {"replacement": ["x"]}, {"replacement": "x" * (MAX_REPLACEMENT + 1)},
        {"reason": 1}, {"reason": "x" * 1_000}, {"path": "/etc/passwd"},
    ],
)  # fmt: skip
def test_a_finding_that_does_not_conform_is_dropped_and_counted(change: dict[str, Any]) -> None:
    text = json.dumps({"findings": [{**GOOD, **change}, GOOD]})
    strict = jsonschema.Draft202012Validator(advice_schema(REGION))
    assert change == {"start_line": 2.0} or not strict.is_valid(json.loads(text))  # to JSON Schema, 2.0 is 2
    assert not is_valid(text, REGION)
    assert [a.reason for a in parse(text, REGION)] == ["slow"]


def test_lines_over_a_gap_or_in_reverse_are_no_run_of_lines() -> None:
    shown = [line.number - 3 for line in CUT.lines]
    assert len(shown) < shown[-1]
    over = json.dumps({"findings": [{**GOOD, "start_line": shown[0], "end_line": shown[-1]}]})
    back = json.dumps({"findings": [{**GOOD, "start_line": shown[-1], "end_line": shown[-2]}]})
    jsonschema.validate(json.loads(over), advice_schema(CUT))
    assert parse(over, CUT) == () == parse(back, CUT)
    assert is_valid(over, CUT) and is_valid(back, CUT)  # the form is all that can be enforced


@pytest.mark.parametrize(
    "text",
    ["", "null", "[]", "{}", '{"findings": {}}', '{"findings": [], "x": 1}', "{" * 9_000, "[" * 19_000, "x" * 10**7,
     '{"findings": [' + "1" * 9_000 + "]}", '```json\n{"findings": []}\n```', "\ud800", "NaN", "\0"],
)  # fmt: skip
def test_what_is_no_answer_is_none(text: str) -> None:
    assert parse(text, REGION) == () and not is_valid(text, REGION)


def test_more_findings_than_asked_for_are_left_out() -> None:
    text = json.dumps({"findings": [GOOD] * (MAX_FINDINGS + 1)})
    assert len(parse(text, REGION)) == MAX_FINDINGS and not is_valid(text, REGION)


_values = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 80) | st.floats() | st.sampled_from(["item-every-step", "", "x"]),
    lambda inner: st.lists(inner, max_size=4)
    | st.dictionaries(st.sampled_from(["findings", *GOOD]), inner, max_size=6),
    max_leaves=20,
)  # fmt: skip


@given(_values)
def test_the_reader_and_the_schema_agree(value: object) -> None:
    _agree(value, REGION)
    _agree({"findings": [value]}, REGION)
    if isinstance(value, dict):
        _agree({"findings": [{**GOOD, **value}]}, REGION)


def _agree(value: object, region: Region) -> None:
    text = json.dumps(value)
    if is_valid(text, region):
        jsonschema.validate(json.loads(text), advice_schema(region))
    for advice in parse(text, region):
        assert {line.number for line in region.lines}.issuperset(range(advice.start, advice.end + 1))
