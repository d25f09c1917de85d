"""Names that rules tell people to write: those of their corrected examples and texts that the code before did not have."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from benchmarks.versions.facts import Fact
from benchmarks.versions.inside import LIBRARIES
from ptopt.rules import rules
from ptopt.rules.base import Rule
from ptopt.rules.examples import as_file

_ROOTS = {**{name: name for name in LIBRARIES}, "pytorch_lightning": "lightning"}


def of_rules() -> Iterator[Fact]:
    """A fact for each name, keyword and method that the advice of a rule needs and the code before did not."""
    for rule in rules():
        seen: set[str] = set()
        for before, after in _pairs(rule):
            for question, library, says in sorted(_used(after) - _used(before)):
                if question not in seen:
                    seen.add(question)
                    yield Fact((rule.name,), library, says, question)


def _pairs(rule: Rule) -> Iterator[tuple[str, str]]:
    """Code before and after: of the examples that have a fix, and of the text of the rule."""
    yield from ((case.code, case.fixed) for case in rule.INVALID if case.fixed is not None)
    sections = rule.sections()
    blocks = [
        re.search(r"```python\n(.*?)```", sections.get(title, ""), re.S)
        for title in ("Example", "Use instead")
    ]
    if blocks[0] is not None and blocks[1] is not None:
        yield blocks[0][1], blocks[1][1]


def _used(text: str) -> set[tuple[str, str, str]]:
    """(question, library, in words) of all that the code takes from a library."""
    try:
        tree = ast.parse(as_file(text))
    except SyntaxError:  # a part of a program, in a text
        return set()
    aliases = dict(_imported(tree))
    found: set[tuple[str, str, str]] = set()
    inner = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
    for node in ast.walk(tree):
        if (
            isinstance(node, (ast.Attribute, ast.Name))
            and id(node) not in inner
            and (name := _qualified(node, aliases))
        ):
            found.add((f"exists({name!r})", _library(name), f"`{name}` exists"))
        if not isinstance(node, ast.Call):
            continue
        called = _qualified(node.func, aliases)
        for keyword in node.keywords if called else ():
            if keyword.arg is not None:
                question = f"takes({called!r}, {keyword.arg!r})"
                found.add((question, _library(called), f"`{called}` takes `{keyword.arg}`"))
        if not called and isinstance(node.func, ast.Attribute) and not _is_own(node.func, tree):
            found.add(
                (
                    f"method({node.func.attr!r})",
                    "torch",
                    f"tensors, modules or loaders have `{node.func.attr}`",
                )
            )
    return found


def _imported(tree: ast.AST) -> Iterator[tuple[str, str]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for item in node.names:
                if item.name.partition(".")[0] in _ROOTS:
                    yield (
                        item.asname or item.name.partition(".")[0],
                        item.name if item.asname else item.name.partition(".")[0],
                    )
        elif isinstance(node, ast.ImportFrom) and node.module and node.module.partition(".")[0] in _ROOTS:
            for item in node.names:
                yield item.asname or item.name, f"{node.module}.{item.name}"


def _qualified(node: ast.AST, aliases: dict[str, str]) -> str:
    parts: list[str] = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    if not isinstance(node, ast.Name) or node.id not in aliases:
        return ""
    return ".".join((aliases[node.id], *reversed(parts))).replace("pytorch_lightning", "lightning.pytorch")


def _library(name: str) -> str:
    return _ROOTS[name.partition(".")[0]]


def _is_own(function: ast.Attribute, tree: ast.AST) -> bool:
    """Does the example define a method of this name itself?"""
    return any(
        isinstance(n, (ast.FunctionDef, ast.ClassDef)) and n.name == function.attr for n in ast.walk(tree)
    )
