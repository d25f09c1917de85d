"""What a formula of one tensor gives for a number, so that it can be compared with the function that it is said to be."""

from __future__ import annotations

import ast
import math
from collections.abc import Callable

from ptopt.rules.base import SourceFile
from ptopt.rules.ops._calls import same_code, torch_op
from ptopt.rules.shared.flow import value_of

_SAMPLES = (-2.3, -0.7, 0.4, 1.9)
_CLOSE = 2e-3  # constants are often written with three or four digits
_FUNCTIONS: dict[str, Callable[[float], float]] = {
    "erf": math.erf, "tanh": math.tanh, "sqrt": math.sqrt, "exp": math.exp, "square": lambda x: x * x,
}  # fmt: skip
_ARITHMETIC = {ast.Add: "add", ast.Sub: "sub", ast.Mult: "mul", ast.Div: "div", ast.Pow: "pow"}
_MODULES = ("torch", "torch.nn.functional", "torch.special", "math", "numpy")
_DEPTH = 12


def factors(product: ast.expr, file: SourceFile) -> list[ast.expr]:
    """What a product and quotient multiplies, through local names: `0.5 * x * gate` has three factors."""
    found: list[ast.expr] = []
    pending = [product]
    while pending and len(found) < _DEPTH:
        part = pending.pop()
        value = value_of(part, file)
        if isinstance(value, ast.BinOp) and isinstance(value.op, ast.Mult):
            pending += [value.left, value.right]
        elif isinstance(value, ast.BinOp) and isinstance(value.op, ast.Div):
            pending.append(value.left)
        else:
            found.append(part)
    return found


def is_gelu(expr: ast.expr, x: ast.expr, file: SourceFile) -> bool:
    """Does the expression give what GELU gives of `x`? What cannot be evaluated does not."""
    return all(
        (value := evaluated(expr, x, at, file)) is not None
        and abs(value - 0.5 * at * (1 + math.erf(at / math.sqrt(2)))) < _CLOSE
        for at in _SAMPLES
    )


def evaluated(expr: ast.expr, x: ast.expr, at: float, file: SourceFile, depth: int = 0) -> float | None:
    """The number that `expr` gives when `x` is the number `at`, or None."""
    if depth > _DEPTH:
        return None
    if same_code(expr, x):
        return at
    if isinstance(expr, ast.Constant):
        return float(expr.value) if isinstance(expr.value, (int, float)) else None
    if isinstance(expr, ast.UnaryOp) and isinstance(expr.op, ast.USub):
        inner = evaluated(expr.operand, x, at, file, depth + 1)
        return None if inner is None else -inner
    try:
        if isinstance(expr, ast.BinOp):
            return _combined(_ARITHMETIC.get(type(expr.op), ""), [expr.left, expr.right], x, at, file, depth)
        if isinstance(expr, ast.Call):
            return _called(expr, x, at, file, depth)
    except (ArithmeticError, ValueError):
        return None
    if isinstance(expr, ast.Attribute) and expr.attr == "pi":
        return math.pi if file.imports.qualified(expr).rpartition(".")[0] in _MODULES else None
    value = value_of(expr, file)
    return evaluated(value, x, at, file, depth + 1) if value is not expr else None


def _called(call: ast.Call, x: ast.expr, at: float, file: SourceFile, depth: int) -> float | None:
    op = torch_op(call, file, *_FUNCTIONS, "pow", "add", "mul", "div", "tensor")
    if op is not None:
        name, operands = op.name, [op.operand, *op.rest]
    else:
        module, _, name = file.imports.qualified(call.func).rpartition(".")
        operands = list(call.args)
        if module not in _MODULES:
            return None
    if name == "tensor" and len(operands) == 1:
        return evaluated(operands[0], x, at, file, depth + 1)
    if call.keywords:
        return None
    if name in _FUNCTIONS and len(operands) == 1:
        inner = evaluated(operands[0], x, at, file, depth + 1)
        return None if inner is None else _FUNCTIONS[name](inner)
    return _combined(name, operands, x, at, file, depth)


def _combined(
    name: str, operands: list[ast.expr], x: ast.expr, at: float, file: SourceFile, depth: int
) -> float | None:
    if len(operands) != 2:
        return None
    left, right = (evaluated(o, x, at, file, depth + 1) for o in operands)
    if left is None or right is None:
        return None
    if name == "add":
        return left + right
    if name == "sub":
        return left - right
    if name == "mul":
        return left * right
    if name == "div":
        return left / right
    if name == "pow":
        result = left**right
        return result if isinstance(result, float) else None  # a root of a negative number
    return None
