"""Ways to read a tensor back to Python."""

from __future__ import annotations

import ast
import re

from ptopt.rules.base import SourceFile
from ptopt.rules.code import is_call_of, method_call
from ptopt.rules.shared.places import Place
from ptopt.source.calls import last_name
from ptopt.source.file import remembered
from ptopt.source.frequency import Often
from ptopt.source.index import FUNCTIONS, LOOPS, FunctionNode, walk
from ptopt.source.waits import goes_to_cpu, is_asynchronous

TO_HOST = ("cpu", "numpy", "tolist", "to")
_REPORTING = re.compile(
    r"^(append|extend|update|add|print|info|debug|record\w*|log\w*|add_scalars?|set_postfix|set_description|write|meter|put)$"
)
_METRIC = re.compile(
    r"loss|acc|metric|correct|score|reward|grad_?norm|perplexity|ppl|error|iou|psnr|avg|mean|total|running|stat|log",
    re.I,
)


def tensor_of_item(node: ast.AST, file: SourceFile) -> ast.expr | None:
    """The tensor that `.item()`, `float()` or `int()` reads; None when it reads none, or one on the CPU."""
    scaler = method_call(node, "get_scale")
    if scaler is not None:  # of a GradScaler: it reads the scale off the device
        named = re.search(r"scaler", file.source(scaler), re.I)
        return scaler if named and isinstance(node, ast.Call) and not node.args else None
    tensor = method_call(node, "item")
    if tensor is not None:
        if isinstance(node, ast.Call) and node.args:
            return None  # numpy's item(i)
        while (inner := method_call(tensor, "cpu", "detach")) is not None:
            tensor = inner  # `loss.detach().cpu().item()` reads the device tensor all the same
        value = file.values.of(tensor)
        if file.values.is_made_on_host(tensor):
            return None
        return tensor if value.kind in ("tensor", "") and value.device != "cpu" else None
    if not is_call_of(node, "float", "int") or len(node.args) != 1 or node.keywords:
        return None
    return node.args[0] if file.values.is_on_device(node.args[0]) else None


def tensor_of_copy(node: ast.AST, file: SourceFile) -> ast.expr | None:
    """The device tensor that a chain such as `x.detach().cpu().numpy()` copies, for its outermost call."""
    inner = _copied_by(node)
    if inner is None:
        return None
    parent = file.index.parent(node)
    grand = file.index.parent(parent) if parent is not None else None
    outer = grand if isinstance(parent, ast.Attribute) and grand is not None else None
    if outer is not None and node in (_copied_by(outer), method_call(outer, "item")):
        return None  # the outer call of the chain speaks
    copies = method_call(node, "cpu") is not None or method_call(node, "to") is not None
    while (deeper := _copied_by(inner)) is not None:
        copies = True
        inner = deeper
    value = file.values.of(inner)
    if value.device == "cpu" or (value.kind != "tensor" and value.kind):
        return None
    if not copies and method_call(node, "numpy") is not None:
        return None  # of a tensor on a device, `.numpy()` raises
    if not value.kind and not (copies and _is_chain(node, file)):
        return None  # `.numpy()` alone, or `.cpu()` of what may be a module
    return inner


def _copied_by(node: ast.AST) -> ast.expr | None:
    """`x` of `x.cpu()`, `x.numpy()`, `x.tolist()`, `x.to("cpu")`."""
    inner = method_call(node, *TO_HOST)
    if inner is None or not isinstance(node, ast.Call):
        return None
    if method_call(node, "to") is not None:
        return inner if goes_to_cpu(node) and not is_asynchronous(node) else None
    return None if node.args else inner


def _is_chain(node: ast.AST, file: SourceFile) -> bool:
    """Does the chain hold a method that a tensor has and a module has not?"""
    if method_call(node, "numpy", "tolist") is not None:
        return True
    parent = file.index.parent(node)
    inner = _copied_by(node)
    detached = inner is not None and method_call(inner, "detach") is not None
    return detached or (
        isinstance(parent, ast.Attribute) and isinstance(node, ast.expr) and file.values.is_tensor(node)
    )


def picks_element(tensor: ast.expr, node: ast.AST, file: SourceFile) -> bool:
    """Is it one element or row of a tensor after the other, `x[i]` in a loop over `i`? Rules on loops speak of those."""
    loop = next(file.index.loops_of(node), None)
    if not isinstance(loop, (ast.For, ast.AsyncFor)) or not file.values.is_tensor(tensor):
        return False
    targets = {n.id for n in walk(loop.target) if isinstance(n, ast.Name)}
    if isinstance(tensor, ast.Name):
        return tensor.id in targets and file.values.is_tensor(loop.iter)
    return isinstance(tensor, ast.Subscript) and any(
        isinstance(n, ast.Name) and n.id in targets for n in walk(tensor.slice)
    )


def wait_facts(node: ast.AST, scope: ast.AST, file: SourceFile) -> dict[str, float]:
    """How many other waits the iteration has."""
    return {"other_waits": float(len(_others(node, scope, file)))}


def beside(node: ast.AST, scope: ast.AST, file: SourceFile) -> str:
    """A sentence on the other waits of the iteration, or of the call where `scope` is a function; or ""."""
    lines = sorted({getattr(wait, "lineno", 0) for wait in _others(node, scope, file)} - {0})
    if not lines:
        return ""
    shown = ", ".join(map(str, lines[:4])) + (", …" if len(lines) > 4 else "")
    return (
        f" {'The same iteration' if isinstance(scope, LOOPS) else 'Each call'} also waits at line{'s' if len(lines) > 1 else ''} {shown}: the gain comes when all of them "
        "are gone."
    )


def small_gain(node: ast.AST, place: Place, file: SourceFile) -> str:
    """A sentence on what one wait in a training step is worth, or "": waits per layer, micro-step or element add up."""
    if place.step is None or file.frequencies.of(node).often > Often.STEP:
        return ""
    return " The gain is small where a step waits once: without it, steps of 2 to 8 ms took 0 to 2 % less time on an H100."


def _others(node: ast.AST, scope: ast.AST, file: SourceFile) -> tuple[ast.AST, ...]:
    if not isinstance(scope, (*LOOPS, *FUNCTIONS)):
        return ()
    table = file.once(_known_others)
    if (node, scope) not in table:
        table[node, scope] = file.waits.others(node, scope)
    return table[node, scope]


def _known_others(file: SourceFile) -> dict[tuple[ast.AST, ast.AST], tuple[ast.AST, ...]]:
    return {}


def is_reported(node: ast.AST, file: SourceFile, depth: int = 2) -> bool:
    """Does the value only go where numbers are kept or shown: a sum, a list, a dictionary, a log, a return?"""
    for ancestor, child in file.index.ancestors(node):
        if isinstance(
            ancestor, (ast.Compare, ast.Subscript, ast.Slice, ast.BoolOp, ast.If, ast.While, ast.Assert)
        ):
            return isinstance(ancestor, ast.Subscript) and child is ancestor.value
        if isinstance(ancestor, ast.AugAssign):
            return isinstance(ancestor.target, (ast.Name, ast.Attribute, ast.Subscript))
        if isinstance(ancestor, (ast.Return, ast.Dict, ast.JoinedStr, ast.DictComp)):
            return True
        if isinstance(ancestor, ast.Call):
            func = ancestor.func
            name = last_name(func)
            if child in ancestor.args or isinstance(child, ast.keyword):
                return bool(_REPORTING.search(name)) or (
                    name in ("round", "float", "int", "abs") and is_reported(ancestor, file, depth)
                )
            return False
        if isinstance(ancestor, ast.Assign):
            target = ancestor.targets[0]
            if isinstance(target, ast.Name):
                return bool(_METRIC.search(target.id)) or (
                    depth > 0 and _all_reported(target, file, depth - 1)
                )
            return isinstance(target, (ast.Subscript, ast.Attribute))
        if isinstance(ancestor, ast.stmt):
            return False
    return False


def _all_reported(target: ast.Name, file: SourceFile, depth: int) -> bool:
    """Do all uses of the name in its function only report it?"""
    return _reported_name(file.index.function_of(target), target.id, depth, file)


@remembered
def _reported_name(function: FunctionNode | None, name: str, depth: int, file: SourceFile) -> bool:
    uses = file.reads_of(function, name)
    return bool(uses) and all(is_reported(use, file, depth) for use in uses)
