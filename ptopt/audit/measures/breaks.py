"""Where a network reads values of its tensors in Python: `torch.compile` ends its graph there."""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass

from ptopt.audit.calling import lineage
from ptopt.audit.modules import Module, text_of
from ptopt.audit.setup import Setup
from ptopt.audit.values import Place
from ptopt.source.index import FUNCTIONS, FunctionNode

BREAKS = "ends the graph of `torch.compile`"
VARY = "and the shapes vary with it"
_NO_NETWORK = re.compile(
    r"Loss|Criterion|Metric|Matcher|Assigner|Objective|Evaluator"
)  # compiled apart, if at all
_READS = ("item", "tolist")


@dataclass(frozen=True, slots=True)
class Break:
    place: Place
    said: str


def graph_break(setup: Setup) -> Break | None:
    """The first call in a `forward` of the trained network that reads values on every step; one that sizes a tensor before others."""
    found: list[tuple[bool, Break]] = []
    for module, call in setup.of_trained(setup.calls(*_READS)):
        function = module.file.index.function_of(call)
        if (
            function is None
            or function.name != "forward"
            or call.args
            or not _is_of_network(setup, module, function)
            or _is_conditional(module, call)
            or not setup.runs(module, call).truth
        ):
            continue
        sizes = _sizes_a_tensor(module, call, function)
        said = f"`{text_of(call)}` in `forward` {BREAKS}" + (f", {VARY}" if sizes else "")
        found.append((sizes, Break(setup.place(module, call), said)))
    return max(found, key=lambda each: each[0])[1] if found else None


def _is_of_network(setup: Setup, module: Module, function: FunctionNode) -> bool:
    """Is it a method of a class that derives from `nn.Module`, and is no loss or metric?"""
    cls = module.file.index.parent(function)
    return (
        isinstance(cls, ast.ClassDef)
        and not _NO_NETWORK.search(cls.name)
        and any(other.file.context.is_module(base) for other, base in lineage(setup.live, module, cls))
    )


def _is_conditional(module: Module, call: ast.Call) -> bool:
    """Does a condition of the function stand around it: some steps may do without?"""
    for ancestor, child in module.file.index.ancestors(call):
        if isinstance(ancestor, FUNCTIONS):
            return False
        if isinstance(ancestor, (ast.If, ast.IfExp)) and child is not ancestor.test:
            return True
        if isinstance(ancestor, (ast.ExceptHandler, ast.Assert, ast.JoinedStr, ast.Lambda)):
            return True
    return True


def _sizes_a_tensor(module: Module, call: ast.Call, function: FunctionNode) -> bool:
    """Does a slice of the function end at the value, or at what is made of it?"""
    statements = [n for n in ast.walk(function) if isinstance(n, ast.Assign)]
    held: set[str] = set()
    for statement in sorted(statements, key=lambda each: each.lineno):
        inside = module.file.index.within(call, statement)
        if (inside and _is_kept(statement.value, call)) or (held and _is_number_of(statement.value, held)):
            held |= {target.id for target in statement.targets if isinstance(target, ast.Name)}
    bounds = [
        bound
        for node in ast.walk(function)
        if isinstance(node, ast.Slice)
        for bound in (node.lower, node.upper)
        if bound
    ]
    return any(
        each is call or (isinstance(each, ast.Name) and each.id in held)
        for bound in bounds
        for each in ast.walk(bound)
    )


def _is_kept(value: ast.expr, call: ast.Call) -> bool:
    """`n = x.item()`, `n = [x.item() for x in counts]`, `n = int(x.max().item())`"""
    if isinstance(value, ast.ListComp):
        value = value.elt
    while (
        isinstance(value, ast.Call) and value is not call and value.args and isinstance(value.func, ast.Name)
    ):
        value = value.args[0]  # fmt: skip
    return value is call or (isinstance(value, ast.BinOp) and call in ast.walk(value))


def _is_number_of(value: ast.expr, held: set[str]) -> bool:
    """`max(counts)`, `n + 1`: a number that is made of held ones alone."""
    if isinstance(value, ast.Call):
        number = isinstance(value.func, ast.Name) and value.func.id in ("max", "min", "sum", "int", "len")
        return number and any(isinstance(each, ast.Name) and each.id in held for each in value.args)
    return isinstance(value, ast.BinOp) and any(
        isinstance(each, ast.Name) and each.id in held for each in (value.left, value.right)
    )
