"""A time limit for all calls that one review makes to a model."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import TypeVar, overload

from ptopt.model.interface import Backend, ChatPrompt, JudgePrompt, ModelUnavailableError

CHUNK = 8  # prompts handed over at once: what may still run when the time is up
_P = TypeVar("_P")
_A = TypeVar("_A")


class Bounded:
    """A back end for one review: all its calls together wait `seconds` at most, counted from the first.

    A call cannot be stopped from outside, so it runs in a thread of its own; when the time is up the caller goes
    on, and the thread ends after the chunk that it is in. `chunk`: prompts of one; None: all, for a back end that takes
    them one by one as it can, and so is stopped by an end of them. `close` closes the back end only if `owns` it.
    `gate` is held for each chunk: shared by all reviews of a back end that serves one call at a time, it keeps
    abandoned calls from running later.
    """

    def __init__(
        self,
        backend: Backend,
        seconds: float,
        *,
        owns: bool = False,
        gate: AbstractContextManager[object] | None = None,
        chunk: int | None = CHUNK,
    ) -> None:
        self._backend = backend
        self._chunk = chunk
        self._gate = gate or nullcontext()
        self._seconds = seconds
        self._until: float | None = None
        self._owns = owns

    @property
    def name(self) -> str:
        return self._backend.name

    def score(self, prompts: Sequence[JudgePrompt]) -> list[tuple[float, ...]]:
        return self._within(self._backend.score, prompts)

    def complete(self, prompts: Sequence[ChatPrompt]) -> list[str]:
        return self._within(self._backend.complete, prompts)

    def close(self) -> None:
        if self._owns:
            self._backend.close()

    def _within(self, call: Callable[[Sequence[_P]], list[_A]], prompts: Sequence[_P]) -> list[_A]:
        if self._until is None:
            self._until = time.monotonic() + self._seconds
        answers: list[_A] = []
        failed: list[BaseException] = []
        given_up = threading.Event()

        def work() -> None:
            try:
                if self._chunk is None:
                    answers.extend(call(_Withdrawable(prompts, given_up)))
                    return
                for begin in range(0, len(prompts), self._chunk):
                    with self._gate:
                        if given_up.is_set():
                            return
                        answers.extend(call(prompts[begin : begin + self._chunk]))
            except BaseException as error:  # handed to the caller
                failed.append(error)

        thread = threading.Thread(target=work, name="bounded-model", daemon=True)
        left = self._until - time.monotonic()
        if left > 0:
            thread.start()
            thread.join(left)
        if left <= 0 or thread.is_alive():
            given_up.set()
            raise ModelUnavailableError(
                f"the model took longer than the {self._seconds:.3g} s a review waits for it"
            )
        if failed:
            raise failed[0]
        return answers


class _Withdrawable(Sequence[_P]):
    """The prompts, until the time is up."""

    def __init__(self, prompts: Sequence[_P], given_up: threading.Event) -> None:
        self._prompts, self._given_up = prompts, given_up

    def __len__(self) -> int:
        return len(self._prompts)

    @overload
    def __getitem__(self, at: int) -> _P: ...

    @overload
    def __getitem__(self, at: slice) -> Sequence[_P]: ...

    def __getitem__(self, at: int | slice) -> _P | Sequence[_P]:
        if self._given_up.is_set():
            raise ModelUnavailableError("the review does not wait any more")
        return self._prompts[at]
