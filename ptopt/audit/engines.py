"""Engines that run the steps of a loop of the repository by a configuration of their own, where the code hands them the model."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from ptopt.audit.evaluate import Evaluator
from ptopt.audit.known import Value
from ptopt.audit.live import Live
from ptopt.audit.modules import Module, text_of

_HALF = ("bf16", "bfloat16", "fp16")


def handed_to_deepspeed(live: Live, evaluator: Evaluator) -> bool:
    """`make = deepspeed.initialize`, called by that name where an option asks for it: surely, as far as is known."""
    return any(evaluator.runs(node, module).truth is True for module, node in deepspeed_made(live))


def deepspeed_made(live: Live) -> Iterator[tuple[Module, ast.Attribute]]:
    """Where what runs calls, or hands on, what makes an engine of DeepSpeed."""
    for module in live.read.values():
        for node in module.file.index.attributes_named("initialize"):
            if text_of(node) == "deepspeed.initialize" and live.runs(module, node):
                yield module, node


def half_precision(live: Live, evaluator: Evaluator) -> Iterator[tuple[str, Value, Module, ast.expr]]:
    """`{"fp16": {"enabled": True}}` of configurations that the code makes: the part, whether it is on, and where."""
    for module in live.read.values():
        for table in module.file.index.of_type(ast.Dict):
            if not live.runs(module, table):
                continue
            for key, part in zip(table.keys, table.values, strict=True):
                if (
                    not isinstance(key, ast.Constant)
                    or key.value not in _HALF
                    or not isinstance(part, ast.Dict)
                ):
                    continue
                for name, value in zip(part.keys, part.values, strict=True):
                    if isinstance(name, ast.Constant) and name.value == "enabled":
                        yield str(key.value), evaluator.of(value, module), module, value
