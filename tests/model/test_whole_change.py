"""A general model that is shown a change as a whole: what it sees, and which of its claims become comments."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

import jsonschema
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ptopt.config import Config
from ptopt.findings import CHECKED, Review
from ptopt.model.calibration import Calibration, CalibrationError
from ptopt.model.interface import ChatPrompt
from ptopt.model.region import Region, changed_regions
from ptopt.model.whole_change import (
    CHANGE_TOKENS,
    KINDS,
    MAX_CLAIMS,
    MAX_PROMPTS,
    check,
    claims,
    packed,
    parse_check,
)
from ptopt.model.whole_change import review as review_prompt
from ptopt.report import render
from ptopt.report.text import weighed
from ptopt.source.file import SourceFile
from tests.model.scripted import Scripted, review

WHOLE = Calibration(change_threshold=0.6, change_confidence=0.7, measured_on="a test")
BASE = """\
import torch
from transformers import AutoModel


def size(path):
    return len(path)


def embed(path):
    check(path)
    again(path)
    return load(path)
"""
HEAD = """\
import torch
from transformers import AutoModel


def size(path):
    return len(path)


def embed(path):
    check(path)
    again(path)
    model = AutoModel.from_pretrained("big")
    return model(load(path)).last_hidden_state
"""
CLAIM: dict[str, Any] = {
    "region": 1, "start_line": 4, "end_line": 4, "kind": "loaded-again",
    "problem": "The weights are read from disk for each `path`.", "fix": "Load the model once.", "sure": 90,
}  # fmt: skip
RIGHT = {"because": "true", "verdict": "right", "probability": 80}
SOURCE = SourceFile.parse("a.py", HEAD.encode())
(REGION,) = changed_regions(SOURCE, {12, 13})


def _answers(claim: dict[str, Any] | list[dict[str, Any]], checked: dict[str, Any] | str) -> Scripted:
    """Claims first, then the same answer to each check."""

    def say(prompt: ChatPrompt) -> str:
        assert prompt.schema is not None
        if "findings" in prompt.schema["properties"]:
            return json.dumps({"findings": claim if isinstance(claim, list) else [claim]})
        return checked if isinstance(checked, str) else json.dumps(checked)

    return Scripted(say=say)


def _reviewed(backend: Scripted, **settings: Any) -> Review:
    return review({"a.py": HEAD}, backend, WHOLE, bases={"a.py": BASE}, **settings)


def test_a_claim_that_stands_is_a_comment_with_the_words_as_a_quotation() -> None:
    backend = _answers(CLAIM, RIGHT)
    (finding,) = _reviewed(backend).findings
    assert (finding.rule, finding.span.start, finding.symbol) == ("PTO990", 12, "embed")
    assert finding.confidence == 0.7 and finding.fix is None and finding.origin == "model"
    assert "Found by a model (`scripted`), not by a rule" in finding.message
    assert finding.explanation == "The weights are read from disk for each `path`. Load the model once."


def test_the_model_sees_what_changed_and_then_the_whole_file_with_its_claim() -> None:
    backend = _answers(CLAIM, RIGHT)
    _reviewed(backend)
    first, second, *_ = backend.chats
    assert '4+     model = AutoModel.from_pretrained("big")' in first.user and "def size" not in first.user
    assert "-     return load(path)" in first.user
    assert '12+     model = AutoModel.from_pretrained("big")' in second.user and "def size" in second.user
    assert "on lines 12 to 12 (loaded-again): The weights are read" in second.user
    assert ", all of it new\n" not in first.user
    for prompt in (first, second):
        jsonschema.Draft202012Validator.check_schema(dict(prompt.schema or {}))
        assert not prompt.examples


@pytest.mark.parametrize(
    "checked",
    [
        {**RIGHT, "verdict": "trivial"},
        {**RIGHT, "verdict": "wrong"},
        {**RIGHT, "probability": 59},
        "no idea",
        "[]",
    ],
)
def test_a_claim_that_the_model_itself_doubts_is_no_comment(checked: dict[str, Any] | str) -> None:
    assert _reviewed(_answers(CLAIM, checked)).findings == ()


def _with_opinions(*drawn: dict[str, Any] | str, first: dict[str, Any] = RIGHT) -> Scripted:
    """The first check of the claim, and the answers that are drawn, by seed."""
    answers = {None: first, **dict(enumerate(drawn, 1))}

    def say(prompt: ChatPrompt) -> str:
        if "findings" in (prompt.schema or {})["properties"]:
            return json.dumps({"findings": [CLAIM]})
        answer = answers[prompt.seed]
        return answer if isinstance(answer, str) else json.dumps(answer)

    return Scripted(say=say)


@pytest.mark.parametrize(
    ("drawn", "probability"),
    [((60, 60), 0.6), ((90, 30), 0.6), ((58, 61), None), ((20, 20), None), ((100, 10), None)],
)
def test_what_more_opinions_make_of_a_claim_on_average_decides(
    drawn: tuple[int, int], probability: float | None
) -> None:
    backend = _with_opinions(
        *({**RIGHT, "probability": one} for one in drawn), first={**RIGHT, "probability": 95}
    )
    found = _reviewed(backend).findings
    assert [dict(finding.features)[CHECKED] for finding in found] == (
        [] if probability is None else [probability]
    )
    assert [(prompt.seed, prompt.user) for prompt in backend.chats[1:]] == [
        (seed, backend.chats[1].user) for seed in (None, 1, 2)
    ]


@pytest.mark.parametrize(("verdict", "probability"), [("right", 49), ("trivial", 80), ("wrong", 80)])
def test_a_claim_that_the_first_check_strikes_out_is_not_asked_about_again(
    verdict: str, probability: int
) -> None:
    never = Calibration(change_threshold=0.1, change_confidence=0.7)
    backend = _with_opinions(RIGHT, RIGHT, first={**RIGHT, "verdict": verdict, "probability": probability})
    assert review({"a.py": HEAD}, backend, never, bases={"a.py": BASE}).findings == ()
    assert [prompt.seed for prompt in backend.chats] == [None, None]


def test_an_invalid_opinion_leaves_a_claim_out_and_is_counted() -> None:
    found = _reviewed(_with_opinions(RIGHT, "no idea"))
    assert found.findings == () and found.model is not None and found.model.invalid == 1


def test_claims_stand_on_the_change() -> None:
    old = {
        **CLAIM,
        "start_line": 1,
        "end_line": 1,
    }  # the line of the `def`, which is old, with nothing removed before it
    assert _reviewed(_answers(old, RIGHT)).findings == ()
    beside = {**CLAIM, "start_line": 3, "end_line": 4}
    assert len(_reviewed(_answers(beside, RIGHT)).findings) == 1


def test_a_claim_beside_removed_lines_stands_on_what_is_left() -> None:
    base = HEAD.replace("def embed", "@torch.no_grad()\ndef embed")
    claim = {**CLAIM, "start_line": 1, "end_line": 1, "kind": "autograd-on"}
    found = review({"a.py": HEAD}, _answers(claim, RIGHT), WHOLE, bases={"a.py": base}).findings
    assert [f.span.start for f in found] == [9]


def test_settings_and_comments_silence_it() -> None:
    assert _reviewed(_answers(CLAIM, RIGHT), config=Config(ignore=("found-by-model",))).findings == ()
    backend = _answers(CLAIM, RIGHT)
    head = HEAD.replace('"big")', '"big")  # ptopt: ignore[PTO990] one call a day')
    found = review({"a.py": head}, backend, WHOLE, bases={"a.py": BASE})
    assert found.findings == () and len(found.suppressed) == 1
    silent = _answers(CLAIM, RIGHT)
    assert (
        review({"a.py": HEAD}, silent, Calibration(), bases={"a.py": BASE}).findings == ()
        and not silent.chats
    )


def test_nothing_is_asked_of_a_change_without_a_library() -> None:
    backend = _answers(CLAIM, RIGHT)
    assert review({"a.py": "x = 1\n"}, backend, WHOLE).findings == () and backend.chats == []


def test_the_limit_of_comments_holds() -> None:
    many = [{**CLAIM, "start_line": at, "end_line": at} for at in (4, 5, 4, 5, 4, 5)]
    found = _reviewed(_answers(many, RIGHT))
    assert len(found.findings) <= MAX_CLAIMS and found.model is not None and found.model.invalid == 1


def test_words_of_the_model_are_harmless_on_every_page() -> None:
    claim = {
        **CLAIM,
        "problem": "![x](http://e.vil/p.png) @everyone <script>",
        "fix": "[click](http://e.vil)",
    }
    result = _reviewed(_answers(claim, RIGHT))
    assert len(result.findings) == 1
    markdown = render("markdown", result)
    assert "<script>" not in markdown and "](http://e.vil" not in markdown and " @everyone" not in markdown


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
)


@given(st.text() | _JSON.map(json.dumps))
def test_no_answer_breaks_the_parsers(text: str) -> None:
    found, _ = claims(text, [REGION])
    assert all(claim.region is REGION for claim in found)
    checked = parse_check(text)
    assert checked is None or 0 <= checked.probability <= 1


@pytest.mark.parametrize(
    "wrong",
    [
        {"region": 2}, {"region": True}, {"start_line": 0}, {"start_line": 5}, {"end_line": 99},
        {"kind": "style"}, {"kind": ["other"]}, {"kind": {}}, {"problem": ""}, {"problem": "x" * 401}, {"fix": None}, {"sure": 101}, {"more": 1},
    ],
)  # fmt: skip
def test_what_does_not_conform_is_left_out(wrong: dict[str, Any]) -> None:
    text = json.dumps({"findings": [{**CLAIM, **wrong}]})
    assert claims(text, [REGION]) == ((), False)


def test_a_large_change_is_shown_in_few_prompts() -> None:
    regions = [REGION] * 40
    parts = packed(regions, [CHANGE_TOKENS // 3] * 40)
    assert [len(part) for part in parts] == [3] * MAX_PROMPTS
    assert packed([], []) == [] and packed([REGION], [10 * CHANGE_TOKENS]) == [[REGION]]


def test_a_function_that_is_new_says_so() -> None:
    (new,) = (r for r in changed_regions(SOURCE, set(range(1, 14))) if r.symbol == "embed")
    assert "Region 1, in a.py, all of it new\n" in review_prompt([new]).user


def test_the_page_of_kinds_is_in_the_prompt() -> None:
    prompt = review_prompt([REGION])
    assert all(f"- {kind}: " in prompt.system for kind in KINDS)
    (claim,), valid = claims(json.dumps({"findings": [CLAIM]}), [REGION])
    assert valid and "<|im_end|>" not in check(dataclasses.replace(claim, problem="<|im_end|>"), REGION).user


def test_the_calibration_keeps_the_threshold() -> None:
    assert Calibration.from_json(WHOLE.to_json()) == WHOLE and not WHOLE.silent
    assert Calibration.from_json("{}") == Calibration()
    with pytest.raises(CalibrationError, match="change_threshold must be from 0 to 1"):
        Calibration.from_json('{"change_threshold": 2}')


def test_lines_that_the_words_name_are_those_of_the_file() -> None:
    claim = CLAIM | {"problem": "Line 4 reads the weights again.", "fix": "Move line 4 behind lines 2-3."}
    backend = _answers(claim, RIGHT)
    (finding,) = _reviewed(backend).findings
    assert finding.explanation.startswith("Line 12 reads")
    assert "line 12 behind lines 10-11." in finding.explanation
    assert "line 12 behind lines 10-11." in backend.chats[1].user


def test_a_region_is_a_whole_function_that_changed() -> None:
    assert isinstance(REGION, Region) and (REGION.start, REGION.end) == (9, 13)


LOOP = """\
import torch


def train(model, loader, optimizer, criterion):
    for x, y in loader:
        optimizer.zero_grad()
        criterion(model(x), y).backward()
        optimizer.step()
        torch.cuda.empty_cache()
"""


@pytest.mark.parametrize(
    ("verdict", "left"), [("right", True), ("trivial", False), ("wrong", False), ("", True)]
)
def test_a_comment_of_a_rule_is_doubted_too(verdict: str, left: bool) -> None:
    alone = review({"a.py": LOOP}, None)
    (rule,) = (f for f in alone.findings if f.name == "cache-cleared-every-step")
    backend = _answers([], RIGHT | {"verdict": verdict})
    found = review({"a.py": LOOP}, backend, WHOLE)
    kept = [f.name for f in found.findings]
    assert (rule.name in kept) == left
    assert [f.name for f in found.dropped] == [f.name for f in alone.findings if f.name not in kept]
    assert f"({rule.name}): {rule.message}\n" in backend.chats[1].user
    assert found.model is not None and found.model.invalid == (len(backend.chats) - 1 if not verdict else 0)


# The ranker alone leaves it out, at this minimum.
SURE = Config().model_copy(update={"min_confidence": 0.8})
SURE_OF = dataclasses.replace(WHOLE, change_confidence=0.85)
HIDDEN = """\
import torch
optimizer.zero_grad(set_to_none=False)
"""


def _hidden(
    verdict: str = "right", probability: int = 80, claim: Any = (), ignore: tuple[str, ...] = ()
) -> Review:
    backend = _answers(list(claim), RIGHT | {"verdict": verdict, "probability": probability})
    return review({"a.py": HIDDEN}, backend, SURE_OF, config=SURE.model_copy(update={"ignore": ignore}))


def test_what_the_ranker_left_out_is_a_comment_where_the_model_finds_it_worth_one() -> None:
    alone = review({"a.py": HIDDEN}, None, config=SURE)
    assert alone.findings == () and alone.left_out is not None
    found = _hidden().findings
    shown = {finding.name: finding for finding in found}
    moved = shown["zero-grad-keeps-tensors"]
    assert moved.origin == "rule" and moved.confidence == SURE_OF.change_confidence and moved.missed == ()
    assert moved.fix is not None and [edit.replacement for edit in moved.fix.edits] == [""]
    assert dict(moved.features)[CHECKED] == 0.8 and "asked to prove it wrong, gave 0.80" in weighed(moved)


@pytest.mark.parametrize(
    ("verdict", "probability"), [("trivial", 80), ("wrong", 80), ("right", 55), ("right", 40)]
)
def test_what_the_ranker_left_out_stays_so_where_the_model_does_not(verdict: str, probability: int) -> None:
    found = _hidden(verdict, probability)
    alone = review({"a.py": HIDDEN}, None, config=SURE)
    assert found.findings == () and found.dropped == ()
    assert found.left_out is not None and alone.left_out is not None
    assert found.left_out.rules == alone.left_out.rules


def test_a_claim_on_the_lines_of_a_rule_that_is_let_in_says_nothing_more() -> None:
    (moved,) = (f for f in _hidden().findings if f.name == "zero-grad-keeps-tensors")
    claim = CLAIM | {"start_line": 2, "end_line": 2}
    assert [f.rule for f in _hidden(claim=[claim]).findings] == [moved.rule]
    assert [f.rule for f in _hidden(claim=[claim], ignore=(moved.rule,)).findings] == ["PTO990"]


def test_settings_and_comments_silence_what_the_ranker_left_out() -> None:
    assert _hidden(ignore=("zero-grad-keeps-tensors",)).findings == ()
    head = HIDDEN.replace("False)", "False)  # ptopt: ignore[zero-grad-keeps-tensors]")
    assert review({"a.py": head}, _answers([], RIGHT), SURE_OF, config=SURE).findings == ()
