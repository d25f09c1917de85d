"""Work that has no version for the device: matchings of SciPy, serial suppression, graph searches."""

from __future__ import annotations

import ast
import re

from ptopt.rules.base import SourceFile
from ptopt.source.calls import called_name
from ptopt.source.file import remembered
from ptopt.source.index import FunctionNode

_SERIAL = re.compile(
    r"linear_sum_assignment|linear_assignment|hungarian|munkres|lapjv|nms|dijkstra|shortest_path|maximum_weight|viterbi",
    re.I,
)


def needs_host(node: ast.AST, file: SourceFile) -> bool:
    """Does the function around it do work that only the host can do, or does best?"""
    function = file.index.function_of(node)
    return function is not None and _works_on_host(function, file)


@remembered
def _works_on_host(function: FunctionNode, file: SourceFile) -> bool:
    return any(_only_on_host(call, file) for call in file.calls.calls_in(function))


def _only_on_host(call: ast.Call, file: SourceFile) -> bool:
    qualified = file.imports.qualified(call.func)
    if qualified.startswith(("torch.", "torchvision.")):
        return False
    return qualified.startswith("scipy.") or bool(_SERIAL.search(called_name(call)))
