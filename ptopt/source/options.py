"""Options: what a condition on one is by default, as far as the file tells."""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from ptopt.source.file import SourceFile, remembered
from ptopt.source.index import FUNCTIONS, FunctionNode

_COMPARED: Mapping[type[ast.cmpop], Callable[[Any, Any], object]] = {
    ast.Is: operator.eq,
    ast.Eq: operator.eq,
    ast.IsNot: operator.ne,
    ast.NotEq: operator.ne,
    ast.Gt: operator.gt,
    ast.Lt: operator.lt,
}


def default_of(test: ast.expr, file: SourceFile) -> bool | None:
    """The truth of a condition by default: of `if verbose:` in `def f(verbose=False)`, of `if self.bias:` after
    `self.bias = bias` in `__init__(self, bias=True)`, of `if args.fp16:` after `add_argument("--fp16",
    action="store_true")`. None where no default is seen."""
    if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        inner = default_of(test.operand, file)
        return None if inner is None else not inner
    if isinstance(test, ast.BoolOp):
        known = [default_of(value, file) for value in test.values]
        if isinstance(test.op, ast.And):
            return False if False in known else None if None in known else True
        return True if True in known else None if None in known else False
    if isinstance(test, ast.Compare) and len(test.ops) == 1:
        return _of_comparison(test, file)
    value = _default(test, file)
    return None if value is None else bool(value.value)


def _of_comparison(test: ast.Compare, file: SourceFile) -> bool | None:
    right = test.comparators[0]
    value = _default(test.left, file)
    if value is None or not isinstance(right, ast.Constant):
        return None
    compared = _COMPARED.get(type(test.ops[0]))
    try:
        return None if compared is None else bool(compared(value.value, right.value))
    except TypeError:  # None > 0
        return None


def _default(expr: ast.expr, file: SourceFile) -> ast.Constant | None:
    """The constant that an option holds unless a caller or a user says otherwise."""
    function = file.index.function_of(expr)
    if isinstance(expr, ast.Name):
        scope: FunctionNode | None = function
        while scope is not None:
            defaults = parameter_defaults(scope)
            if expr.id in defaults:
                return defaults[expr.id]
            scope = file.index.function_of(scope)
        return None
    if not (isinstance(expr, ast.Attribute) and isinstance(expr.value, (ast.Name, ast.Attribute))):
        return None
    if isinstance(expr.value, ast.Name) and expr.value.id == "self":
        cls = file.index.class_of(expr)
        return _of_attribute(cls, expr.attr, file) if cls is not None else None
    return file.once(_arguments).get(expr.attr)


@remembered
def parameter_defaults(function: FunctionNode) -> dict[str, ast.Constant]:
    """Parameter -> its default, where that is a constant."""
    found = {}
    positional = [*function.args.posonlyargs, *function.args.args]
    for argument, default in zip(reversed(positional), reversed(function.args.defaults), strict=False):
        if isinstance(default, ast.Constant):
            found[argument.arg] = default
    for argument, given in zip(function.args.kwonlyargs, function.args.kw_defaults, strict=True):
        if isinstance(given, ast.Constant):
            found[argument.arg] = given
    return found


@remembered
def _of_attribute(cls: ast.ClassDef, name: str, file: SourceFile) -> ast.Constant | None:
    """The default of `self.name`: set from a parameter of `__init__`, or in the body of the class."""
    for statement in cls.body:
        if isinstance(statement, FUNCTIONS) and statement.name == "__init__":
            for inner in statement.body:
                if isinstance(inner, ast.Assign) and _sets(inner, name):
                    if isinstance(inner.value, ast.Name):
                        return parameter_defaults(statement).get(inner.value.id)
                    return inner.value if isinstance(inner.value, ast.Constant) else None
    return _fields(cls).get(name)


@remembered
def _fields(cls: ast.ClassDef) -> dict[str, ast.Constant]:
    """Field of a dataclass or the like -> its default, where that is a constant."""
    return {
        statement.target.id: statement.value
        for statement in cls.body
        if isinstance(statement, ast.AnnAssign)
        and isinstance(statement.target, ast.Name)
        and isinstance(statement.value, ast.Constant)
    }


def _sets(assignment: ast.Assign, name: str) -> bool:
    return any(isinstance(target, ast.Attribute) and target.attr == name for target in assignment.targets)


def _arguments(file: SourceFile) -> dict[str, ast.Constant]:
    """Option -> default, of the command line's arguments and of the dataclasses of the file."""
    found = dict(_of_parser(file))
    for cls in file.index.of_type(ast.ClassDef):
        found = _fields(cls) | found
    return found


def _of_parser(file: SourceFile) -> Iterator[tuple[str, ast.Constant]]:
    for call in file.calls_named("add_argument"):
        flags = [a.value for a in call.args if isinstance(a, ast.Constant) and isinstance(a.value, str)]
        long = next((flag for flag in flags if flag.startswith("--")), None)
        if long is None:
            continue
        given = {keyword.arg: keyword.value for keyword in call.keywords}
        action, default = given.get("action"), given.get("default")
        if isinstance(default, ast.Constant):
            yield long[2:].replace("-", "_"), default
        elif isinstance(action, ast.Constant) and action.value in ("store_true", "store_false"):
            yield long[2:].replace("-", "_"), ast.Constant(action.value == "store_false")
