"""The model as a review uses it: regions in, verdicts, advice and sentences out.

A back end may be unreachable, slow or broken. Callers get an answer for each question, or `ModelUnavailableError`, so that
no review fails with it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar, overload

from ptopt.findings import ModelRecord
from ptopt.model import audit_rows, prompt, schema, whole_change
from ptopt.model.audit_rows import Row, RowAnswer, Sheet, Shown
from ptopt.model.calibration import Calibration
from ptopt.model.interface import Backend, ModelUnavailableError
from ptopt.model.region import ADVISE_TOKENS, JUDGE_TOKENS, Region, estimate, fit, render
from ptopt.model.schema import Advice
from ptopt.model.whole_change import CHECK_TOKENS, REGION_TOKENS, Check, Claim

LONGEST_EXPLANATION = 600  # characters
_Prompt = TypeVar("_Prompt")
_Answer = TypeVar("_Answer")
_Item = TypeVar("_Item")


@dataclass(frozen=True, slots=True)
class Question:
    """A finding to be explained; `lines` count in the text of the file."""

    region: Region
    rule: str
    lines: tuple[int, ...]
    message: str


@dataclass(frozen=True, slots=True)
class Answer:
    """The model's own findings in a region; `valid`: the whole answer conformed to the schema."""

    advice: tuple[Advice, ...]
    valid: bool


class Advisor:
    """A back end and its calibration.

    `adapter` is the hash of the adapter it runs with, or ""; `judge_tokens` is how much code it was trained to judge from.
    """

    def __init__(
        self,
        backend: Backend,
        calibration: Calibration,
        *,
        adapter: str = "",
        judge_tokens: int = JUDGE_TOKENS,
    ) -> None:
        self._backend = backend
        self.judge_tokens = judge_tokens
        self.calibration = calibration
        self.record = ModelRecord(backend.name, adapter, prompt.PROMPT_VERSION, schema.SCHEMA_VERSION)

    def judge(self, regions: Sequence[Region]) -> list[dict[str, float]]:
        """Per region, the log-odds that each of its candidates (by rule) is right. Raises ModelUnavailableError."""
        parts = [(region, part) for region in regions for part in range(prompt.number_of_prompts(region))]
        flat = _Rendered(parts, lambda a: prompt.judge(fit(a[0], self.judge_tokens))[a[1]])
        scores = iter(_answers(self._backend.score, flat))
        verdicts = []
        for region in regions:
            values = [value for _ in range(prompt.number_of_prompts(region)) for value in next(scores)]
            if len(values) != len(region.candidates) or not all(map(math.isfinite, values)):
                raise ModelUnavailableError("the model did not answer each question with a number")
            verdicts.append({c.rule: float(v) for c, v in zip(region.candidates, values, strict=True)})
        return verdicts

    def advise(self, regions: Sequence[Region]) -> list[Answer]:
        """The model's own findings, not verified yet. Raises ModelUnavailableError."""
        shown = [fit(region, ADVISE_TOKENS) for region in regions]
        readable = [region for region in shown if region.lines]  # an endless line leaves none
        texts = iter(_answers(self._backend.complete, _Rendered(readable, prompt.advise)))
        answers = []
        for region in shown:
            if not region.lines:
                answers.append(Answer((), True))
                continue
            text = next(texts)
            answers.append(Answer(schema.parse(text, region), schema.is_valid(text, region)))
        return answers

    def review(self, regions: Sequence[Region]) -> tuple[list[Claim], int]:
        """What the model would say of a change whose regions these are, and the number of invalid answers.

        Raises ModelUnavailableError.
        """
        shown = [one for region in regions if (one := fit(region, REGION_TOKENS)).lines]
        parts = whole_change.packed(shown, [estimate(render(region)) for region in shown])
        found: list[Claim] = []
        invalid = 0
        for part, text in zip(
            parts, _answers(self._backend.complete, _Rendered(parts, whole_change.review)), strict=True
        ):
            claims, valid = whole_change.claims(text, part)
            found += claims
            invalid += not valid
        return sorted(found, key=lambda claim: -claim.sure)[: whole_change.MAX_CLAIMS], invalid

    def check(self, claims: Sequence[tuple[Claim, Region]]) -> list[Check | None]:
        """What the model makes of each claim when it is to prove it wrong, with the whole file of the claim before it; None for
        an invalid answer. Raises ModelUnavailableError.
        """
        return self._checks([(*pair, None) for pair in claims])

    def check_again(self, claims: Sequence[tuple[Claim, Region]], times: int) -> list[list[Check | None]]:
        """Per claim so many further opinions: the question of `check`, with answers that are drawn. Raises ModelUnavailableError."""
        checks = self._checks([(*pair, seed) for pair in claims for seed in range(1, times + 1)])
        return [checks[at * times : (at + 1) * times] for at in range(len(claims))]

    def _checks(self, asked: Sequence[tuple[Claim, Region, int | None]]) -> list[Check | None]:
        prompts = _Rendered(asked, lambda one: whole_change.check(one[0], fit(one[1], CHECK_TOKENS), one[2]))
        return [whole_change.parse_check(text) for text in _answers(self._backend.complete, prompts)]

    def read(self, sheets: Sequence[Sheet]) -> list[tuple[dict[str, RowAnswer], bool]]:
        """What the model says of the rows of each table, by key, and whether its answer conforms. Raises ModelUnavailableError."""
        texts = _answers(self._backend.complete, _Rendered(sheets, audit_rows.read))
        return [audit_rows.answers(text, sheet) for text, sheet in zip(texts, sheets, strict=True)]

    def doubt(self, changes: Sequence[tuple[Sheet, Row, RowAnswer, Shown]]) -> list[bool | None]:
        """Does each change of a row stand when the model is to prove it wrong? None for an invalid answer.

        Raises ModelUnavailableError.
        """
        prompts = _Rendered(changes, lambda change: audit_rows.doubt(*change))
        return [audit_rows.stands(text) for text in _answers(self._backend.complete, prompts)]

    def explain(self, questions: Sequence[Question]) -> list[str]:
        """Per finding a sentence or two on one line, "" where there is none. Raises ModelUnavailableError."""
        prompts = _Rendered(
            questions, lambda q: prompt.explain(fit(q.region, ADVISE_TOKENS), q.rule, q.lines, q.message)
        )
        return [_short(text) for text in _answers(self._backend.complete, prompts)]

    def close(self) -> None:
        """Release the resources of the back end."""
        self._backend.close()


def _answers(call: Callable[[Sequence[_Prompt]], list[_Answer]], prompts: Sequence[_Prompt]) -> list[_Answer]:
    """An answer for each prompt; any error of the back end becomes ModelUnavailableError."""
    if not prompts:
        return []
    try:
        answers = call(prompts)
    except ModelUnavailableError:
        raise
    except Exception as error:
        raise ModelUnavailableError(f"the model failed ({type(error).__name__})") from error
    if len(answers) != len(prompts):
        raise ModelUnavailableError("the model did not answer every question")
    return answers


def _short(text: str) -> str:
    words = " ".join(text[: 4 * LONGEST_EXPLANATION].split())
    return words if len(words) <= LONGEST_EXPLANATION else f"{words[: LONGEST_EXPLANATION - 2].rstrip()} …"


class _Rendered(Sequence[_Prompt], Generic[_Item, _Prompt]):
    """Prompts that are rendered when a back end takes them: a server begins before the last is there."""

    def __init__(self, items: Sequence[_Item], render: Callable[[_Item], _Prompt]) -> None:
        self._items, self._render = items, render
        self._prompts: dict[int, _Prompt] = {}

    def __len__(self) -> int:
        return len(self._items)

    @overload
    def __getitem__(self, at: int) -> _Prompt: ...

    @overload
    def __getitem__(self, at: slice) -> list[_Prompt]: ...

    def __getitem__(self, at: int | slice) -> _Prompt | list[_Prompt]:
        if isinstance(at, slice):
            return [self[one] for one in range(*at.indices(len(self)))]
        if at not in self._prompts:
            self._prompts[at] = self._render(self._items[at])
        return self._prompts[at]
