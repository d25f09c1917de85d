"""Calls of torch functions, whichever way they are written: `torch.log(x)`, `F.softmax(x)`, `x.log()`."""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass

from ptopt.rules.base import SourceFile
from ptopt.rules.code import has_unpacking, is_call_of, keyword_of
from ptopt.source.calls import last_name
from ptopt.source.index import walk

# What a loop runs over a handful of times.
FEW = re.compile(
    r"layers?\b|blocks?\b|modules?\b|stages?\b|levels?\b|heads?\b|convs?\b|scales?\b|keys\b|items\b|epochs?\b|children"
    r"|branch|feature_maps|(enc|dec)oders?\b|adapters?\b|views?\b|depth|components?\b|ndim|\.dim\(|points?\b|groups?"
    r"|codebooks?|crops?\b|order|dims?\b|axes|rank|hops?\b",
    re.I,
)
_MODULES = ("torch", "torch.nn.functional", "torch.linalg", "torch.special", "torch.fft")

_ONCE = re.compile(
    r"^__init__$|(^|_)(init(iali[sz]e)?|reset_param\w*|convert|export|load|save|checkpoint|state_dict|inflate|setup|plot|draw"
    r"|visuali[sz]e|images?|report|debug)(_|$)",
    re.I,
)
_ONCE_FILE = re.compile(r"(checkpoint|convert|export)\w*\.py$", re.I)


def runs_once(node: ast.AST, file: SourceFile) -> bool:
    """Does the name of the function or file say that it sets up, converts, loads, saves or draws: no time is lost there?"""
    if _ONCE_FILE.search(file.path):
        return True
    function = file.index.function_of(node)
    return function is not None and bool(_ONCE.search(function.name))


def is_hot(node: ast.AST, file: SourceFile) -> bool:
    """Does it run in a loop, in the `forward` of a module, or on each training step?"""
    return (
        next(file.index.loops_of(node), None) is not None
        or file.context.forward_of(node) is not None
        or file.context.training_step(node) is not None
    )


@dataclass(frozen=True, slots=True)
class Op:
    """One call of a torch function: its first operand, and what is passed after it."""

    name: str
    call: ast.Call
    operand: ast.expr
    rest: tuple[ast.expr, ...]
    is_method: bool

    def argument(self, position: int, *names: str) -> ast.expr | None:
        """The argument at `position` after the operand, or under one of `names`."""
        if position < len(self.rest):
            return self.rest[position]
        for name in names:
            value = keyword_of(self.call, name)
            if value is not None:
                return value
        return None


def torch_op(node: ast.AST | None, file: SourceFile, *names: str) -> Op | None:
    """`node` as a call of one of the torch functions `names`, as a function or as a method, or None."""
    if not isinstance(node, ast.Call):
        return None
    func = node.func
    leaf = last_name(func)
    if not (leaf in names or isinstance(func, ast.Name)) or has_unpacking(node):
        return None
    qualified = file.imports.qualified(func)
    if qualified:
        module, _, name = qualified.rpartition(".")
        if name not in names or module not in _MODULES:
            return None
        operand = node.args[0] if node.args else keyword_of(node, "input")
        return Op(name, node, operand, tuple(node.args[1:]), False) if operand is not None else None
    if isinstance(func, ast.Attribute) and leaf in names:
        return Op(leaf, node, func.value, tuple(node.args), True)
    return None


def same_code(left: ast.AST, right: ast.AST) -> bool:
    """Are the two expressions written with the same tokens?"""
    return left.__class__ is right.__class__ and all(
        _same_part(getattr(left, field, None), getattr(right, field, None)) for field in left._fields
    )


def _same_part(one: object, other: object) -> bool:
    if isinstance(one, ast.AST) and isinstance(other, ast.AST):
        return same_code(one, other)
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(_same_part, one, other))
    return one.__class__ is other.__class__ and one == other


def int_literal(node: ast.expr | None) -> int | None:
    """Value of an integer literal, also of a negative one."""
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        inner = int_literal(node.operand)
        return None if inner is None else -inner
    if isinstance(node, ast.Constant) and type(node.value) is int:
        return node.value
    return None


def names_in(node: ast.AST) -> frozenset[str]:
    """The plain names that an expression reads."""
    return frozenset(n.id for n in walk(node) if isinstance(n, ast.Name))


def is_range(node: ast.expr) -> bool:
    """Is it a call of `range` with arguments?"""
    return is_call_of(node, "range") and bool(node.args)
