"""What kind of file a path promises: tests, examples, demos and benchmarks are seldom worth a comment on speed."""

from __future__ import annotations

import re
from typing import Literal

Kind = Literal["tests", "examples", "demos", "benchmarks"]

KINDS: tuple[Kind, ...] = ("tests", "examples", "demos", "benchmarks")

_FOLDERS: dict[str, Kind] = {
    **dict.fromkeys(("test", "tests", "testing"), "tests"),
    **dict.fromkeys(
        ("example", "examples", "sample", "samples", "tutorial", "tutorials", "docs"), "examples"
    ),
    **dict.fromkeys(("demo", "demos"), "demos"),
    **dict.fromkeys(("bench", "benchmark", "benchmarks", "perf"), "benchmarks"),
}

# `examples-da`, `unit_tests`; but `test_time_adaptation` and `sample_generation` are ordinary code.
_IN_LONGER_NAMES = frozenset({"example", "examples", "tutorial", "tutorials", "demos", "benchmarks", "tests"})


def path_kind(path: str) -> Kind | None:
    """The kind of the file at `path` (relative to the repository root); None for ordinary code.

    The outermost telling folder decides, then the file's name. `test.py` and `train_test.py` are ordinary code:
    in research repositories they are the scripts that evaluate, or train and evaluate, a model.
    """
    *folders, name = path.lower().split("/")
    for folder in folders:
        words = re.split(r"[-_]", folder)
        for word in (folder, words[0], words[-1]):
            if word in _FOLDERS and (word == folder or word in _IN_LONGER_NAMES):
                return _FOLDERS[word]
    stem, dot, suffix = name.rpartition(".")
    if not dot or suffix != "py":
        return None
    words = stem.split("_")
    if stem == "conftest" or (len(words) > 1 and words[0] == "test"):
        return "tests"
    if len(words) > 1 and words[-1] == "test" and words[0] != "train":
        return "tests"
    if words[0] == "demo":
        return "demos"
    if stem in ("benchmark", "benchmarks"):
        return "benchmarks"
    return None
