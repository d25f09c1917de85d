"""Functions that a server, a demo or a dataset runs for each request or sample, and what shows it."""

from __future__ import annotations

import ast
import re

from ptopt.rules.base import SourceFile
from ptopt.rules.shared.endpoints import METHODS, endpoint_decorator
from ptopt.source.calls import called_name, last_name
from ptopt.source.index import FunctionNode

# Base class -> the methods that its framework calls for each request.
_HANDLERS = (
    (re.compile(r"Pipeline$"), "", frozenset({"preprocess", "forward", "postprocess", "_forward"})),
    (re.compile(r"^Operator$"), "monai", frozenset({"compute"})),
    (re.compile(r"Metric$"), "", frozenset({"compute"})),
    (re.compile(r"^(BasePredictor|Predictor)$"), "cog", frozenset({"predict"})),
    (
        re.compile(r"Handler$"),
        "ts",
        frozenset({"handle", "preprocess", "inference", "postprocess", "explain_handle", "get_insights"}),
    ),
    (re.compile(r"^Model$"), "kserve", frozenset({"predict", "preprocess", "postprocess", "explain"})),
    (re.compile(r"^LitAPI$"), "litserve", frozenset({"predict", "decode_request", "encode_response"})),
)
# What a user does to a component of gradio: the function given is called each time.
_EVENTS = frozenset(
    "click submit change upload select input release stop_recording stream then success".split()
)
_INTERFACES = frozenset({"Interface", "ChatInterface"})
_HANDLING = frozenset({"execute"}).union(*(methods for _, _, methods in _HANDLERS))


# Texts of which a file with a function for each request or sample, or with a loop, holds one, unless it has a `ROUTE`.
REPEATED = (
    *(start + word for start in (b"  ", b"\n", b"\n ", b"\t") for word in (b"for ", b"for(", b"while")), b"async for",
    b"Pipeline", b"Operator", b"Metric", b"Predictor", b"Handler", b"kserve", b"LitAPI", b"TritonPythonModel", b"gradio",
    b"__getitem", b"collate", b"COLLATE", b"Collate", b"Dataset",
)  # fmt: skip
ROUTE = re.compile(rb"@\s*[\w.]+\.\s*(?:%s)\b" % b"|".join(name.encode() for name in sorted(METHODS)))


def request_words(function: FunctionNode, file: SourceFile) -> str:
    """ "for each request (`@app.post`)" of a function that is run once a request, else ""."""
    decorator = endpoint_decorator(function) if function.decorator_list else ""
    if decorator:
        return f"for each request (`{decorator}`)"
    cls = file.index.parent(function) if function.name in _HANDLING else None
    if isinstance(cls, ast.ClassDef):
        for base in cls.bases:
            for name, module, methods in _HANDLERS:
                if (
                    function.name in methods
                    and name.search(last_name(base))
                    and module in ("", file.imports.qualified(base).split(".")[0])
                ):
                    return (
                        f"{'for each request' if module else 'on each call'} (`{cls.name}.{function.name}`)"
                    )
        if cls.name == "TritonPythonModel" and function.name == "execute":
            return "for each request (`TritonPythonModel.execute`)"
    line = file.once(_gradio_handlers).get(function.name)
    return f"for each request (line {line})" if line else ""


def _gradio_handlers(file: SourceFile) -> dict[str, int]:
    """Names of the functions and methods that components of gradio are given, with the line."""
    if not file.imports.imports("gradio"):
        return {}
    found: dict[str, int] = {}
    for call in file.index.of_type(ast.Call):
        name = called_name(call)
        if not (name in _INTERFACES or (name in _EVENTS and isinstance(call.func, ast.Attribute))):
            continue
        given = next((k.value for k in call.keywords if k.arg == "fn"), call.args[0] if call.args else None)
        handler = last_name(given)
        if handler:
            found.setdefault(handler, call.lineno)
    return found
