"""The names of library features that a rule's comments, fixes and pages tell people to write."""

from __future__ import annotations

import ast
import inspect
import re
import sys
from collections.abc import Iterator

from ptopt.project.added import named_in
from ptopt.rules.base import Rule

# Attributes of a rule that no reader sees as advice: examples of code, and what a file must contain.
_NOT_SAID = frozenset(
    "VALID INVALID BENCHMARK PROJECT triggers requires calls since until partly when_wrong".split()
)
_LOOKS = frozenset({"compile", "split", "has"})
_IN_WORDS = re.compile(r"[ =({]")  # a table of names has none of these


def names_of(rule: type[Rule]) -> frozenset[str]:
    """Names of `ptopt.project.added` in what the rule may say, and in what its fixes write.

    The texts are those of its module that read like a sentence or hold code; what the module only looks for in files
    under review is none, as are patterns.
    """
    found: set[str] = set()
    for text in _texts(ast.parse(inspect.getsource(sys.modules[rule.__module__])), rule.__doc__ or ""):
        if _IN_WORDS.search(text):
            found |= named_in(text)
    for case in rule.INVALID:
        found |= named_in(case.fixed or "") - named_in(case.code)
    page = rule.sections()
    found |= named_in(page.get("Use instead", "")) - named_in(page.get("Example", ""))
    return frozenset(found)


def _texts(node: ast.AST, page: str) -> Iterator[str]:
    """Strings that are put together from several parts are one, with `{}` for what is filled in."""
    if isinstance(node, (ast.Assign, ast.AnnAssign)):
        targets = node.targets if isinstance(node, ast.Assign) else [node.target]
        if any(isinstance(target, ast.Name) and target.id in _NOT_SAID for target in targets):
            return
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in _LOOKS:
        return  # a pattern, a list of words, a question about the project
    if isinstance(node, ast.Compare):
        return  # what a file is searched for
    if isinstance(node, (ast.FunctionDef, ast.ClassDef)) and ast.get_docstring(node) is not None:
        children: list[ast.AST] = [*node.body[1:], *node.decorator_list]
    else:
        children = list(ast.iter_child_nodes(node))
    if isinstance(node, ast.JoinedStr):
        children = [part.value for part in node.values if isinstance(part, ast.FormattedValue)]
        parts = [part.value if isinstance(part, ast.Constant) else "{}" for part in node.values]
        yield "".join(map(str, parts))
    if isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value != page:
        yield node.value
    for child in children:
        yield from _texts(child, page)
