"""Which loaders never come to an end, so that their workers are started once."""

from __future__ import annotations

import ast
import re

from ptopt.audit.calling import lineage
from ptopt.audit.modules import Module, dotted_name, text_of
from ptopt.audit.setup import Setup
from ptopt.source.index import FUNCTIONS, own_nodes

# Samplers of libraries: InfiniteSampler of mmengine, TrainingSampler and RepeatFactorTrainingSampler of detectron2.
_ENDLESS = re.compile(r"^(Infinite|Endless)\w*(Sampler|Dataset)$|TrainingSampler$")


def is_endless(setup: Setup, module: Module, loader: ast.Call) -> bool:
    """Does the sampler, or the data that is iterated, begin again by itself?"""
    given = [setup.keyword(loader, name) for name in ("sampler", "batch_sampler")]
    data = setup.keyword(loader, "dataset", 0)
    return any(_never_ends(setup, module, each, False) for each in given if each is not None) or (
        data is not None and _never_ends(setup, module, data, True)
    )


def _never_ends(setup: Setup, module: Module, node: ast.expr, data: bool) -> bool:
    """`data`: its `__iter__` counts only where a loader takes it, which is that of an `IterableDataset`."""
    if isinstance(node, ast.Name):
        binding = module.file.bindings.last_before(node)
        if binding is None or binding.kind != "assign" or binding.value is None:
            return False
        node = binding.value
    if not isinstance(node, ast.Call) or not dotted_name(node.func):
        return False
    found = setup.live.modules.resolve(module, text_of(node.func))
    if found is None or not isinstance(found[1], ast.ClassDef):
        return bool(_ENDLESS.search(text_of(node.func).rpartition(".")[2]))
    lines = list(lineage(setup.live, found[0], found[1]))
    bases = {text_of(base).rpartition(".")[2] for _, cls in lines for base in cls.bases}
    if data and "IterableDataset" not in bases:
        return False
    iterators = [
        statement
        for _, cls in lines
        for statement in cls.body
        if isinstance(statement, FUNCTIONS) and statement.name == "__iter__"
    ]
    return bool(iterators) and _repeats(iterators[0])


def _repeats(iterator: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    """`while True:` with a `yield` in it, and nothing that leaves it."""
    return any(
        isinstance(node, ast.While)
        and isinstance(node.test, ast.Constant)
        and bool(node.test.value)
        and any(isinstance(n, (ast.Yield, ast.YieldFrom)) for n in own_nodes(node))
        and not any(isinstance(n, (ast.Break, ast.Return)) for n in own_nodes(node))
        for node in own_nodes(iterator)
    )
