"""A back end of a general model: each question as a chat, with examples of right answers."""

from __future__ import annotations

from collections.abc import Sequence

from ptopt.model.backends.openai import OpenAIBackend
from ptopt.model.general import Example, advice, questions
from ptopt.model.interface import ChatPrompt, JudgePrompt


class GeneralBackend:
    """Closing it closes the server's client."""

    def __init__(self, server: OpenAIBackend, examples: Sequence[Example]) -> None:
        self.server = server
        self._examples = tuple(examples)

    @property
    def name(self) -> str:
        return f"{self.server.name}, without an adapter"

    def score(self, prompts: Sequence[JudgePrompt]) -> list[tuple[float, ...]]:
        """All questions at once."""
        chats = (chat for prompt in prompts for chat in questions(prompt, self._examples))
        odds = iter(self.server.yes_or_no(chats))
        return [tuple(next(odds) for _ in prompt.pieces) for prompt in prompts]

    def complete(self, prompts: Sequence[ChatPrompt]) -> list[str]:
        return self.server.complete([advice(prompt, self._examples) for prompt in prompts])

    def close(self) -> None:
        self.server.close()
