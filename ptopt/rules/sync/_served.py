"""Calls that run a model which the file of a server has loaded: its methods, and functions that are given it."""

from __future__ import annotations

import ast
import re

from ptopt.rules.base import SourceFile
from ptopt.rules.shared.endpoints import loaded_names
from ptopt.source.calls import called_name
from ptopt.source.file import remembered
from ptopt.source.index import FunctionNode, own_nodes

RUNS = re.compile(
    r"^(generate\w*|transcribe\w*|encode(_\w+)?|predict\w*|infer(ence)?|forward|synthesi[sz]e\w*|tts\w*|embed\w*|detect\w*"
    r"|classify\w*|translate\w*|chat|complete|inference_\w+|get_\w+_features|readtext|__call__)$"
)
# Of a model that is known to be one; bytes and tokenizers have the first of them, too.
_RUNS_LOADED = re.compile(rf"^decode$|{RUNS.pattern}")
_NO_MODEL = re.compile(r"Tokenizer|Processor|Config|FeatureExtractor|Scheduler|tokenizer|processor")


def is_loaded(expr: ast.expr, file: SourceFile) -> bool:
    """Is it a name, an attribute or an entry of a dictionary that the file gives what it loads?"""
    return ast.unparse(expr) in loaded_names(file)


def runs_loaded(call: ast.Call, file: SourceFile) -> bool | None:
    """Does it run a model that the file loads? None where what it calls, or is given, is nothing that the file loads."""
    func = call.func
    owner = func.value if isinstance(func, ast.Attribute) and _RUNS_LOADED.search(func.attr) else None
    for expr in (func, owner):
        if expr is not None and is_loaded(expr, file):
            return _is_model(expr, file)
    return True if model_given(call, file) is not None else None


def model_given(call: ast.Call, file: SourceFile) -> ast.expr | None:
    """The loaded model that the call gives to a function which runs it: `decode(state["model"], mel)`.

    It is seen in the function where the repository has it, else known by its name, as `whisper.decode` is.
    """
    given = next((a for a in [*call.args, *(k.value for k in call.keywords)] if _is_model(a, file)), None)
    if given is None:
        return None
    found = file.definition_of(call)
    if found is None:
        return given if _RUNS_LOADED.search(called_name(call)) and file.imports.qualified(call.func) else None
    other, function = found
    if isinstance(function, ast.AsyncFunctionDef) or is_generator(function):
        return None
    if _RUNS_LOADED.search(function.name):
        return given
    parameter = _parameter_of(call, given, function)
    return given if parameter and _runs_parameter(function, parameter, other) else None


def _is_model(expr: ast.expr, file: SourceFile) -> bool:
    """Is it loaded, and neither a tokenizer nor a configuration?"""
    if not isinstance(expr, (ast.Name, ast.Attribute, ast.Subscript)):
        return False
    text = ast.unparse(expr)
    loader = loaded_names(file).get(text)
    return (
        loader is not None and not _NO_MODEL.search(text) and not _NO_MODEL.search(file.source(loader.func))
    )


def _parameter_of(call: ast.Call, given: ast.expr, function: FunctionNode) -> str:
    """The name under which the function gets the argument; "" where it is one of `*args` or `**kwargs`."""
    for keyword in call.keywords:
        if keyword.value is given:
            return keyword.arg or ""
    names = [a.arg for a in (*function.args.posonlyargs, *function.args.args)]
    own = isinstance(call.func, ast.Attribute) and names[:1] in (["self"], ["cls"])
    at = call.args.index(given) + own
    return names[at] if at < len(names) else ""


@remembered
def is_generator(function: FunctionNode) -> bool:
    return any(isinstance(n, (ast.Yield, ast.YieldFrom)) for n in own_nodes(function))


@remembered
def _runs_parameter(function: FunctionNode, name: str, file: SourceFile) -> bool:
    """Does the function call what it is given under the name, or a method of it that runs it?"""
    for call in file.calls.calls_in(function):
        func = call.func
        owner = func.value if isinstance(func, ast.Attribute) and _RUNS_LOADED.search(func.attr) else func
        if isinstance(owner, ast.Name) and owner.id == name:
            return True
    return False
