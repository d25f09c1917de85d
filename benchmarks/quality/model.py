"""The model that the commands of this benchmark review with: behind a server, or as recorded answers.

Recorded answers make a measurement repeatable without the model: JSON lines of `prompt` (the hash of what it was asked) and
`answer`. With `--ask DIR` each prompt without a recorded answer is written to DIR as a file, to be answered by whatever
model is at hand; claims are asked first, then the checks of what was claimed, then further opinions on what stood (prompts with a
`seed`, each to be answered anew), so it takes three rounds.
"""

from __future__ import annotations

import argparse
import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from benchmarks.quality.common import read_rows
from ptopt.findings import Review
from ptopt.model.advisor import Advisor
from ptopt.model.backends.general import GeneralBackend
from ptopt.model.backends.open import open_advisor
from ptopt.model.backends.openai import OpenAIBackend
from ptopt.model.calibration import Calibration
from ptopt.model.general import is_general
from ptopt.model.interface import Backend, ChatPrompt, JudgePrompt, ModelUnavailableError

_SECONDS = 600.0  # that a review waits for a server
# Of recorded findings, what `calibrate` says of the recorded answers.
_CONFIDENCE = 0.61
_THRESHOLD = 0.42
_NOTHING = '{"findings": []}'


@dataclass(frozen=True)
class ModelOptions:
    """How to reach the model; nothing given: rules alone."""

    answers: tuple[Path, ...] = ()
    ask: Path | None = None
    threshold: float = 0.0
    model: str = ""
    server: str = ""

    def advisor(self, watch: Callable[[ChatPrompt], None] | None = None) -> Advisor | None:
        """`watch` sees the prompts to a server by name and to recorded answers. Raises ModelUnavailableError."""
        calibration = Calibration(change_threshold=self.threshold, change_confidence=_CONFIDENCE)
        if is_general(self.model):
            return open_advisor(self.model, server=self.server, seconds=_SECONDS)
        if self.model:
            server = OpenAIBackend(self.server, self.model, timeout=_SECONDS)
            backend: Backend = GeneralBackend(server, ())
        elif not self.answers and self.ask is None:
            return None
        else:
            backend = Recorded(_recorded(self.answers), self.ask)
        return Advisor(backend if watch is None else _Watched(backend, watch), calibration)


RULES_ALONE = ModelOptions()


def add_model_options(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("a general model, asked about each change as a whole")
    group.add_argument(
        "--model", default="", help="as the server names it, or the file of `training calibrate`"
    )
    group.add_argument("--model-server", default="", metavar="URL")
    group.add_argument(
        "--answers",
        type=Path,
        nargs="+",
        default=(),
        metavar="FILE",
        help="recorded answers of a model, JSON lines",
    )
    group.add_argument("--ask", type=Path, metavar="DIR", help="write the prompts without an answer here")
    group.add_argument(
        "--change-threshold", type=float, default=_THRESHOLD, metavar="P", help="default: %(default)s"
    )


def model_options(options: argparse.Namespace) -> ModelOptions:
    return ModelOptions(
        tuple(options.answers), options.ask, options.change_threshold, options.model, options.model_server
    )


UNANSWERED = "the model did not answer"  # why a commit is not counted


def is_unanswered(review: Review) -> bool:
    """Was a model asked, in vain? Recorded answers are those to the prompts of one version of ptopt."""
    return review.model is not None and bool(review.model.note)


class Recorded:
    """A back end that answers as a model once did."""

    name = "recorded answers"

    def __init__(self, answers: Mapping[str, str], ask: Path | None) -> None:
        self._answers, self._ask = answers, ask

    def score(self, prompts: Sequence[JudgePrompt]) -> list[tuple[float, ...]]:
        raise ModelUnavailableError("no verdicts were recorded")

    def complete(self, prompts: Sequence[ChatPrompt]) -> list[str]:
        return [self._answer(prompt) for prompt in prompts]

    def close(self) -> None:
        pass

    def _answer(self, prompt: ChatPrompt) -> str:
        key = key_of(prompt)
        if key in self._answers:
            return self._answers[key]
        if self._ask is None:
            raise ModelUnavailableError(f"no answer was recorded to prompt {key}; --ask DIR writes it out")
        self._ask.mkdir(parents=True, exist_ok=True)
        asked: dict[str, Any] = {
            "prompt": key,
            "system": prompt.system,
            "user": prompt.user,
            "schema": prompt.schema,
        }
        if prompt.seed is not None:
            asked["seed"] = prompt.seed
        (self._ask / f"{key}.json").write_text(json.dumps(asked), encoding="utf-8")
        return _NOTHING


class _Watched:
    """A back end whose prompts somebody counts."""

    def __init__(self, backend: Backend, watch: Callable[[ChatPrompt], None]) -> None:
        self._backend, self._watch = backend, watch
        self.name = backend.name

    def score(self, prompts: Sequence[JudgePrompt]) -> list[tuple[float, ...]]:
        return self._backend.score(prompts)

    def complete(self, prompts: Sequence[ChatPrompt]) -> list[str]:
        for prompt in prompts:
            self._watch(prompt)
        return self._backend.complete(prompts)

    def close(self) -> None:
        self._backend.close()


def key_of(prompt: ChatPrompt) -> str:
    """What a recorded answer is found by: 16 hexadecimal digits."""
    drawn = "" if prompt.seed is None else f"\0{prompt.seed}"
    return hashlib.sha256(
        f"{prompt.system}\0{prompt.user}{drawn}".encode("utf-8", "surrogatepass")
    ).hexdigest()[:16]


@cache
def _recorded(files: Sequence[Path]) -> Mapping[str, str]:
    return {row["prompt"]: json.dumps(row["answer"]) for row in read_rows(files)}
