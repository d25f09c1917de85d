"""Models whose answers are known, and an opener that says what was opened and closed."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence

from ptopt.model.advisor import Advisor
from ptopt.model.calibration import Calibration, JudgeFit
from ptopt.model.interface import ChatPrompt, JudgePrompt, ModelUnavailableError
from service.settings import Settings

CALIBRATION = Calibration(judge=JudgeFit(0.0, 1.0, 0.1))


class Scripted:
    """Says yes to everything. Being used after it was closed is an error."""

    def __init__(self, name: str, adapter: str = "", linger: float = 0.0) -> None:
        self.name, self.adapter, self.linger = name, adapter, linger
        self.closed = self.retired = False
        self.kept = 0

    def advisor(self, seconds: float) -> Advisor:
        assert seconds > 0
        return Advisor(self, CALIBRATION, adapter=self.adapter)

    def score(self, prompts: Sequence[JudgePrompt]) -> list[tuple[float, ...]]:
        assert not self.closed
        return [tuple(3.0 for _ in prompt.pieces) for prompt in prompts]

    def complete(self, prompts: Sequence[ChatPrompt]) -> list[str]:
        raise ModelUnavailableError("it does not chat")

    def keep(self) -> None:
        self.kept += 1

    def retire(self) -> None:
        self.retired = True
        self.close()

    def close(self) -> None:
        assert not self.closed, "closed twice"
        self.closed = True


class Opener:
    """Opens scripted models. `fail` holds the keys that cannot be opened, `gates` what opening waits for."""

    def __init__(self, linger: float = 0.0) -> None:
        self.opened: list[Scripted] = []
        self.fail: dict[str, Exception] = {}
        self.gates: dict[str, threading.Event] = {}
        self.tries: list[str] = []
        self.before: Callable[[], object] = lambda: None
        self._linger = linger

    def __call__(self, settings: Settings, spec: str, adapter: str) -> Scripted:
        key = adapter or spec
        self.tries.append(key)
        self.before()
        if key in self.gates:
            assert self.gates[key].wait(30)
        if key in self.fail:
            raise self.fail[key]
        self.opened.append(Scripted(spec, adapter, self._linger))
        return self.opened[-1]

    def open_now(self) -> list[str]:
        return [model.adapter or model.name for model in self.opened if not model.closed]


def soon(what: object, seconds: float = 20.0) -> None:
    """Until `what()` is true."""
    assert callable(what)
    deadline = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.01)
