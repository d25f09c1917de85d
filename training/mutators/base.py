"""What a mutator is: it puts the slow form of a rule into fast code, and the way back is known."""

from __future__ import annotations

import ast
import builtins
import re
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar, Protocol

from ptopt.findings import Edit
from ptopt.source.file import SourceFile
from ptopt.source.index import FUNCTIONS, FunctionNode, Loop
from training.mutators.names import Names


@dataclass(frozen=True, slots=True)
class Mutation:
    """Edits that bring the problem in. A `guarded` one looks like it, and the rule must stay silent.

    `fast` are edits that put in the same without the problem: the answer, where that is not the way back. With
    `answered` False there is none: each form without the problem would do something else, or needs a change elsewhere.
    """

    edits: tuple[Edit, ...]
    guarded: bool = False
    fast: tuple[Edit, ...] = ()
    answered: bool = True


class Mutator(Protocol):
    """`examples` are pairs of code before and after, whole files; the tests run them."""

    rule: ClassVar[str]
    examples: ClassVar[tuple[tuple[str, str], ...]]

    def mutate(self, source: SourceFile) -> Iterator[Mutation]:
        """The ways to put the slow form into the file."""
        ...


def apply(text: str, edits: tuple[Edit, ...]) -> tuple[str, tuple[Edit, ...]]:
    """The text after the edits, and the edits that lead back."""
    data = text.encode("utf-8")
    parts: list[bytes] = []
    back: list[Edit] = []
    position = shift = 0
    for edit in sorted(edits):
        if edit.start < position:
            raise ValueError(f"edits overlap at byte {edit.start}")
        new = edit.replacement.encode("utf-8")
        parts += [data[position : edit.start], new]
        start = edit.start + shift
        back.append(Edit(start, start + len(new), data[edit.start : edit.end].decode("utf-8")))
        shift += len(new) - (edit.end - edit.start)
        position = edit.end
    parts.append(data[position:])
    return b"".join(parts).decode("utf-8"), tuple(back)


def pick(choices: tuple[str, ...], source: SourceFile, place: int) -> str:
    """One of the templates, by the code around the place: the same for the same code."""
    return choices[(zlib.crc32(source.data[max(0, place - 200) : place + 200]) >> 4) % len(choices)]


def replace(source: SourceFile, node: ast.AST, text: str) -> Edit:
    start, end = source.bounds(node)
    return Edit(start, end, text)


def bracketed(source: SourceFile, node: ast.expr) -> str:
    """The source of the expression, in brackets where an operator beside it would take it apart."""
    text = source.source(node)
    plain = (ast.Name, ast.Attribute, ast.Call, ast.Subscript, ast.Constant)
    return text if isinstance(node, plain) else f"({text})"


def remove_keyword(source: SourceFile, call: ast.Call, name: str) -> Edit | None:
    """Edit that takes the argument `name=...` away; None when it is not there, or more than a comma stands before it."""
    keyword = next((k for k in call.keywords if k.arg == name), None)
    if keyword is None:
        return None
    arguments = sorted([*call.args, *call.keywords], key=source.bounds)
    place = arguments.index(keyword)
    start, end = source.bounds(keyword)
    if place:
        before = source.bounds(arguments[place - 1])[1]
        return Edit(before, end, "") if source.data[before:start].strip() == b"," else None
    if len(arguments) == 1:
        return Edit(start, end, "")
    after = source.bounds(arguments[1])[0]
    return Edit(start, after, "") if source.data[end:after].strip() == b"," else None


def names(source: SourceFile) -> Names:
    """What the file names."""
    return source.once(_names)


def _names(source: SourceFile) -> Names:
    return Names.of(source.tree)


_IMPORTS = "import gc, math, os, torch\nimport numpy as np\nfrom torch import nn\nfrom torch.nn import functional as F"


def words(name: str) -> frozenset[str]:
    """The words of a name in lower case: those of "layer_norm1" are "layer" and "norm", of "dropout" itself alone."""
    return frozenset(re.findall(r"[a-z]+", name.lower()))


def is_known(source: SourceFile, code: str, place: ast.AST) -> bool:
    """Does the file show all that `code` names, at this place? Imports that the mutation adds count as shown."""
    wanted = ast.parse(f"{_IMPORTS}\n{code}")
    if names(source).unknown_in(wanted):
        return False
    plain = Names.of(wanted)
    return not plain.used - plain.set - _visible(source, place) - frozenset(dir(builtins))


def _visible(source: SourceFile, place: ast.AST) -> frozenset[str]:
    """The names of the module and of the function around the place: a parameter of `__init__` is none in another method."""
    around = [node for node, _ in source.index.ancestors(place) if isinstance(node, FUNCTIONS)]
    own = place if isinstance(place, FUNCTIONS) else None
    outermost = around[-1] if around else own
    found = source.once(_of_module)
    if outermost is None:
        return found
    inside = Names.of(outermost)
    return found | inside.used | inside.set


def _of_module(source: SourceFile) -> frozenset[str]:
    outside = [n for n in source.index.of_type(ast.Name) if source.index.function_of(n) is None]
    made = source.index.of_type(ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
    return frozenset({n.id for n in outside} | {n.name for n in made} | set(source.imports.local_names()))


def indent_of(source: SourceFile, statement: ast.stmt) -> str:
    line = source.line(statement.lineno)
    return line[: len(line) - len(line.lstrip())]


def alone(source: SourceFile, statement: ast.stmt) -> bool:
    """Does the statement have its lines to itself?"""
    start, end = source.bounds(statement)
    first = source.offset(statement.lineno, 0)
    newline = source.data.find(b"\n", end)
    after = source.data[end : newline if newline >= 0 else len(source.data)].strip()
    return not source.data[first:start].strip() and (not after or after.startswith(b"#"))


def insert_after(source: SourceFile, statement: ast.stmt, code: str) -> Edit | None:
    """Edit that puts `code` (lines without indentation) behind the statement, in its block."""
    if not alone(source, statement):
        return None
    _, end = source.bounds(statement)
    newline = source.data.find(b"\n", end)
    at = newline + 1 if newline >= 0 else len(source.data)
    return Edit(at, at, _indented(code, indent_of(source, statement)))


def insert_before(source: SourceFile, statement: ast.stmt, code: str) -> Edit | None:
    """Edit that puts `code` before the statement, in its block."""
    if not alone(source, statement):
        return None
    at = source.offset(statement.lineno, 0)
    return Edit(at, at, _indented(code, indent_of(source, statement)))


def _indented(code: str, indent: str) -> str:
    return "".join(f"{indent}{line}\n" for line in code.split("\n"))


def reindent(source: SourceFile, first: int, last: int, by: int) -> str | None:
    """Lines `first` to `last` moved by `by` columns; None when a string over several lines stands in the way."""
    lines = [source.line(n) for n in range(first, last + 1)]
    if any(q in line for line in lines for q in ('"""', "'''")):
        return None
    if by >= 0:
        return "".join(f"{' ' * by}{line}\n" if line.strip() else "\n" for line in lines)
    if any(line.strip() and not line.startswith(" " * -by) for line in lines):
        return None
    return "".join(f"{line[-by:]}\n" for line in lines)


def need_import(source: SourceFile, name: str, line: str) -> tuple[Edit, ...]:
    """The edit that imports what the slow form needs, unless the file has it."""
    return () if name in source.imports.local_names() else (Edit(0, 0, f"{line}\n"),)


@dataclass(frozen=True, slots=True)
class Site:
    """A place in a training step behind which code can be put."""

    statement: ast.stmt  # `optimizer.step()`, `loss.backward()`, or the `return` of a step function
    before: bool  # code goes before the statement, not behind it
    loss: str  # source of the loss; "" when unknown
    optimizer: str  # source of the optimizer; "" when unknown
    counter: str  # name of a step counter; "" when there is none
    method: bool
    container: Loop | FunctionNode

    def put(self, source: SourceFile, code: str) -> Edit | None:
        return (insert_before if self.before else insert_after)(source, self.statement, code)


def sites(source: SourceFile) -> list[Site]:
    """The training steps of the file: behind the last mark of each, or before the `return` of a step function."""
    return source.once(_sites)


def _sites(source: SourceFile) -> list[Site]:
    found: dict[ast.AST, Site] = {}
    for call in source.index.of_type(ast.Call):
        if not source.context.is_training_mark(call):
            continue
        statement = source.index.statement_of(call)
        step = source.context.training_step(call)
        function = source.index.function_of(call)
        if step is None or not isinstance(statement, ast.Expr):
            continue
        loss = _loss_in(source, step.node, call)
        optimizer = (
            source.source(call.func.value) if _is_step(call) and isinstance(call.func, ast.Attribute) else ""
        )
        counter = _counter(source, step.node)
        method = function is not None and source.index.class_of(function) is not None
        found[step.node] = Site(statement, False, loss, optimizer, counter, method, step.node)
    for function in source.index.of_type(ast.FunctionDef):
        last = function.body[-1]
        if function.name not in ("training_step", "train_step", "compute_loss") or function in found:
            continue
        if isinstance(last, ast.Return) and isinstance(last.value, ast.Name) and "loss" in last.value.id:
            counter = next((a.arg for a in function.args.args if a.arg in ("batch_idx", "step")), "")
            found[function] = Site(last, True, last.value.id, "", counter, True, function)
    return list(found.values())


def _is_step(call: ast.Call) -> bool:
    return isinstance(call.func, ast.Attribute) and call.func.attr == "step"


def _loss_in(source: SourceFile, container: ast.AST, mark: ast.Call) -> str:
    """Source of what is backpropagated in the step."""
    for call in [mark, *source.index.of_type(ast.Call)]:
        func = call.func
        if not isinstance(func, ast.Attribute) or func.attr not in ("backward", "manual_backward"):
            continue
        if not source.index.within(call, container):
            continue
        value: ast.expr = func.value
        if isinstance(value, ast.Call) and value.args:  # scaler.scale(loss).backward()
            value = value.args[0]
        elif call.args and not isinstance(call.args[0], ast.Starred):  # accelerator.backward(loss)
            value = call.args[0]
        if isinstance(value, (ast.Name, ast.Attribute)):
            return source.source(value)
    return ""


def _counter(source: SourceFile, container: ast.AST) -> str:
    if isinstance(container, ast.For):
        call = container.iter
        while isinstance(call, ast.Call) and call.args and not _is_named(call, "enumerate"):
            call = call.args[0]
        if isinstance(call, ast.Call) and isinstance(container.target, ast.Tuple):
            first = container.target.elts[0]
            if isinstance(first, ast.Name) and first.id != "_":
                return first.id
        if isinstance(container.target, ast.Name) and _is_named(container.iter, "range"):
            return container.target.id if container.target.id != "_" else ""
    return ""


def _is_named(node: ast.expr, name: str) -> bool:
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == name


def unwrapped(source: SourceFile, node: ast.With | ast.If, body: list[ast.stmt]) -> Edit | None:
    """Edit that leaves the body of a block in the place of the block."""
    first, last = body[0].lineno, node.end_lineno or node.lineno
    if first == node.lineno:
        return None
    deeper = body[0].col_offset - node.col_offset
    text = reindent(source, first, last, -deeper)
    start = source.offset(node.lineno, 0)
    if text is None or source.data[start : source.bounds(node)[0]].strip():
        return None
    end = source.offset(last, 0) + len(source.line(last).encode()) + 1
    return Edit(start, min(end, len(source.data)), text)
