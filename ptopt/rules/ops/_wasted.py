"""Expensive calls whose result may be thrown away, and what has no effect but its value."""

from __future__ import annotations

import ast
import re
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import lru_cache

from ptopt.rules.base import SourceFile
from ptopt.rules.ops._networks import KEEPS, LIGHT, PREPARES, Work, maker, own_work
from ptopt.rules.ops._pure import changes, cost, is_deferred, is_module_call
from ptopt.source.calls import called_name, last_name
from ptopt.source.file import remembered
from ptopt.source.index import FunctionNode, children_of, own_nodes, walk
from ptopt.source.liveness import Liveness, liveness

_STATE = re.compile(
    r"cache|past|memor|state|hidden|(^|_)kvs?(_|$)|(^|_)mems?(_|$)|buffer|hook|record|captur|store|collect|inference_params",
    re.I,
)
# In lower case: Python finds words several times faster than with `re.I`.
_FOR_EFFECT = re.compile(
    r"warm|bench|profil|calib|quanti|observ|dummy|shape|flops|macs|latency|throughput|speed|timing|time_|_time|memory|summary|"
    r"trace|export|compile|capture|hook|update_bn|recal|swa|prune|sanity|smoke|check|verify|debug|test_|init|stat(s|istics)?(_|$)|"
    r"(^|_)probe|find_|attribut|saliency|prefill|build|setup|materiali[sz]e|record|measure|estimate",
)
_MEASURES = (
    b"hook synchronize( elapsed_time perf_counter max_memory torch.profiler GradientTape FlopCount cuda_graph cudagraph CUDAGraph "
    b".capture( prepare_qat convert_fx .observer torch.jit.trace timeit".split()
)
_PLAIN_DECORATORS = frozenset(
    "staticmethod classmethod no_grad inference_mode autocast custom_fwd script script_method beartype typecheck typechecked "
    "jaxtyped compile override overload property".split()
)
_WRITES = re.compile(r"write|save|dump|append|update|log|put|send|post|imshow|remove|unlink|makedirs")
_LEAVING = (ast.Yield, ast.YieldFrom, ast.Global, ast.Nonlocal, ast.Await)
_TENSOR_LIBRARIES = (
    "torch",
    "torch.nn.functional",
    "torch.fft",
    "torch.linalg",
    "torch.special",
    "einops",
    "numpy",
)
_LIBRARY_EFFECTS = re.compile(
    r"_$|^(set_|save|manual_seed|seed|load|compile|use_|put|copyto|fill|no_grad|enable_grad|autocast)"
)
_BUILTINS = frozenset(
    "len int float bool str abs min max sum range zip enumerate list tuple dict set sorted reversed isinstance hasattr getattr "
    "round map filter any all type repr divmod".split()
)
_METHODS = frozenset(
    "format join split strip lower upper replace startswith endswith keys values items get copy astype index count numpy tolist item "
    "size dim numel sum mean abs max min pow sqrt exp log norm reshape view transpose permute squeeze unsqueeze repeat expand "
    "flatten float half long int bool to cuda cpu type clone detach contiguous softmax sigmoid chunk unbind argmax clamp clip "
    "expand_as view_as type_as masked_fill gather index_select bfloat16 double t flip roll cumsum sort topk std var prod any all "
    "round floor ceil logical_not eq ne lt gt le ge matmul bmm mm mul add sub div tanh relu swapaxes unflatten narrow select".split()
)


@remembered
def expensive(call: ast.Call, file: SourceFile) -> Work | None:
    """The work of the call, or of the function that it runs, where it has no effect but its result, as far as the code shows."""
    work = own_work(call, file)
    if work is None:
        work = _of_function(call, file)
        if work is not None and work.kind != "host" and PREPARES.search(called_name(call)):
            return None
    return work if work is not None and not _keeps_state(call, file) else None


def _of_function(call: ast.Call, file: SourceFile) -> Work | None:
    """A function of the repository that runs a network and has no effect but its result."""
    found = file.definition_of(call)
    if found is None:
        return None
    other, function = found
    inner = _work_of(function, other)
    return replace(inner, call=call) if inner is not None else None


@remembered
def _work_of(function: FunctionNode, file: SourceFile) -> Work | None:
    """The most expensive work in a function without effects."""
    calls = file.calls.calls_in(function)
    if any(_WRITES.search(called_name(c)) for c in calls) or not _changes_nothing(function, file):
        return None
    with _looking_into(function, file) as first:
        works = [w for c in calls if (w := expensive(c, file)) is not None] if first else []
        on_host = bool(works) and all(w.kind == "host" for w in works)
        if not works or not (on_host or all(_has_no_effect(c, file) for c in calls)):
            return None
    return max(works, key=lambda w: (w.kind != "host", not w.light, w.proven))


@remembered
def _only_computes(function: FunctionNode, file: SourceFile) -> bool:
    """Has the function no effect but its result?"""
    with _looking_into(function, file) as first:
        return (
            first
            and _changes_nothing(function, file)
            and all(_has_no_effect(c, file) for c in file.calls.calls_in(function))
        )


def _changes_nothing(function: FunctionNode, file: SourceFile) -> bool:
    """Does the function itself leave `self`, its parameters and outer names as they are?"""
    found = changes(function, file)
    parameters = {a.arg for a in [*function.args.args, *function.args.kwonlyargs]}
    return (
        all(last_name(_called(d)) in _PLAIN_DECORATORS for d in function.decorator_list)
        and not any(key.startswith("self.") for key in found.at)
        and parameters.isdisjoint(found.in_place)
        and not any(isinstance(n, _LEAVING) for n in own_nodes(function))
    )


def _called(decorator: ast.expr) -> ast.expr:
    return decorator.func if isinstance(decorator, ast.Call) else decorator


@contextmanager
def _looking_into(function: FunctionNode, file: SourceFile) -> Iterator[bool]:
    """False where the function is being looked into already: it calls itself."""
    known = file.once(_in_progress)
    if function in known:
        yield False
        return
    known.add(function)
    try:
        yield True
    finally:
        known.discard(function)


def _in_progress(file: SourceFile) -> set[FunctionNode]:
    return set()


def _keeps_state(call: ast.Call, file: SourceFile) -> bool:
    """Is the call given something that it may fill: a cache, a list, an output?"""
    for argument in [*call.args, *(k.value for k in call.keywords)]:
        if isinstance(argument, (ast.Name, ast.Attribute)):
            if _STATE.search(last_name(argument)):
                return True
            if file.values.of(argument).kind == "list" and _is_container(argument, file):
                return True
    return any(k.arg is not None and (k.arg == "out" or _STATE.search(k.arg)) for k in call.keywords)


def _is_container(argument: ast.expr, file: SourceFile) -> bool:
    """Was the name given an empty list or dictionary, for others to fill?"""
    binding = file.bindings.last_before(argument) if isinstance(argument, ast.Name) else None
    value = binding.value if binding is not None else None
    return isinstance(value, (ast.List, ast.Dict)) and not (
        getattr(value, "elts", None) or getattr(value, "keys", None)
    )


def _has_no_effect(call: ast.Call, file: SourceFile) -> bool:
    name, func = called_name(call), call.func
    if name.endswith("_") and not name.endswith("__"):
        return False
    # What the name tells comes first: to see what a call runs may take other files.
    qualified = file.imports.qualified(func)
    if qualified:
        known = qualified.rpartition(".")[0] in _TENSOR_LIBRARIES and not _LIBRARY_EFFECTS.search(name)
    else:
        known = name in (_BUILTINS if isinstance(func, ast.Name) else _METHODS)
    if known or expensive(call, file) is not None or cost(call, file) or is_module_call(call, file):
        return True
    return not qualified and (_is_light_module(func, file) or _pure_function(call, file))


def _is_light_module(func: ast.expr, file: SourceFile) -> bool:
    made = maker(func, file)
    return bool(LIGHT.search(made)) and not KEEPS.search(made)


def _pure_function(call: ast.Call, file: SourceFile) -> bool:
    target = file.calls.resolve(call)
    return target is not None and _only_computes(target, file)


def removable(expr: ast.expr, file: SourceFile) -> bool:
    """Has the expression no effect but its value?"""
    for node in walk(expr):
        if isinstance(node, (ast.Await, ast.Yield, ast.YieldFrom, ast.NamedExpr)):
            return False
        if isinstance(node, ast.Call) and not _has_no_effect(node, file):
            return False
    return True


def is_only_work(expr: ast.expr, file: SourceFile) -> bool:
    """Has the expression no effect but its value, the arguments of its expensive calls left aside?"""
    stack: list[ast.AST] = [expr]
    while stack:
        node = stack.pop()
        if isinstance(node, (ast.Await, ast.Yield, ast.YieldFrom, ast.NamedExpr)):
            return False
        if isinstance(node, ast.Call):
            if expensive(node, file) is not None:
                continue
            if not _has_no_effect(node, file):
                return False
        stack += children_of(node)
    return True


def works_in(expr: ast.expr, file: SourceFile) -> list[Work]:
    """The expensive calls that the expression makes."""
    calls = (n for n in walk(expr) if isinstance(n, ast.Call))
    return [w for c in calls if (w := expensive(c, file)) is not None and not is_deferred(c, file)]


@remembered
def what_matters(function: FunctionNode, file: SourceFile) -> Liveness | None:
    """The liveness of the function's names."""
    reference = weakref.ref(file)  # the file keeps the answer, which would keep the file

    def has_no_effect(expr: ast.expr) -> bool:
        held = reference()
        return held is not None and removable(expr, held)

    return liveness(function, has_no_effect)


def runs_for_effect(function: FunctionNode, file: SourceFile) -> bool:
    """Are networks run here for what happens in them: to warm up, to measure, to calibrate, to fill a cache, for hooks?"""
    return is_named_for_effect(function, file) or file.once(_measures)


def is_named_for_effect(function: FunctionNode, file: SourceFile) -> bool:
    """The half of it that the names of the function and its class tell."""
    cls = file.index.class_of(function)
    return _is_for_effect(function.name) or (cls is not None and _is_for_effect(cls.name))


@lru_cache(maxsize=4096)  # methods of many classes have the same names
def _is_for_effect(name: str) -> bool:
    return _FOR_EFFECT.search(name.lower()) is not None


def _measures(file: SourceFile) -> bool:
    return any(word in file.data for word in _MEASURES)
