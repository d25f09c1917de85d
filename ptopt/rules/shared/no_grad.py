"""Edits that turn autograd off."""

from __future__ import annotations

import ast

from ptopt.rules.base import Edit, Fix, Safety, SourceFile
from ptopt.rules.shared.evaluation import Evaluation
from ptopt.source.index import FunctionNode, walk


def no_grad_text(file: SourceFile) -> str:
    """`torch.no_grad()` as this file can spell it, or ""."""
    for local, origin in file.imports.local_names().items():
        if origin == "torch":
            return f"{local}.no_grad()"
    for local, origin in file.imports.local_names().items():
        if origin == "torch.no_grad":
            return f"{local}()"
    return ""


def remedy_of(found: Evaluation, function: FunctionNode | None, file: SourceFile) -> tuple[str, Fix | None]:
    """How autograd is turned off there, and the fix that does it: of all rules that blame the same evaluation."""
    loop = found.case.loop
    if loop is not None:
        fix = wrap(loop, "nothing that the loop leaves behind is backpropagated", file)
        return "Put the loop under `with torch.no_grad():`", fix
    if function is None:
        return "Put the pass under `with torch.no_grad():`", None
    if found.facts["others_off"]:
        return "Put it under `torch.no_grad()` as well", None
    return "Decorate it with `@torch.no_grad()`", decorate(function, file)


def decorate(function: FunctionNode, file: SourceFile) -> Fix | None:
    """Put `@torch.no_grad()` right above `def`: below `@staticmethod` and the like, which must stay outermost."""
    spelled = no_grad_text(file)
    line = file.line(function.lineno)
    indent = line[: len(line) - len(line.lstrip())]
    if not spelled or isinstance(function, ast.AsyncFunctionDef) or not line.lstrip().startswith("def "):
        return None
    at = file.offset(function.lineno, 0)
    newline = "\r\n" if b"\r\n" in file.data[at : at + len(line.encode()) + 2] else "\n"
    return Fix(
        Safety.UNSAFE,
        (Edit(at, at, f"{indent}@{spelled}{newline}"),),
        f"nothing that `{function.name}` returns or stores is backpropagated",
    )


def wrap(statement: ast.stmt, assumption: str, file: SourceFile) -> Fix | None:
    """Put one statement of its own lines under `with torch.no_grad():`."""
    spelled = no_grad_text(file)
    start, end = file.bounds(statement)
    first = file.offset(statement.lineno, 0)
    indent = file.data[first:start].decode("utf-8", "surrogatepass")
    if not spelled or indent.strip() or _has_text_block(statement):
        return None
    unit = "\t" if "\t" in indent else "    "
    body = indented(file.data[start:end].decode("utf-8", "surrogatepass"), unit).removeprefix(unit)
    newline = "\r\n" if "\r\n" in file.text else "\n"
    return Fix(
        Safety.UNSAFE, (Edit(start, end, f"with {spelled}:{newline}{indent}{unit}{body}"),), assumption
    )


def indented(text: str, unit: str) -> str:
    """The lines of `text` one level deeper; blank ones stay as they are."""
    return "\n".join(f"{unit}{line}" if line.strip() else line for line in text.split("\n"))


def _has_text_block(statement: ast.stmt) -> bool:
    """Does a string run over several lines, so that re-indenting would change it?"""
    return any(
        isinstance(n, (ast.Constant, ast.JoinedStr)) and n.lineno != n.end_lineno for n in walk(statement)
    )
