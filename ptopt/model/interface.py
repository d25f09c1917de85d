"""The interface of a back end, in values that need neither torch nor a network."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol

TEMPERATURE: Final = 0.7  # of answers that are drawn


class ModelUnavailableError(Exception):
    """The model is unreachable, too slow, or cannot do what was requested. The message is one line, fit for a review."""


@dataclass(frozen=True, slots=True)
class JudgePrompt:
    """A text in pieces. After each piece the next word is " yes" or " no"; pieces end in a letter.

    The pieces are one text: the model reads each after those before it, without the answers between them.
    """

    pieces: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ChatPrompt:
    """A system and a user message, and the JSON schema that the answer must have (None: free text)."""

    system: str
    user: str
    schema: Mapping[str, Any] | None = None
    max_tokens: int = 512
    examples: bool = True  # whether a general model is shown judged code before it
    seed: int | None = None  # of an answer that is drawn, at TEMPERATURE; None: the likeliest one


class Backend(Protocol):
    """A loaded model. Calls are blocking, and answer in the order of the prompts."""

    @property
    def name(self) -> str:
        """What runs, for the record of a review: base model, adapter, engine."""
        ...

    def score(self, prompts: Sequence[JudgePrompt]) -> list[tuple[float, ...]]:
        """logit(yes) - logit(no) after each piece of each prompt. Raises ModelUnavailableError."""
        ...

    def complete(self, prompts: Sequence[ChatPrompt]) -> list[str]:
        """One answer a prompt, greedy or drawn with its seed; where a schema is given it is enforced while decoding.

        Raises ModelUnavailableError.
        """
        ...

    def close(self) -> None:
        """Release all resources."""
        ...
