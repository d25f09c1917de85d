"""Loops over epochs."""

from __future__ import annotations

import ast
import re

from ptopt.rules.shared.loaders import Reading
from ptopt.source.file import SourceFile, remembered
from ptopt.source.index import Loop

_EPOCH = re.compile(r"epoch", re.I)


@remembered
def is_epoch_loop(loop: Loop, file: SourceFile) -> bool:
    head = loop.test if isinstance(loop, ast.While) else loop.iter
    target = "" if isinstance(loop, ast.While) else file.source(loop.target)
    return bool(_EPOCH.search(f"{target} {file.source(head)}"))


def epoch_loop(reading: Reading, file: SourceFile) -> Loop | None:
    """The loop over epochs in which the loader is read once an epoch, also through one function call."""
    places: list[ast.AST] = [reading.loop]
    if reading.call is not None:
        places.append(reading.call)
    function = file.index.function_of(reading.loop)
    if function is not None:
        places += file.calls.callers(function)
    for place in places:
        for loop in file.index.loops_of(place):
            if loop is not reading.loop and is_epoch_loop(loop, file):
                return loop
    return None
