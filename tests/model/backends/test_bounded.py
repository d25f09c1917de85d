"""The limit on how long a review waits."""

from __future__ import annotations

import threading
from collections.abc import Sequence

import pytest

from ptopt.model.backends.bounded import CHUNK, Bounded
from ptopt.model.interface import ChatPrompt, JudgePrompt, ModelUnavailableError

PROMPT = JudgePrompt(("Q Answer",))


class Slow:
    """Waits for `go` before each answer."""

    name = "slow"

    def __init__(self) -> None:
        self.go = threading.Event()
        self.received: list[int] = []
        self.closed = False

    def score(self, prompts: Sequence[JudgePrompt]) -> list[tuple[float, ...]]:
        self.received.append(len(prompts))
        self.go.wait(30)
        return [(float(len(p.pieces)),) for p in prompts]

    def complete(self, prompts: Sequence[ChatPrompt]) -> list[str]:
        raise ModelUnavailableError("away")

    def close(self) -> None:
        self.closed = True


def test_answers_pass_through_in_order_and_in_chunks() -> None:
    inner = Slow()
    inner.go.set()
    prompts = [JudgePrompt(("Answer",) * n) for n in range(1, 2 * CHUNK)]
    assert Bounded(inner, 30).score(prompts) == [(float(n),) for n in range(1, 2 * CHUNK)]
    assert inner.received == [CHUNK, CHUNK - 1]
    assert Bounded(inner, 30).score([]) == []


def test_a_server_is_handed_all_and_takes_no_more_when_the_time_is_up() -> None:
    taken: list[int] = []
    go = threading.Event()

    class Taking(Slow):
        """Takes the prompts one by one, as a client does."""

        def score(self, prompts: Sequence[JudgePrompt]) -> list[tuple[float, ...]]:
            for number, _ in enumerate(prompts, 1):
                taken.append(number)
                if number == 2:
                    go.wait(10)
            return [(1.0,)] * len(prompts)

    with pytest.raises(ModelUnavailableError, match="longer than"):
        Bounded(Taking(), 0.05, chunk=None).score([PROMPT] * 5)
    go.set()
    for thread in threading.enumerate():
        if thread.name == "bounded-model":
            thread.join(10)
    assert taken == [1, 2]
    assert Bounded(Taking(), 30, chunk=None).score([PROMPT] * 5) == [(1.0,)] * 5
    assert taken == [1, 2, 1, 2, 3, 4, 5]


def test_when_time_is_up_the_review_goes_on_and_the_rest_is_not_asked() -> None:
    inner = Slow()
    bounded = Bounded(inner, 0.05)
    with pytest.raises(ModelUnavailableError, match=r"longer than the 0\.05 s"):
        bounded.score([PROMPT] * 5 * CHUNK)
    with pytest.raises(ModelUnavailableError, match="longer than"):  # one limit for all calls
        bounded.score([PROMPT])
    inner.go.set()
    for thread in threading.enumerate():
        if thread.name == "bounded-model":
            thread.join(10)
    assert inner.received == [CHUNK]
    assert Bounded(inner, 30).score([PROMPT]) == [(1.0,)]  # another review has its own time


def test_one_that_was_given_up_does_not_run_when_its_turn_comes() -> None:
    inner, gate = Slow(), threading.Lock()
    with gate, pytest.raises(ModelUnavailableError, match="took longer"):  # another review is being answered
        Bounded(inner, 0.05, gate=gate).score([PROMPT])
    inner.go.set()
    assert Bounded(inner, 30, gate=gate).score([PROMPT]) == [(1.0,)]
    assert inner.received == [1]


def test_errors_pass_through() -> None:
    with pytest.raises(ModelUnavailableError, match="away"):
        Bounded(Slow(), 30).complete([ChatPrompt("", "")])


@pytest.mark.parametrize("owns", [False, True])
def test_closing(owns: bool) -> None:
    inner = Slow()
    Bounded(inner, 1, owns=owns).close()
    assert inner.closed is owns
