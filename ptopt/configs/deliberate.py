"""Does a file say that a setting is meant as it is? A comment gives the reason, or the run is a trial."""

from __future__ import annotations

import re

from ptopt.configs.values import Entry, Mapping

_REASON = re.compile(
    r"\b(?:because|since|due to|required?|needed|needs?|must|only|avoid|prevent|reduce|save|saves|memory|oom|work ?around|"
    r"bug|hang|hangs|crash|crashes|deadlock|fail|fails|error|nan|unstable|stability|debug|incompatible|not supported|"
    r"unsupported|otherwise|slower|faster|issue|disabled?|deliberate|intentional)\b|https?://",
    re.I,
)
_TRIAL_STEPS = 100
_SHORT = ("max_steps", "train_iters", "max_train_steps", "max_steps_per_epoch")
_CUT = ("fast_dev_run", "overfit_batches", "limit_train_batches")
_TRIAL_PATH = re.compile(
    r"(?:^|[/_.-])(?:debug|dev|devtools|smoke|sanity|toy|dummy|tiny|ci|repro|tests?)(?:$|[/_.-])"
)


def is_explained(lines: list[str], line: int) -> bool:
    """Does a comment beside line `line` (from 1), or right above it, give a reason?"""
    beside = re.search(r"(?:^|\s)(?:#|//)(.*)", lines[line - 1])
    if beside is not None and _REASON.search(beside[1]):
        return True
    above = line - 2
    while above >= 0 and lines[above].strip().startswith(("#", "//")):
        if _REASON.search(lines[above]):
            return True
        above -= 1
    return False


def is_trial(path: str, mapping: Mapping) -> bool:
    """Is the run short on purpose, to see whether it works?"""
    if _TRIAL_PATH.search(path.lower()):
        return True
    steps = [mapping.get(key) for key in _SHORT]
    if any(
        (number := getattr(node, "number", None)) is not None and 0 < number <= _TRIAL_STEPS for node in steps
    ):
        return True
    return any(_is_on(mapping.entry(key)) for key in _CUT)


def _is_on(entry: Entry | None) -> bool:
    """A number of batches, or a share of them that is not all: `1` is one batch, `1.0` all."""
    value = getattr(entry.value, "value", None) if entry is not None else None
    if isinstance(value, float):
        return 0 < value < 1
    return isinstance(value, int) and value > 0
