"""Imports that bind one name to different things, each in a branch of an `if`: the one that runs by default."""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ptopt.audit.oldpython import parse_old
from ptopt.source.calls import last_name
from ptopt.source.file import SourceFile
from ptopt.source.index import FUNCTIONS
from ptopt.syntax import ParseError

MOST_BYTES = 1_000_000  # of one file; larger ones are generated
_FLAGS = {"store_true": False, "store_false": True}


Options = Callable[[str], Any]  # the default of an option by its name; None where it is not known


def by_default(file: SourceFile, imports: Sequence[ast.stmt], elsewhere: Options = lambda name: None) -> int:
    """Which of them: the first, unless options say that it does not run and that another one does. `elsewhere`: those of other files."""
    own = defaults_of(file)
    answers = [
        _runs(file, each, lambda name: own[name] if name in own else elsewhere(name)) for each in imports
    ]
    return answers.index(True) if answers[0] is False and True in answers else 0


class DeclaredOptions:
    """The defaults of the options that the files of a repository declare. Holds no tree: what it has read of a file is a few values."""

    def __init__(self, files: Mapping[str, bytes]) -> None:
        self._files = files
        self._known: dict[str, Any] = {}

    def __call__(self, name: str) -> Any:
        """The default of an option; None where no parser has it, or those of several files do."""
        if name not in self._known:
            flags = (f'"--{name}"'.encode(), f"'--{name}'".encode())
            declaring = [
                p for p, data in self._files.items() if p.endswith(".py") and any(f in data for f in flags)
            ]
            self._known[name] = self._read(declaring[0], name) if len(declaring) == 1 else None
        return self._known[name]

    def _read(self, path: str, name: str) -> Any:
        if len(self._files[path]) > MOST_BYTES:
            return None
        try:
            return defaults_of(SourceFile(path, parse_old(path, self._files[path])[0])).get(name)
        except ParseError:
            return None


def defaults_of(file: SourceFile) -> Mapping[str, Any]:
    """The defaults of the parsers of the file: None of options that it sets elsewhere, that are given twice or have no default."""
    found: dict[str, list[Any]] = {}
    for call in file.index.of_type(ast.Call):
        flags = [a.value for a in call.args if isinstance(a, ast.Constant) and isinstance(a.value, str)]
        if last_name(call.func) != "add_argument" or not flags:
            continue
        given = {k.arg: k.value for k in call.keywords}
        long = next((flag for flag in flags if flag.startswith("--")), flags[0])
        dest, action, default = given.get("dest"), given.get("action"), given.get("default")
        if isinstance(action, ast.Constant) and action.value in _FLAGS and default is None:
            default = ast.Constant(_FLAGS[action.value])
        stated = default.value if isinstance(default, ast.Constant) else None
        name = dest.value if isinstance(dest, ast.Constant) else long.lstrip("-").replace("-", "_")
        found.setdefault(str(name), []).append(stated)
    changed = {n.attr for n in file.index.of_type(ast.Attribute) if isinstance(n.ctx, ast.Store)}
    changed |= {
        str(call.args[1].value)
        for call in file.index.of_type(ast.Call)
        if last_name(call.func) == "setattr" and len(call.args) > 1 and isinstance(call.args[1], ast.Constant)
    }
    changed |= {
        k.arg or ""
        for call in file.index.of_type(ast.Call)
        if last_name(call.func) == "set_defaults"
        for k in call.keywords
    }
    return {
        name: values[0] if len(values) == 1 and name not in changed else None
        for name, values in found.items()
    }


def _runs(file: SourceFile, statement: ast.stmt, holds: Options) -> bool | None:
    """Whether the branches around a statement of a module or function are taken; None where that is not known."""
    answer: bool | None = True
    for ancestor, child in file.index.ancestors(statement):
        if isinstance(ancestor, FUNCTIONS):
            return answer
        if isinstance(ancestor, ast.If):
            truth = _truth(ancestor.test, holds)
            one = truth if truth is None or child in ancestor.body else not truth
            if one is False:
                return False
            answer = None if one is None else answer
        elif not isinstance(ancestor, ast.Module):
            answer = None
    return answer


def _truth(test: ast.expr, holds: Options) -> bool | None:
    if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        inner = _truth(test.operand, holds)
        return None if inner is None else not inner
    if isinstance(test, ast.BoolOp):
        decisive = isinstance(test.op, ast.Or)
        parts = [_truth(value, holds) for value in test.values]
        return decisive if decisive in parts else None if None in parts else not decisive
    if isinstance(test, ast.Attribute):
        held = holds(test.attr)
        return None if held is None else bool(held)
    if (
        isinstance(test, ast.Compare)
        and len(test.ops) == 1
        and isinstance(test.left, ast.Attribute)
        and isinstance(test.ops[0], (ast.Eq, ast.NotEq))
        and isinstance(test.comparators[0], ast.Constant)
    ):
        held = holds(test.left.attr)
        same = None if held is None else bool(held == test.comparators[0].value)
        return same if same is None or isinstance(test.ops[0], ast.Eq) else not same
    return None
