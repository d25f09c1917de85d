"""Which conditions of an advice are open: what other rows of the same scripts decide is not left to who reads it.

A condition that does not hold is left out of "wrong if"; one that holds becomes part of what is to be done.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from ptopt.audit.frameworks import TRAINERS
from ptopt.audit.known import DIFFER_IN_PARTS
from ptopt.audit.measures.breaks import BREAKS, VARY
from ptopt.audit.measures.copies import CAST_FIRST
from ptopt.audit.measures.unpinned import LEFT_AS_ARRAYS, NOT_REACHED
from ptopt.audit.values import EntryPoint, Kind, State, measure_of

VARIES = "batches are padded to their longest"  # how the row of padding says that shapes change from batch to batch
_MOST_PATHS = 3
_HALF_IN_PARTS = re.compile(r"\((?=.*\bFalse at)(?=.*\bTrue at)")


def is_state(key: str, state: State) -> Callable[[EntryPoint], bool]:
    """Is the row of a script in that state?"""

    def holds(entry: EntryPoint) -> bool:
        row = measure_of(entry, key)
        return row is not None and row.state is state

    return holds


def has_varying_lengths(entry: EntryPoint) -> bool:
    """Does the length of the sequences change from batch to batch?"""
    row = measure_of(entry, "padding")
    return row is not None and VARIES in row.detail and row.state in (State.ON, State.OFF)


def _has_one_length(entry: EntryPoint) -> bool:
    row = measure_of(entry, "padding")
    return row is not None and row.state is State.OFF and VARIES not in row.detail


def _decides_shapes(entry: EntryPoint) -> bool:
    return has_varying_lengths(entry) or _has_one_length(entry)


def _decides_pinning(entry: EntryPoint) -> bool:
    return is_state("pin_memory", State.ON)(entry) or is_state("pin_memory", State.OFF)(entry)


def _decides_precision(entry: EntryPoint) -> bool:
    return (
        is_state("precision", State.ON)(entry)
        or is_state("precision", State.OFF)(entry)
        or is_half_in_parts(entry)
    )


def _says(entry: EntryPoint, key: str, part: str) -> bool:
    """Does the detail of a row hold these words?"""
    row = measure_of(entry, key)
    return row is not None and part in row.detail


def breaks_its_graph(entry: EntryPoint) -> bool:
    """Is a value of a tensor read in the network, so that it cannot be compiled as one graph?"""
    return _says(entry, "compile", BREAKS)


def has_varying_shapes(entry: EntryPoint) -> bool:
    """Does the network cut its tensors at what it reads of them?"""
    return _says(entry, "compile", VARY)


def is_half_in_parts(entry: EntryPoint) -> bool:
    """Is mixed precision on in some parts of a run, and off in others, as its configuration says?"""
    row = measure_of(entry, "precision")
    return (
        row is not None
        and row.state is State.UNKNOWN
        and DIFFER_IN_PARTS in row.detail
        and _HALF_IN_PARTS.search(row.detail) is not None
    )


def _has_no_convolution(entry: EntryPoint) -> bool:
    return is_state("channels_last", State.NOT_APPLICABLE)(entry)


# Measure -> parts of its "wrong if" with what is left of them where the rows of each script decide them.
_DECIDED: dict[str, tuple[tuple[str, str, Callable[[EntryPoint], bool]], ...]] = {
    "tf32": (
        (
            "the results need full float32 precision, or nearly all is convolutions, which use TF32 by default",
            "or the results need full float32 precision",
            _has_no_convolution,
        ),
    ),
    "compile": (
        ("shapes change from step to step, the code", "the code", _decides_shapes),
        ("shapes change from step to step, the code", "the code", has_varying_shapes),
        ("the code breaks the graph often, or runs", "runs", breaks_its_graph),
    ),
    "non_blocking": (("the loader does not pin its memory, or a wait", "a wait", _decides_pinning),),
    "channels_last": (("the network trains in float32, or uses", "it uses", _decides_precision),),
    "padding": (
        ("(`torch.compile`, CUDA graphs)", "(CUDA graphs)", is_state("compile", State.OFF)),
        (", or static shapes are needed (`torch.compile`, CUDA graphs)", "", is_state("compile", State.ON)),
    ),
}
_SHAPES_VARY = "The shapes vary, as batches are padded to their longest sequence: pad to multiples of some length (`pad_to_multiple_of=64`)"
_LOOK = "look whether it compiles again and again (`TORCH_LOGS=recompiles`)."


def _varies_in_own_loop(entry: EntryPoint) -> bool:
    return has_varying_lengths(entry) and entry.framework not in TRAINERS


def _varies_in_trainer(entry: EntryPoint) -> bool:
    """A trainer calls `torch.compile` itself, and has no argument for dynamic shapes."""
    return has_varying_lengths(entry) and entry.framework in TRAINERS


OF_CLASS = "Give the class that the pinning does not reach a method `pin_memory`, which returns it with its tensors pinned."
OF_ARRAYS = "Return tensors from the function that collates (`torch.from_numpy`): the loader pins those, and no arrays of NumPy."


def has_arrays(entry: EntryPoint) -> bool:
    """Does the loader pin, and give arrays of NumPy, which stay as they are?"""
    return _says(entry, "pin_memory", LEFT_AS_ARRAYS)


def has_unpinned_class(entry: EntryPoint) -> bool:
    """Does the loader pin, and give what its pinning does not reach?"""
    return _says(entry, "pin_memory", NOT_REACHED)


def _casts_first(entry: EntryPoint) -> bool:
    return _says(entry, "non_blocking", CAST_FIRST)


def _has_threads(entry: EntryPoint) -> bool:
    return any(obstacle.kind is Kind.THREADS for obstacle in entry.obstacles)


def _pins_nothing(entry: EntryPoint) -> bool:
    known = has_unpinned_class(entry) or has_arrays(entry)
    return is_state("pin_memory", State.OFF)(entry) and not known


# Measure -> what its action says more where a condition holds.
_SETTLED: dict[str, tuple[tuple[str, Callable[[EntryPoint], bool]], ...]] = {
    "compile": (
        (f"{_SHAPES_VARY} or ask for dynamic shapes (`dynamic=True`), and {_LOOK}", _varies_in_own_loop),
        (f"{_SHAPES_VARY}, and {_LOOK}", _varies_in_trainer),
        (
            (
                "Go to `DistributedDataParallel` first, and compile then: under `DataParallel` on several GPUs it was reported to gain "
                "nothing (pytorch/pytorch#94636)."
            ),
            _has_threads,
        ),
    ),
    "padding": (
        (
            "As the network is compiled, pad to a few lengths (`pad_to_multiple_of=64`), not to each: every new shape may compile again.",
            is_state("compile", State.ON),
        ),
    ),
    "channels_last": (
        ("It pays with mixed precision, which is off: do that first.", is_state("precision", State.OFF)),
        ("It pays with mixed precision, which only a part of the run uses.", is_half_in_parts),
    ),
    "non_blocking": (
        ("The loader does not pin its batches: set `pin_memory=True` on it as well.", _pins_nothing),
        (OF_CLASS, has_unpinned_class),
        (
            "Move casts behind the copy (`labels.cuda(non_blocking=True).long()`): pinning does not reach the tensor that a cast makes.",
            _casts_first,
        ),
        (OF_ARRAYS, has_arrays),
    ),
}


def open_conditions(key: str, wrong_if: str, entries: Sequence[EntryPoint]) -> str:
    """What is left of a "wrong if" where the rows of all these scripts decide parts of it."""
    for part, left, is_decided in _DECIDED.get(key, ()):
        if all(map(is_decided, entries)):
            wrong_if = wrong_if.replace(part, left)
    return wrong_if


def settled(key: str, entries: Sequence[EntryPoint]) -> str:
    """What the action says more, where a condition of it holds in the scripts, or in some of them; "" where none does."""
    said = ""
    for text, holds in _SETTLED.get(key, ()):
        paths = list(dict.fromkeys(entry.path for entry in entries if holds(entry)))
        if not paths:
            continue
        if all(map(holds, entries)):
            said += f" {text}"
        else:
            more = len(paths) - _MOST_PATHS
            shown = ", ".join(paths[:_MOST_PATHS]) + (f" and {more} more" if more > 0 else "")
            said += f" In {shown}: {text}"
    return said
