"""A back end that says what a test wants it to say, and changes to review with it."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from ptopt.change import Change, parse_diff
from ptopt.config import Config
from ptopt.findings import Review
from ptopt.model.advisor import Advisor
from ptopt.model.calibration import Calibration, JudgeFit
from ptopt.model.interface import ChatPrompt, JudgePrompt, ModelUnavailableError
from ptopt.project.facts import NO_FACTS
from ptopt.review import review_change

MODEL_ALONE = JudgeFit(intercept=0.0, of_confidence=0.0, of_log_odds=1.0)  # the model alone decides
ALL = Calibration(MODEL_ALONE, advise_threshold=0.5, explain=True, measured_on="a test")


@dataclass
class Scripted:
    """`score` gets each question, `say` each chat prompt; the prompts are kept. `calls`: how many it answers."""

    verdict: Callable[[str], float] = lambda question: 0.0
    say: Callable[[ChatPrompt], str] = lambda prompt: ""
    calls: int = 1_000
    name: str = "scripted"
    judged: list[JudgePrompt] = field(default_factory=list)
    chats: list[ChatPrompt] = field(default_factory=list)

    def score(self, prompts: Sequence[JudgePrompt]) -> list[tuple[float, ...]]:
        self._call()
        self.judged += prompts
        return [tuple(self.verdict(piece) for piece in prompt.pieces) for prompt in prompts]

    def complete(self, prompts: Sequence[ChatPrompt]) -> list[str]:
        self._call()
        self.chats += prompts
        return [self.say(prompt) for prompt in prompts]

    def close(self) -> None:
        self.calls = 0

    def _call(self) -> None:
        self.calls -= 1
        if self.calls < 0:
            raise ModelUnavailableError("no answer within 20 s")


def change_of(heads: dict[str, str], bases: dict[str, str] | None = None) -> Change:
    """A change of files from `bases` (default: nothing) to `heads`."""
    diff = []
    for path, head in sorted(heads.items()):
        base = (bases or {}).get(path, "")
        old = f"a/{path}" if base else "/dev/null"
        diff += difflib.unified_diff(_lines(base), _lines(head), old, f"b/{path}")
    data = "".join(diff).encode("utf-8", "surrogatepass")
    return parse_diff(data, lambda path: heads[path].encode("utf-8", "surrogatepass"))


def _lines(text: str) -> list[str]:
    return (
        text.splitlines(True)
        if text.isascii() and "\x0c" not in text
        else [f"{x}\n" for x in text.split("\n")[:-1]]
    )


def review(
    heads: dict[str, str], backend: Scripted | None, calibration: Calibration = ALL, *,
    bases: dict[str, str] | None = None, config: Config | None = None,
) -> Review:  # fmt: skip
    advisor = None if backend is None else Advisor(backend, calibration, adapter="a" * 64)
    return review_change(change_of(heads, bases), config=config or Config(), facts=NO_FACTS, advisor=advisor)
