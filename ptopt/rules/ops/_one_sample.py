"""Loops that run a network on one sample at a time, and what the network is given there."""

from __future__ import annotations

import ast
import re
from functools import lru_cache

from ptopt.rules.base import SourceFile
from ptopt.rules.code import method_call
from ptopt.rules.ops._calls import int_literal, is_range, names_in
from ptopt.rules.ops.slice_loop import reported
from ptopt.rules.shared.flow import assigned
from ptopt.source.bindings import is_self
from ptopt.source.calls import called_name, last_name
from ptopt.source.index import own_nodes, walk

_NETWORK = re.compile(
    r"(^|_)(model|net|network|encoder|decoder|vae|unet|backbone|generator|clip|extractor|classifier|predictor|detector)(_|$|\d)|(^|_)net[A-Z]?$",
    re.I,
)
BATCHES = re.compile(r"loader|batches|epoch|layers|blocks|steps|timesteps", re.I)
_REPEATS = (ast.For, ast.While, ast.ListComp, ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)
_METHODS = frozenset(
    {"encode", "decode", "forward", "encode_image", "encode_text", "predict", "inference", "generate"}
)
# Methods of a network, and functions that are given one, which run it on a batch.
_RUNS = re.compile(
    r"^(run_|do_|get_)?(decode|encode|embed|predict|infer|inference|forward|extract|transcribe|detect|classify|segment|score|generate)"
    r"(_|s?$)",
    re.I,
)
_JOINS = frozenset({"cat", "concat", "concatenate", "stack", "hstack", "vstack"})


def first_calls(file: SourceFile) -> dict[ast.AST, ast.Call]:
    """Loop over samples -> the first call of a network in it that gets one sample."""
    found: dict[ast.AST, ast.Call] = {}
    for call in file.index.of_type(ast.Call):
        if not call.args or not _may_run_one(call):
            continue
        nearest = (a for a, _ in file.index.ancestors(call) if isinstance(a, _REPEATS))
        place = next(nearest, None)
        given = given_sample(call, file) if isinstance(place, (ast.For, ast.ListComp)) else None
        if isinstance(place, (ast.For, ast.ListComp)) and place not in found and given is not None:
            target, iterable = (place.target, place.iter) if isinstance(place, ast.For) else _generator(place)
            made = _one_sample(given, place, file)
            if made is None or BATCHES.search(file.source(iterable)) or few_or_blocks(iterable):
                continue
            reached = dependent(names_in(target), place)
            if (
                not names_in(made) & reached
                or _cut(made, reached, place, file)
                or place in file.once(reported)
            ):
                continue
            if file.context.training_step(call) is None and not (
                isinstance(place, ast.For) and feeds_back(place)
            ):
                found[place] = call
    return found


def _cut(made: ast.expr, reached: set[str], place: ast.AST, file: SourceFile) -> bool:
    """Is the sample cut to a length of its own, so that no two are of one size?"""
    parts = [made]
    binding = file.bindings.last_before(made) if isinstance(made, ast.Name) else None
    if binding is not None and binding.value is not None and file.index.within(binding.value, place):
        parts.append(binding.value)
    slices = (n for part in parts for n in walk(part) if isinstance(n, ast.Slice))
    return any(names_in(bound) & reached for s in slices for bound in (s.lower, s.upper) if bound is not None)


def _generator(place: ast.ListComp) -> tuple[ast.expr, ast.expr]:
    return place.generators[0].target, place.generators[0].iter


def _may_run_one(call: ast.Call) -> bool:
    func = call.func
    if isinstance(func, ast.Attribute):
        return (
            func.attr in _METHODS or is_self(func) or _names_a_network(func.attr) or _names_a_run(func.attr)
        )
    return isinstance(func, ast.Name) and (_names_a_network(func.id) or _names_a_run(func.id))


def given_sample(call: ast.Call, file: SourceFile) -> ast.expr | None:
    """What a network that the call runs gets: by itself, by a method, or by a function that is given the network first."""
    if _is_network(call, file):
        return call.args[0]
    func = call.func
    if not _names_a_run(last_name(func)):
        return None
    if isinstance(func, ast.Attribute) and _is_network_itself(func.value, file):
        return None if file.imports.qualified(func) else call.args[0]
    if len(call.args) < 2 or not _is_network_itself(call.args[0], file):
        return None
    found = file.definition_of(call)
    return None if found is not None and found[0].context.trains(found[1]) else call.args[1]


@lru_cache(maxsize=4096)
def _names_a_network(name: str) -> bool:
    return bool(_NETWORK.search(name))


@lru_cache(maxsize=4096)
def _names_a_run(name: str) -> bool:
    return bool(_RUNS.search(name))


def _is_network(call: ast.Call, file: SourceFile) -> bool:
    func = call.func
    if file.imports.qualified(func):
        return False
    if isinstance(func, ast.Attribute) and func.attr in _METHODS:
        func = func.value
    return _is_network_itself(func, file)


def _is_network_itself(expr: ast.expr, file: SourceFile) -> bool:
    return file.values.is_a(expr, "module") or bool(_NETWORK.search(last_name(expr)))


def _one_sample(arg: ast.expr, place: ast.For | ast.ListComp, file: SourceFile) -> ast.expr | None:
    """The expression that adds the dimension: in the argument, or where its name was assigned in the loop."""
    for node in [arg, *own_nodes(arg)]:
        if isinstance(node, ast.Call) and method_call(node, "unsqueeze") is not None and _is_zero(node.args):
            return arg
        if isinstance(node, ast.Subscript):
            first = (
                node.slice.elts[0] if isinstance(node.slice, ast.Tuple) and node.slice.elts else node.slice
            )
            if isinstance(first, ast.Constant) and first.value is None:
                return arg
        if isinstance(node, ast.Call) and file.imports.qualified(node.func) in (
            "torch.unsqueeze",
            "torch.stack",
        ):
            last = node.args[-1] if node.args else None
            if (
                isinstance(last, ast.Constant)
                and last.value == 0
                or isinstance(last, ast.List)
                and len(last.elts) == 1
            ):
                return arg
    if isinstance(arg, ast.Name):
        value = assigned(arg, file)
        if value is not None and file.index.within(value, place) and not _asks_dimensions(value, file):
            found = _one_sample(value, place, file) if not isinstance(value, ast.Name) else None
            return arg if found is not None else None
    return None


def _asks_dimensions(value: ast.expr, file: SourceFile) -> bool:
    """Is the dimension only added where it is missing: `if x.dim() < 3:`?"""
    return any(
        isinstance(around, ast.If)
        and re.search(r"\.dim\(\)|\.ndim\b|len\([^()]*\.(shape|size\(\))\)", file.source(around.test))
        for around, _ in file.index.ancestors(value)
    )


def _is_zero(args: list[ast.expr]) -> bool:
    return bool(args) and isinstance(args[0], ast.Constant) and args[0].value == 0


def dependent(names: frozenset[str], place: ast.AST) -> set[str]:
    """The names of the loop that depend on its target."""
    reached = set(names)
    for node in own_nodes(place):
        if isinstance(node, ast.Assign) and names_in(node.value) & reached:
            reached |= {n for target in node.targets for n in names_in(target)}
    return reached


def feeds_back(loop: ast.For) -> bool:
    """Does an iteration read what the one before has left, other than to add to it?"""
    stored: dict[str, int] = {}
    adds: dict[str, set[ast.AST]] = {}  # name -> the parts of what is assigned to it
    for node in own_nodes(loop):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            stored.setdefault(node.id, node.lineno)
        elif isinstance(node, ast.Assign):
            for part in (part for target in node.targets for part in walk(target)):
                if isinstance(part, ast.Name) and isinstance(part.ctx, ast.Store):
                    stored.setdefault(part.id, node.value.end_lineno or 0)  # it reads before it stores
            if isinstance(node.targets[0], ast.Name) and _grows(node):
                adds.setdefault(node.targets[0].id, set()).update(walk(node.value))
    return any(
        isinstance(n, ast.Name)
        and isinstance(n.ctx, ast.Load)
        and n.id in stored
        and n.lineno <= stored[n.id]
        and n not in adds.get(n.id, ())
        and n.id not in names_in(loop.target)
        for n in own_nodes(loop)
    )


def _grows(assign: ast.Assign) -> bool:
    """`found = torch.cat([found, features])`, `total = total + part`: the name, and what is added to it."""
    value, name = assign.value, last_name(assign.targets[0])
    if isinstance(value, ast.BinOp):
        parts: list[ast.expr] = [value.left, value.right]
    elif isinstance(value, ast.Call) and called_name(value) in _JOINS and value.args:
        parts = value.args[0].elts if isinstance(value.args[0], (ast.List, ast.Tuple)) else []
    else:
        return False
    return sum(last_name(part) == name for part in parts) == 1 == sum(name in names_in(p) for p in parts)


def few_or_blocks(iterable: ast.expr) -> bool:
    """A handful of samples, or a range that goes from batch to batch."""
    ranges = [n for n in walk(iterable) if isinstance(n, ast.Call) and is_range(n)]
    return any(len(r.args) == 3 or 0 < (int_literal(r.args[-1]) or 0) < 8 for r in ranges)
