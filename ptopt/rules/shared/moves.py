"""What moves a tensor to an accelerator: `.to(device)`, `.cuda()` and `.to(other)`, and not dtype casts."""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass

from ptopt.rules.code import has_unpacking
from ptopt.source.calls import last_name
from ptopt.source.file import SourceFile

_DEVICE_NAME = re.compile(
    r"^(\w*_)?(device|dev|devices|cuda|gpu|gpu_id|rank|local_rank)(_id|_type)?\d*$", re.I
)
_DTYPE_NAME = re.compile(r"dtype", re.I)


@dataclass(frozen=True, slots=True)
class Move:
    """A call that sends `tensor` to an accelerator.

    `device` and `dtype` are source text that can stand in a factory call ("" for no dtype); `sure` tells that the
    device is an accelerator whenever the code runs (`.cuda()`), not one that may turn out to be the CPU.
    """

    call: ast.Call
    tensor: ast.expr
    device: str
    dtype: str
    non_blocking: bool
    plain: bool  # nothing but a device and a dtype is passed
    sure: bool


def move_of(node: ast.AST, file: SourceFile) -> Move | None:
    """The move that `node` makes, or None when it is a dtype cast, a move to the CPU, or cannot be told."""
    if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)) or has_unpacking(node):
        return None
    name, tensor = node.func.attr, node.func.value
    keywords = {k.arg: k.value for k in node.keywords}
    non_blocking = "non_blocking" in keywords
    if name == "cuda":
        target = keywords.get("device", node.args[0] if node.args else None)
        plain = not non_blocking and len(node.args) <= 1
        return Move(
            node, tensor, _cuda_text(target, file), "", non_blocking or len(node.args) > 1, plain, True
        )
    if name == "type_as" and len(node.args) == 1:
        return _like(node, node.args[0], non_blocking, file)
    if name != "to" or len(node.args) > 2:
        return None
    if len(node.args) == 1 and "device" not in keywords:
        like = _like(node, node.args[0], non_blocking, file)
        if like is not None:
            return like
    target = keywords.get("device", node.args[0] if node.args else None)
    if target is None or not is_accelerator(target, file):
        return None
    dtype = keywords.get("dtype", node.args[1] if len(node.args) == 2 and "device" not in keywords else None)
    plain = set(keywords) <= {"device", "dtype"} and not (len(node.args) == 2 and "device" in keywords)
    literal = isinstance(target, ast.Constant)
    text = "" if dtype is None else file.source(dtype)
    return Move(node, tensor, file.source(target), text, non_blocking, plain, literal)


def _like(call: ast.Call, other: ast.expr, non_blocking: bool, file: SourceFile) -> Move | None:
    """`x.to(other)`, `x.type_as(other)`: to the device and the data type of another tensor."""
    value = file.values.of(other)
    if not isinstance(other, (ast.Name, ast.Attribute)) or value.kind != "tensor" or value.device == "cpu":
        return None
    if not isinstance(call.func, ast.Attribute):
        return None
    text = file.source(other)
    plain = not call.keywords
    return Move(call, call.func.value, f"{text}.device", f"{text}.dtype", non_blocking, plain, False)


def is_accelerator(target: ast.expr, file: SourceFile) -> bool:
    """Does the expression name a device that is not literally the CPU?"""
    if isinstance(target, ast.Constant):
        return isinstance(target.value, str) and target.value.startswith(("cuda", "xpu", "mps", "npu", "hpu"))
    if isinstance(target, ast.Call):
        qualified = file.imports.qualified(target.func)
        if qualified == "torch.device":
            return bool(target.args) and not (
                isinstance(target.args[0], ast.Constant)
                and str(target.args[0].value).startswith(("cpu", "meta"))
            )
        name = target.func.attr if isinstance(target.func, ast.Attribute) else ""
        return name in ("get_device", "current_device")
    if isinstance(target, ast.Subscript):
        target = target.value  # `devices[i]`
    name = last_name(target)
    return bool(_DEVICE_NAME.match(name)) and not _DTYPE_NAME.search(name) and "cpu" not in name.lower()


def _cuda_text(target: ast.expr | None, file: SourceFile) -> str:
    if target is None:
        return '"cuda"'
    if isinstance(target, ast.Constant) and isinstance(target.value, int):
        return f'"cuda:{target.value}"'
    return file.source(target)
