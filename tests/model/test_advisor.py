"""Each question gets its answer, or the model is away: nothing else comes out."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import pytest

from ptopt.model import prompt, schema
from ptopt.model.advisor import LONGEST_EXPLANATION, Advisor, Question
from ptopt.model.calibration import Calibration
from ptopt.model.interface import ModelUnavailableError
from ptopt.model.region import Candidate, Region, regions_of
from ptopt.rules import rules
from ptopt.source.file import SourceFile
from tests.model.scripted import Scripted

CODE = "import torch\n" + "".join(
    f"\n\ndef step{i}(model, x):\n    y = model(x)\n    return y.item()\n" for i in range(3)
)
SOURCE = SourceFile.parse("a.py", CODE.encode())
REGIONS = [r for r in regions_of(SOURCE, None, []) if r.symbol]


def _with_candidates(region: Region, count: int) -> Region:
    names = [rule.name for rule in rules()][:count]
    return dataclasses.replace(
        region, candidates=tuple(Candidate(name, (region.start + 2,)) for name in names)
    )


def test_the_record_tells_what_was_asked_in_which_words() -> None:
    record = Advisor(Scripted(name="tiny"), Calibration.off(), adapter="b" * 64).record
    assert (record.name, record.adapter, record.note) == ("tiny", "b" * 64, "")
    assert (record.prompt_version, record.schema_version) == (prompt.PROMPT_VERSION, schema.SCHEMA_VERSION)


def test_many_questions_on_many_regions_come_back_to_their_rules() -> None:
    regions = [
        _with_candidates(REGIONS[0], 11),
        _with_candidates(REGIONS[1], 0),
        _with_candidates(REGIONS[2], 8),
    ]
    backend = Scripted(verdict=lambda question: float(sum(question.encode()[-80:])))
    verdicts = Advisor(backend, Calibration.off()).judge(regions)
    assert [list(v) for v in verdicts] == [[c.rule for c in r.candidates] for r in regions]
    assert [len(p.pieces) for p in backend.judged] == [8, 3, 8]
    alone = Advisor(backend, Calibration.off()).judge([_with_candidates(REGIONS[0], 11)])
    assert alone[0] == verdicts[0]
    last = regions[0].candidates[-1].rule
    assert verdicts[0][last] == float(sum(backend.judged[1].pieces[-1].encode()[-80:]))


def test_without_a_question_the_model_is_not_called() -> None:
    away = Advisor(Scripted(calls=0), Calibration.off())
    assert away.judge([]) == [] == away.advise([]) == away.explain([])
    assert away.judge([_with_candidates(REGIONS[0], 0)]) == [{}]


class _Broken(Scripted):
    def __init__(self, answer: Any) -> None:
        super().__init__()
        self.answer = answer

    def score(self, prompts: Sequence[Any]) -> list[tuple[float, ...]]:
        if isinstance(self.answer, BaseException):
            raise self.answer
        return self.answer  # type: ignore[no-any-return]


@pytest.mark.parametrize(
    "answer",
    [
        [], [(1.0,), (1.0,)], [()], [(1.0, 2.0, 3.0)], [(1.0, float("nan"))], [(float("inf"), 0.0)],
        RuntimeError("CUDA out of memory"), MemoryError(), ConnectionResetError(), KeyError("choices"),
        ModelUnavailableError("no answer within 20 s"),
    ],
)  # fmt: skip
def test_an_answer_that_is_none_is_the_models_absence(answer: Any) -> None:
    advisor = Advisor(_Broken(answer), Calibration.off())
    with pytest.raises(ModelUnavailableError) as caught:
        advisor.judge([_with_candidates(REGIONS[0], 2)])
    assert "\n" not in str(caught.value)
    assert "CUDA" not in str(caught.value), "what a library says is not fit for a review"


def test_being_stopped_is_no_absence() -> None:
    with pytest.raises(KeyboardInterrupt):
        Advisor(_Broken(KeyboardInterrupt()), Calibration.off()).judge([_with_candidates(REGIONS[0], 2)])


def test_an_answer_that_does_not_conform_is_told_apart_from_none() -> None:
    answers = iter(['{"findings": []}', "Sure! Here is", '{"findings": [{"rule": "x"}]}'])
    found = Advisor(Scripted(say=lambda p: next(answers)), Calibration.off()).advise(REGIONS)
    assert [(a.advice, a.valid) for a in found] == [((), True), ((), False), ((), False)]


def test_a_region_of_one_endless_line_is_not_advised_on() -> None:
    source = SourceFile.parse("a.py", b"import torch; x = [" + b"torch.zeros(3)," * 5_000 + b"]")
    (region,) = regions_of(source, None, [])
    backend = Scripted(calls=0)
    assert [a.valid for a in Advisor(backend, Calibration.off()).advise([region])] == [True]


def test_sentences_are_one_line_and_short() -> None:
    question = Question(REGIONS[0], "item-every-step", (REGIONS[0].start,), "slow")
    texts = iter(["  It\n\nwaits. \t", "x " * 5_000_000, "", "\ud800"])
    said = Advisor(Scripted(say=lambda p: next(texts)), Calibration.off()).explain([question] * 4)
    assert said[0] == "It waits." and said[2] == ""
    assert len(said[1]) <= LONGEST_EXPLANATION and said[1].endswith("…")
