"""Code that exists for export to another runtime."""

from __future__ import annotations

import ast
import re

from ptopt.rules.base import SourceFile
from ptopt.source.index import FUNCTIONS

_EXPORT = re.compile(r"export|onnx|coreml|tensorrt|tflite|jit\.is_tracing", re.I)


def for_export(node: ast.AST, file: SourceFile) -> bool:
    """Do the branch, the function or the class around it speak of export?"""
    for around, _ in file.index.ancestors(node):
        if isinstance(around, ast.If) and _EXPORT.search(file.source(around.test)):
            return True
        if isinstance(around, (*FUNCTIONS, ast.ClassDef)) and _EXPORT.search(
            f"{getattr(around, 'name', '')} {_documentation(around)}"
        ):
            return True
    return False


def _documentation(around: ast.AST) -> str:
    if not isinstance(around, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
        return ""
    return ast.get_docstring(around, clean=False) or ""
