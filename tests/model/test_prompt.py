from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings

from ptopt.model import prompt
from ptopt.model.interface import ChatPrompt, JudgePrompt
from ptopt.model.region import Candidate, Region, estimate, fit, regions_of
from ptopt.model.schema import advice_schema
from ptopt.rules import rules
from ptopt.source.file import SourceFile
from ptopt.syntax import ParseError
from tests.model.hostile import SPECIAL, texts

CODE = """\
import torch


class Trainer:
    def fit(self, model, loader, opt):
        for x in loader:
            loss = model(x).mean()
            loss.backward()
            opt.step()
            print(loss.item())
"""


def region(*names: str, code: str = CODE, path: str = "train.py") -> Region:
    source = SourceFile.parse(path, code.encode())
    return regions_of(source, None, [Candidate(name, (10,)) for name in names or ("item-every-step",)])[0]


def hostile_region(text: str) -> Region:
    """The text as comment, string, name, path and rule of a region."""
    flat = "".join(" " if c in "\r\n\0" or "\ud800" <= c <= "\udfff" else c for c in text)
    code = f"def f(loss):\n    # {flat}\n    x = {flat!r}\n    loss.item()\n    return {flat}\n"
    try:
        source = SourceFile.parse(f"{flat}.py", code.encode())
    except ParseError:
        source = SourceFile.parse(f"{flat}.py", code.rpartition("    return")[0].encode())
    (found,) = regions_of(source, None, [Candidate("item-every-step", (4,)), Candidate(text, (3,))])
    return found


def rendered(found: Region, message: str) -> list[str]:
    chats = [prompt.advise(found), prompt.explain(found, "item-every-step", (4,), message)]
    judged = ["".join(p.pieces) for p in prompt.judge(found)]
    return [*judged, *(part for chat in chats for part in (chat.system, chat.user))]


def test_a_judge_prompt_reads_as_a_page() -> None:
    (question,) = prompt.judge(region("item-every-step", "tensor-logged-every-step"))
    first = """\
Does this PyTorch code have the performance problem, and is it worth a comment? Answer yes or no. \
+ marks lines of the change, - lines that it removed.
Code of Trainer.fit:
1 def fit(self, model, loader, opt):
2     for x in loader:
3         loss = model(x).mean()
4         loss.backward()
5         opt.step()
6         print(loss.item())
Facts: lines 3-6: training step; Python waits for the GPU: line 6; may run on a GPU.
Line 6, item-every-step: A tensor is read back to Python in code that runs often. Answer"""
    second = (
        "\nLine 6, tensor-logged-every-step: A tensor is printed or logged on every training step. Answer"
    )
    assert question == JudgePrompt((first, second))


def test_one_piece_a_candidate_in_their_order_eight_a_prompt() -> None:
    names = [rule.name for rule in rules()][:19]
    questions = prompt.judge(region(*names))
    assert [len(p.pieces) for p in questions] == [8, 8, 3]
    pieces = [piece for p in questions for piece in p.pieces]
    for name, piece in zip(names, pieces, strict=True):
        assert piece.rpartition("\n")[2].startswith(f"Line 6, {name}: ")
        assert piece.endswith(" Answer")
    heads = {p.pieces[0].rpartition("\n")[0] for p in questions}
    assert len(heads) == 1


def test_nothing_asked_no_prompt() -> None:
    source = SourceFile.parse("a.py", CODE.encode())
    (found,) = regions_of(source, None, [])
    assert prompt.judge(found) == []


@pytest.mark.parametrize("rule", rules(), ids=lambda rule: rule.name)
def test_a_question_is_short(rule: Any) -> None:
    (question,) = prompt.judge(region(rule.name))
    assert estimate(question.pieces[0].rpartition("\n")[2]) <= 48
    assert rule.summary() in question.pieces[0]


def test_the_path_is_not_shown() -> None:
    assert not [text for text in rendered(region(path="secret/place.py"), "") if "secret" in text]


def test_advice_names_problems_whose_words_are_there() -> None:
    chat = prompt.advise(region())
    assert "item-every-step" in chat.user
    assert "tensor-logged-every-step" in chat.user
    assert "loader-without-workers" not in chat.user
    assert chat.schema is not None
    assert chat.schema == advice_schema(region()) == prompt.advise(fit(region(), 50)).schema


def test_an_explanation_is_asked_in_shown_numbers() -> None:
    message = "`loss.item()` waits on every step of the loop at line 6 (see line 2)."
    chat = prompt.explain(region(), "item-every-step", (10,), message)
    assert isinstance(chat, ChatPrompt)
    assert chat.schema is None
    assert "Finding in line 6, item-every-step: A tensor is read back" in chat.user
    assert (
        "The rule says: `loss.item()` waits on every step of the loop at line 2 (see another line).\n"
        in chat.user
    )
    assert "Finding in lines 5 to 6," in prompt.explain(region(), "item-every-step", (9, 10), "").user
    assert "Finding in this code," in prompt.explain(region(), "item-every-step", (99,), "").user


@pytest.mark.parametrize(
    ("message", "shown"),
    [
        ("the attention of lines 6 to 8", "the attention of lines 2 to 4"),
        ("lines 6, 7 and 10 read it, line 9 too", "lines 2, 3 and 6 read it, line 5 too"),
        ("lines 2 and 6 do", "other lines do"),
        ("baseline 6 and 2 lines 3x", "baseline 6 and 2 lines 3x"),
    ],
)
def test_all_numbers_of_lines_are_shown_ones(message: str, shown: str) -> None:
    assert prompt.in_shown_numbers(region(), message) == shown


def test_the_words_of_a_rule_stand_in_its_examples() -> None:
    without = [
        rule.name
        for rule in rules()
        if not any(word in example.code for word in prompt.words_of(rule.name) for example in rule.INVALID)
    ]
    assert without == []
    assert prompt.words_of("no-such-rule") == ()


@pytest.mark.parametrize("token", SPECIAL)
def test_special_tokens_reach_no_prompt(token: str) -> None:
    for text in rendered(hostile_region(token), token):
        assert token not in text


@settings(suppress_health_check=[HealthCheck.too_slow], deadline=None)
@given(texts, texts)
def test_hostile_text_changes_neither_the_lines_nor_the_questions(text: str, message: str) -> None:
    found = hostile_region(text)
    (question,) = prompt.judge(found)
    assert len(question.pieces) == len(found.candidates) <= 2
    lines = question.pieces[0].split("\n")
    numbers = [line.split(" ")[0] for line in lines[2 : 2 + len(found.lines)]]
    assert numbers == [str(n) for n in range(1, len(found.lines) + 1)]
    assert len(lines) == len(found.lines) + 4  # what is asked, title, facts, the first question
    assert all(piece.endswith(" Answer") for piece in question.pieces)
    assert question.pieces[-1].count("\n") == (1 if len(question.pieces) > 1 else len(lines) - 1)
    for said in rendered(found, message):
        said.encode("utf-8")
        assert not [token for token in SPECIAL if token in said]


def test_the_same_region_gives_the_same_bytes() -> None:
    names = [rule.name for rule in rules()][:5]
    assert rendered(region(*names), "m") == rendered(region(*names), "m")


@pytest.fixture(scope="session")
def tokenizer(base_model: Path) -> Any:
    """The tokenizer of SmolLM2, as it is trained and served with."""
    return pytest.importorskip("transformers").AutoTokenizer.from_pretrained(base_model)


@pytest.mark.model
@settings(suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture], deadline=None)
@given(texts, texts)
def test_the_real_tokenizer_finds_no_special_token(tokenizer: Any, text: str, message: str) -> None:
    special = set(tokenizer.all_special_ids) | set(tokenizer.added_tokens_decoder)
    assert len(special) > 2
    for said in rendered(hostile_region(text), message):
        assert not special & set(tokenizer(said, add_special_tokens=False)["input_ids"])


@pytest.mark.model
def test_the_real_tokenizer_would_find_them(tokenizer: Any) -> None:
    """What the test above guards against does happen without `neutralise`."""
    special = set(tokenizer.all_special_ids)
    assert special & set(tokenizer("# <|im_end|>", add_special_tokens=False)["input_ids"])
    for token in (*SPECIAL, *tokenizer.get_added_vocab()):
        for said in rendered(hostile_region(token), token):
            assert not special & set(tokenizer(said, add_special_tokens=False)["input_ids"])


@pytest.mark.model
def test_the_estimate_is_close_and_rather_too_high(tokenizer: Any) -> None:
    ratios = []
    for rule in rules():
        for example in rule.INVALID:
            real = len(tokenizer(example.code, add_special_tokens=False)["input_ids"])
            ratios.append(estimate(example.code) / real)
    ratios.sort()
    assert ratios[len(ratios) // 20] > 0.95
    assert ratios[-len(ratios) // 20] < 1.5


@pytest.mark.model
def test_an_answer_is_one_token_after_a_mark(tokenizer: Any) -> None:
    (question,) = prompt.judge(region())
    whole = question.pieces[0]
    ids = tokenizer(whole, add_special_tokens=False)["input_ids"]
    for word in (" yes", " no"):
        longer = tokenizer(whole + word, add_special_tokens=False)["input_ids"]
        assert longer[:-1] == ids
