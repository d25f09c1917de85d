"""The model as a reviewer asks it: regions in, verdicts, advice and sentences out.

A back end may be away, slow, or broken in ways of its own. Out of here comes an answer for each question, or
`ModelUnavailableError`, so that no review is lost with it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from ptopt.findings import ModelRecord
from ptopt.model import prompt, schema
from ptopt.model.calibration import Calibration
from ptopt.model.port import Backend, ModelUnavailableError
from ptopt.model.region import ADVISE_TOKENS, JUDGE_TOKENS, Region, fit
from ptopt.model.schema import Advice

LONGEST_EXPLANATION = 600  # characters
_Prompt = TypeVar("_Prompt")
_Answer = TypeVar("_Answer")


@dataclass(frozen=True, slots=True)
class Question:
    """A finding to be explained; `lines` count in the text of the file."""

    region: Region
    rule: str
    lines: tuple[int, ...]
    message: str


@dataclass(frozen=True, slots=True)
class Answer:
    """What the model advises on a region; `valid` tells whether all of it was in the form asked for."""

    advice: tuple[Advice, ...]
    valid: bool


class Advisor:
    """A back end, and what its word is worth.

    `adapter` is the hash of the adapter it runs with, or ""; `judge_tokens` is how much code it learned to judge from.
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
        prompts = [prompt.judge(fit(region, self.judge_tokens)) for region in regions]
        asked = [one for several in prompts for one in several]
        scores = iter(_answers(self._backend.score, asked))
        verdicts = []
        for region, several in zip(regions, prompts, strict=True):
            values = [value for _ in several for value in next(scores)]
            if len(values) != len(region.candidates) or not all(map(math.isfinite, values)):
                raise ModelUnavailableError("the model did not answer each question with a number")
            verdicts.append({c.rule: float(v) for c, v in zip(region.candidates, values, strict=True)})
        return verdicts

    def advise(self, regions: Sequence[Region]) -> list[Answer]:
        """Findings of the model's own, as it gave them: nothing is checked yet. Raises ModelUnavailableError."""
        shown = [fit(region, ADVISE_TOKENS) for region in regions]
        asked = [region for region in shown if region.lines]  # one endless line can be all there is
        texts = iter(_answers(self._backend.complete, [prompt.advise(region) for region in asked]))
        answers = []
        for region in shown:
            if not region.lines:
                answers.append(Answer((), True))
                continue
            text = next(texts)
            answers.append(Answer(schema.parse(text, region), schema.is_valid(text, region)))
        return answers

    def explain(self, questions: Sequence[Question]) -> list[str]:
        """Per finding a sentence or two on one line, "" where there is none. Raises ModelUnavailableError."""
        prompts = [
            prompt.explain(fit(q.region, ADVISE_TOKENS), q.rule, q.lines, q.message) for q in questions
        ]
        return [_short(text) for text in _answers(self._backend.complete, prompts)]

    def close(self) -> None:
        """Give back what the back end holds."""
        self._backend.close()


def _answers(ask: Callable[[Sequence[_Prompt]], list[_Answer]], prompts: Sequence[_Prompt]) -> list[_Answer]:
    """An answer for each prompt; whatever goes wrong behind the port is the model's absence."""
    if not prompts:
        return []
    try:
        answers = ask(prompts)
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
