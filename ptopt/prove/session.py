"""A sandbox that judges pairs, one after the other, and what its measurements come to."""

from __future__ import annotations

import dataclasses
import json
import select
import statistics
import time
from typing import Any

from ptopt.findings import Proof
from ptopt.impact.machine import processor
from ptopt.impact.ratios import CLAIM, PROCESSES, interval, is_same
from ptopt.prove import sandbox
from ptopt.prove.extract import Pair
from ptopt.prove.reasons import Reason, RefusedError

PAIRS = 100  # of blocks, for each of the processes that are timed
_START = 60.0  # seconds in which torch must have been loaded
_SECONDS = 90.0  # of one judgement
_CPU = 3600  # seconds of processor time of all judgements
_ANSWER = 1 << 22  # bytes

PROGRAM = "from ptopt.prove.inside.referee import main; main()"


class Session:
    """Starts the sandbox with the first pair, and again after it had to be killed."""

    def __init__(self, *, pairs: int = PAIRS, processes: int = PROCESSES, program: str = PROGRAM) -> None:
        self._effort = {"pairs": pairs, "processes": processes}
        self._program = program
        self._process: Any = None

    def judge(self, pair: Pair) -> Proof:
        """The proof of a pair; raises `RefusedError` where it is not proved."""
        why = sandbox.missing()
        if why:
            raise RefusedError(Reason.NO_SANDBOX, why)
        job = {
            "before": dataclasses.asdict(pair.before), "after": dataclasses.asdict(pair.after), "name": pair.name,
            "parameters": [dataclasses.asdict(parameter) for parameter in pair.parameters], **self._effort,
        }  # fmt: skip
        answer = self._answer(json.dumps(job).encode() + b"\n")
        if "reason" in answer:
            raise RefusedError(Reason(answer["reason"]), str(answer["detail"])[:400])
        return from_times(answer)

    def close(self) -> None:
        if self._process is not None:
            sandbox.end(self._process)
            self._process = None

    def __enter__(self) -> Session:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _answer(self, line: bytes) -> dict[str, Any]:
        seconds = _SECONDS
        if self._process is None:
            self._process = sandbox.start(self._program, cpu_seconds=_CPU)
            seconds += _START
        try:
            self._process.stdin.write(line)
            self._process.stdin.flush()
            answer: dict[str, Any] = json.loads(self._line(time.monotonic() + seconds))
        except TimeoutError:
            self.close()
            raise RefusedError(Reason.TOO_LONG) from None
        except (OSError, ValueError):
            self.close()
            raise RefusedError(Reason.CRASHED) from None
        return answer

    def _line(self, end: float) -> bytes:
        data = bytearray()
        pipe = self._process.stdout
        while not data.endswith(b"\n"):
            ready, _, _ = select.select([pipe], [], [], max(0.0, end - time.monotonic()))
            if not ready:
                raise TimeoutError
            part = pipe.read1(1 << 16)
            data += part
            if not part or len(data) > _ANSWER:
                raise OSError("the sandbox has ended")
        return bytes(data)


def from_times(answer: dict[str, Any]) -> Proof:
    """A proof, when times allow the claim; raises `RefusedError`.

    Claimed is what the lower end of the interval of processor time shows: nothing else counts in code of one thread that
    cannot wait. The wall clock must agree on the sign, and so must the time with the results; and it must exceed what the
    code before shows against itself.
    """
    rounds = answer["rounds"]
    median, low, high = interval([one["cpu"] for one in rounds])
    _, least, most = itself = interval([one["self"] for one in rounds])
    agree = all(statistics.median(x for one in rounds for x in one[name]) > 0 for name in ("wall", "whole"))
    times = f"{median:.2f}x, {low:.2f} to {high:.2f} times as fast where {answer['sizes']}"
    if low <= CLAIM or not agree:
        raise RefusedError(Reason.NOT_FASTER, times)
    if not is_same(itself) and low <= CLAIM * max(most, 1 / least):
        raise RefusedError(Reason.NOT_FASTER, f"{times}, but the machine is too busy to tell")
    where = f"{answer['sizes']}; {processor()}, 1 thread, torch {answer['torch']}"
    return Proof(answer["inputs"], round(low, 2), round(high, 2), where)
