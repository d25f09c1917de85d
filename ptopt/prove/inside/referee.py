"""The referee: takes jobs as lines of JSON, and answers each with one. It makes the inputs and compares the results.

A job holds `before`, `after` (source and imports), `name`, `parameters`, and how many `pairs` are timed in how many
`processes`. The answer holds the number of inputs and the logarithms of the ratios of times, or the reason of a refusal.
"""

from __future__ import annotations

import gc
import json
import os
import sys
import time
from collections.abc import Iterator
from typing import Any

import torch

from ptopt.prove.inside import confine, inputs, wire
from ptopt.prove.inside.compare import NotComparableError, difference, error_of
from ptopt.prove.inside.layout import Call, case_of, described
from ptopt.prove.inside.process import Process
from ptopt.prove.inside.timing import DifferentError, pairs, seconds_of
from ptopt.prove.inside.warm import warm
from ptopt.prove.reasons import Reason, RefusedError

_SEARCH = 2.0  # seconds in which inputs are looked for
_COMPARE = 8.0  # seconds in which results are compared
_TYPES = 5  # combinations of types and plain values that are used
_VALUES = 12  # of plain values where there is no tensor
_TRIED = 60  # combinations of shapes that run, of one of types
_SHAPES = 12  # combinations of types and shapes that are used
_LEAST = 8  # inputs on which the code must run
_ELEMENTS = 1 << 13  # of the largest tensor when it is timed
_SLOW = 2e-3  # seconds that a timed call should not exceed


def main() -> None:
    """Serve until standard input ends."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    torch.set_num_threads(1)
    warm()
    gc.collect()
    gc.freeze()
    for line in sys.stdin:
        confine.note_size()
        job = json.loads(line)
        try:
            answer = _judged(job)
        except RefusedError as error:
            answer = {"reason": error.reason.value, "detail": error.detail}
        except NotComparableError as error:
            answer = {"reason": Reason.NOT_COMPARABLE.value, "detail": str(error)}
        except wire.LateError:
            answer = {"reason": Reason.TOO_LONG.value, "detail": ""}
        except wire.BrokenError:
            answer = {"reason": Reason.CRASHED.value, "detail": ""}
        except Exception as error:  # whatever a process may have sent
            answer = {"reason": Reason.CRASHED.value, "detail": f"{type(error).__name__} while comparing"}
        answers.write(json.dumps(answer) + "\n")
        answers.flush()


def _judged(job: dict[str, Any]) -> dict[str, Any]:
    with _started(job["before"], job) as before, _started(job["after"], job) as after:
        chosen = _found(job, before)
        count = _compared(job, chosen, before, after)
        size, seconds = _timed_size(job, chosen, before)
    rounds = []
    for seed in range(job["processes"]):
        sides = (job["before"], job["after"], job["before"])
        with _started(sides[0], job) as one, _started(sides[1], job) as two, _started(sides[2], job) as same:
            try:
                ratios = pairs(one, two, size, seconds, job["pairs"], seed)
                itself = pairs(one, same, size, seconds, max(job["pairs"] // 2, 10), seed + 100)
            except DifferentError as error:
                raise RefusedError(Reason.DIFFERENT, f"{error} where {described(size)}") from None
        rounds.append({**ratios, "self": itself["cpu"]})
    return {"inputs": count, "rounds": rounds, "sizes": described(size), "torch": torch.__version__}


def _started(side: dict[str, Any], job: dict[str, Any]) -> Process:
    process = Process(side, job["name"])
    try:
        answer = process.receive()
    except (wire.LateError, wire.BrokenError):
        process.close()
        raise
    if error_of(answer):
        process.close()
        raise RefusedError(Reason.NO_INPUT, f"its definition raises {error_of(answer)}")
    return process


def _error(process: Process, call: Call) -> str:
    """The exception that the call raises; "" for none."""
    case = case_of(call, torch.Generator().manual_seed(0))
    return error_of(process.ask(case.header("run"), case.blobs))


def _found(job: dict[str, Any], before: Process) -> list[inputs.Plan]:
    """Types and shapes on which the code before runs: of each kind of shapes some, the likeliest first."""
    parameters = job["parameters"]
    kinds: dict[tuple[Any, ...], list[inputs.Plan]] = {}
    end = time.monotonic() + _SEARCH
    errors: dict[str, int] = {}
    succeeded = 0
    for assignment in inputs.assignments(parameters):
        if succeeded == (_TYPES if any(c["kind"] in inputs.OF_TENSORS for c in assignment) else _VALUES):
            break
        known = sum(map(len, kinds.values()))
        for plan in inputs.plans(assignment, 0):
            if time.monotonic() > end or sum(map(len, kinds.values())) - known >= _TRIED:
                break
            error = _error(before, inputs.call_of(parameters, plan, inputs.SIZES))
            if error:
                errors[error] = errors.get(error, 0) + 1
            else:
                key = tuple(
                    (choice["kind"], choice.get("dtype"), str(choice.get("value")), len(s))
                    for choice, s in plan
                )
                kinds.setdefault(key, []).append(plan)
        succeeded += sum(map(len, kinds.values())) > known
    if not kinds:
        common = max(errors, key=lambda name: errors[name], default="")
        raise RefusedError(Reason.NO_INPUT, f"most raise {common}" if common else "")
    in_turn: list[inputs.Plan] = []
    for rank in range(_SHAPES):
        in_turn += [group[rank] for group in kinds.values() if len(group) > rank]
    return in_turn[:_SHAPES]


def _calls(job: dict[str, Any], chosen: list[inputs.Plan]) -> Iterator[Call]:
    parameters = job["parameters"]
    for plan in chosen:
        yield from inputs.twists(inputs.call_of(parameters, plan, inputs.SIZES))
    for plan in chosen:
        for sizes in inputs.resized():
            yield inputs.call_of(parameters, plan, sizes)
        for longer in inputs.lengths(plan):
            yield inputs.call_of(parameters, longer, inputs.SIZES)


def _compared(job: dict[str, Any], chosen: list[inputs.Plan], before: Process, after: Process) -> int:
    """On how many inputs both sides run and give the same; raises `RefusedError` on the first where they differ."""
    random = torch.Generator().manual_seed(1)
    seen: set[str] = set()
    count = 0
    end = time.monotonic() + _COMPARE
    for call in _calls(job, chosen):
        case = case_of(call, random)
        if case.what in seen:
            continue
        if time.monotonic() > end:
            raise RefusedError(Reason.TOO_LONG)
        seen.add(case.what)
        answers = [process.ask(case.header("run"), case.blobs) for process in (before, after)]
        found = difference(answers[0], answers[1], call.tensors)
        if found:
            raise RefusedError(Reason.DIFFERENT, f"{found} where {case.what}")
        count += not error_of(answers[0])
    if count < _LEAST:
        raise RefusedError(Reason.NO_INPUT, f"it runs on {count}")
    return count


def _oddness(plan: inputs.Plan) -> tuple[int, int, int, int]:
    """How unlike an ordinary call: dimensions of one element, those that only some tensors have, and other than two."""
    shapes = [
        list(choice.get("shape", letters)) for choice, letters in plan if choice["kind"] in inputs.OF_TENSORS
    ]
    ones = sum("1" in shape for shape in shapes)
    return (
        ones,
        sum(not shape for shape in shapes),
        len(set(map(tuple, shapes))),
        sum(abs(len(s) - 2) for s in shapes),
    )


def _timed_size(job: dict[str, Any], chosen: list[inputs.Plan], before: Process) -> tuple[Call, float]:
    """The call that is timed, as large as it stays quick, and its seconds."""
    parameters = job["parameters"]
    best: tuple[Call, float] | None = None
    for plan in sorted(chosen, key=_oddness)[:1]:
        shapes = [choice.get("shape", letters) for choice, letters in plan]
        rank = max((len([n for n in shape if n in inputs.SIZES and n != "1"]) for shape in shapes), default=0)
        for elements in (_ELEMENTS, _ELEMENTS // 8, _ELEMENTS // 64, 1):
            scale = max(1, round((elements / 20) ** (1 / max(rank, 1)))) if elements > 1 else 1
            sizes = {letter: size * scale if letter != "1" else 1 for letter, size in inputs.SIZES.items()}
            call = inputs.call_of(parameters, plan, sizes)
            if not _error(before, call):
                seconds = seconds_of(before, call)
                best = (call, seconds)
                if seconds < _SLOW:
                    break
    if best is None:
        raise RefusedError(Reason.NO_INPUT)
    return best
