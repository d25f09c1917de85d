"""Functions that a server runs for each request, and objects that the file loads from weights."""

from __future__ import annotations

import ast
import re

from ptopt.rules.base import SourceFile
from ptopt.source.calls import last_name
from ptopt.source.index import FunctionNode

# `@app.post(...)`, `@router.websocket(...)`, `@routes.get(...)`: a method of HTTP of an application or a router.
METHODS = frozenset(
    "get post put patch delete head options route api_route websocket websocket_route middleware view endpoint".split()
)
_ROUTER = re.compile(r"(^|_)(app|api|application|server|routers?|routes|blueprint|bp|sio)(_|$)|router$", re.I)
_MODEL_LOADERS = re.compile(
    r"(^|\.)(from_pretrained|load_(\w+_)?model|load_from_checkpoint|SentenceTransformer|CrossEncoder|WhisperModel|"
    r"load_checkpoint_and_dispatch|create_model|build_model)$|^torch\.(hub\.load|load|jit\.load)$|^whisper\.load_model$"
    r"|^transformers\.pipeline$|\bpipelines\.pipeline$|^spacy\.load$|^easyocr\.Reader$|^ultralytics\.YOLO$"
)


def endpoint_decorator(function: FunctionNode) -> str:
    """The text of the decorator that makes it the handler of a route, or ""."""
    for decorator in function.decorator_list:
        func = decorator.func if isinstance(decorator, ast.Call) else decorator
        if isinstance(func, ast.Attribute) and func.attr in METHODS and _ROUTER.search(last_name(func.value)):
            return f"@{ast.unparse(func)}"
    return ""


def dotted(expr: ast.expr) -> str:
    """`self.model` of a dotted name, "" of anything else."""
    inner = expr
    while isinstance(inner, ast.Attribute):
        inner = inner.value
    return ast.unparse(expr) if isinstance(inner, ast.Name) else ""


def loads_model(call: ast.Call, file: SourceFile) -> bool:
    """Does the call build a model, or what belongs to it, from weights or files on disk?"""
    name = file.imports.qualified(call.func) or ast.unparse(call.func)
    return bool(_MODEL_LOADERS.search(name))


def loaded_names(file: SourceFile) -> dict[str, ast.Call]:
    """Names, attributes and entries (`state['model']`) that are given a loaded model, or one put in eval mode.

    Each with the call that loads it.
    """
    return file.once(_loaded_names)


def _loaded_names(file: SourceFile) -> dict[str, ast.Call]:
    found: dict[str, ast.Call] = {}
    for assign in file.index.of_type(ast.Assign):
        found.update(_entries(assign, file))
        call = _loader_in(assign.value, file)
        if call is None:
            continue
        for target in assign.targets:
            for each in target.elts if isinstance(target, ast.Tuple) else [target]:
                if isinstance(each, (ast.Name, ast.Attribute, ast.Subscript)):
                    found.setdefault(ast.unparse(each), call)
    for call in file.calls_named("eval"):
        if isinstance(call.func, ast.Attribute) and not call.args:
            found.setdefault(ast.unparse(call.func.value), call)
    return found


def _entries(assign: ast.Assign, file: SourceFile) -> dict[str, ast.Call]:
    """`state['model']` of `state = {"model": load_model("turbo")}`."""
    if not isinstance(assign.value, ast.Dict):
        return {}
    loaded = [
        (key, call)
        for key, value in zip(assign.value.keys, assign.value.values, strict=True)
        if isinstance(key, ast.Constant) and (call := _loader_in(value, file)) is not None
    ]
    return {
        f"{ast.unparse(target)}[{key.value!r}]": call
        for target in assign.targets
        for key, call in loaded
        if isinstance(target, (ast.Name, ast.Attribute))
    }


def _loader_in(value: ast.expr, file: SourceFile) -> ast.Call | None:
    """`Model.from_pretrained(name)` of `Model.from_pretrained(name).to(device).eval()`."""
    while isinstance(value, ast.Call):
        if loads_model(value, file):
            return value
        func = value.func
        if not (isinstance(func, ast.Attribute) and isinstance(func.value, ast.Call)):
            return None
        value = func.value
    return None
