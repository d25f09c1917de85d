"""How many dimensions a tensor has, where the code around says it."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from ptopt.source.file import SourceFile
from ptopt.source.index import FunctionNode

_SHAPED = frozenset("zeros ones empty rand randn view reshape".split())
_FLAT = frozenset("arange linspace flatten randperm bincount".split())
_KEEP = frozenset(
    "to cuda cpu float long half double bool int detach clone contiguous abs exp log sqrt sigmoid relu tanh softmax "
    "log_softmax zeros_like ones_like empty_like rand_like randn_like cumsum flip masked_fill clamp".split()
)


def rank_of(source: SourceFile, expr: ast.expr) -> int | None:
    """The number of dimensions; None where nothing in the function says it, or two places disagree."""
    if not isinstance(expr, ast.Name):
        return _made(source, expr, 4)
    found = set(_of_name(source, expr.id, source.index.function_of(expr), 4))
    return found.pop() if len(found) == 1 else None


def _of_name(source: SourceFile, name: str, function: FunctionNode | None, depth: int) -> Iterator[int]:
    """What is said of a name that is bound once in the function."""
    inside = [n for n in source.index.of_type(ast.Name) if source.index.function_of(n) is function]
    stored = [n for n in inside if n.id == name and not isinstance(n.ctx, ast.Load)]
    arguments = function.args if function is not None else None
    parameters = [] if arguments is None else [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]
    given = [a for a in parameters if a.arg == name]
    if len(stored) + len(given) != 1 or depth == 0:
        return
    for parameter in given:
        if parameter.annotation is not None:
            yield from _annotated(parameter.annotation)
    for node in inside:
        if node.id != name or not isinstance(node.ctx, ast.Load):
            continue
        sized = source.index.parent(node)
        if not isinstance(sized, ast.Attribute) or sized.attr not in ("shape", "size", "ndim", "dim"):
            continue
        value = source.index.parent(sized)
        value = value if isinstance(value, ast.Call) and value.func is sized and not value.args else sized
        if sized.attr in ("size", "dim") and value is sized:
            continue
        around = source.index.parent(value)
        if sized.attr in ("shape", "size"):
            if isinstance(around, ast.Assign) and isinstance(around.targets[0], ast.Tuple):
                elements = around.targets[0].elts
                if not any(isinstance(e, ast.Starred) for e in elements):
                    yield len(elements)
        elif isinstance(around, ast.Compare) and isinstance(source.index.parent(around), ast.Assert):
            right = around.comparators[0]
            if isinstance(around.ops[0], ast.Eq) and isinstance(right, ast.Constant):
                yield from (right.value,) if isinstance(right.value, int) else ()
    for node in stored:
        statement = source.index.parent(node)
        if isinstance(statement, ast.Assign) and statement.targets == [node]:
            made = _made(source, statement.value, depth - 1)
            yield from () if made is None else (made,)


def _annotated(annotation: ast.expr) -> Iterator[int]:
    """`Float[Tensor, "b n d"]` of jaxtyping."""
    texts = [
        n.value for n in ast.walk(annotation) if isinstance(n, ast.Constant) and isinstance(n.value, str)
    ]
    if isinstance(annotation, ast.Subscript) and len(texts) == 1:
        words = texts[0].split()
        if words and all(re.fullmatch(r"[\w+\-*=]+", w) and not w.startswith("*") for w in words):
            yield len(words)


def _made(source: SourceFile, value: ast.expr, depth: int) -> int | None:
    """The rank of what an expression makes."""
    if isinstance(value, ast.Name):
        found = set(_of_name(source, value.id, source.index.function_of(value), depth))
        return found.pop() if len(found) == 1 else None
    if not isinstance(value, ast.Call) or depth == 0:
        return None
    leaf = value.func.attr if isinstance(value.func, ast.Attribute) else getattr(value.func, "id", "")
    in_torch = source.imports.qualified(value.func).startswith("torch.")
    plain = not any(isinstance(a, ast.Starred) for a in value.args)
    if leaf in _FLAT:
        return 1 if not (leaf == "flatten" and len(value.args) + len(value.keywords) > in_torch) else None
    if leaf in _SHAPED and plain and value.args:
        sizes = value.args[1:] if in_torch and leaf == "reshape" else value.args
        if len(sizes) == 1 and isinstance(sizes[0], (ast.Tuple, ast.List)):
            sizes = sizes[0].elts
            return None if any(isinstance(s, ast.Starred) for s in sizes) else len(sizes)
        return len(sizes) if len(sizes) > 1 else None
    if leaf == "rearrange" and len(value.args) == 2 and isinstance(value.args[1], ast.Constant):
        after = str(value.args[1].value).partition("->")[2]
        return len(re.sub(r"\([^()]*\)", "x", after).split()) if after and "..." not in after else None
    if leaf in _KEEP:
        inner = value.args[0] if in_torch and value.args else getattr(value.func, "value", None)
        return _made(source, inner, depth - 1) if isinstance(inner, ast.expr) else None
    return None
