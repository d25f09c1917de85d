from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from ptopt.rules.base import Edit, Evidence, Fix, Invalid, Problem, Rule, Safety, SourceFile
from ptopt.rules.code import quote
from ptopt.rules.shared.moves import move_of
from ptopt.rules.transfer._hot import hot_place
from ptopt.source.waits import goes_to_cpu

_WIDER = {"float": "float32", "double": "float64"}  # `long()` is mostly a cast of what is int64 already
_NARROW = re.compile(r"im(age|g)|pixel|frame|video|mask|rgb|obs|uint8|bool|pic", re.I)
# What shows that images are bytes, and that a network computes in half precision: else the cast may do nothing.
_BYTES = re.compile(r"uint8|ByteTensor|\b(255|127\.5)\b")
_HALF = re.compile(r"autocast|float16|bf16|fp16|\bhalf\b|\bamp\b", re.I)
_WIDE_DTYPES = {f"torch.{name}": name for name in ("float", "float32", "double", "float64")}


class WidenedBeforeCopy(Rule):
    """A tensor is widened first and copied between host and device afterwards.

    ## What it does
    Finds `images.float().to(device)`, `.double().cuda()`, `.float().cpu()` and the like in code that runs often. On the way
    to the device, only what is named like images or masks, in a file that speaks of bytes (`/ 255`, `uint8`): `ToTensor`
    gives float32. On the way to the host, only in a file that speaks of half precision.

    ## Why it is slow
    The bus carries the wider type: four times the bytes for images of `uint8`, twice for `bfloat16`. On the way to the
    device, the CPU does the cast as well.

    ## Fix safety
    Safe: the values are the same, cast on the other side.

    ## Sources
    - [A guide on good usage of non_blocking and pin_memory](https://docs.pytorch.org/tutorials/intermediate/pinmem_nonblock.html)
    """

    id = "PTO234"
    name = "widened-before-copy"
    family = "transfer"
    most_stated = 0.4
    triggers = (".to(", ".cuda(", ".cpu(")
    requires = (".float(", ".double(", "float32", "float64")
    nodes = (ast.Call,)
    calls = frozenset({"to", "cuda", "cpu"})
    when_wrong = "the tensor already has that type, so that the cast does nothing"

    VALID = (
        """
        for images, labels in loader:
            images = images.to(device).float()
            loss = criterion(model(images), labels.to(device))
            loss.backward()
            optimizer.step()
        """,
        """
        class Net(nn.Module):
            def forward(self, x):
                return self.norm(x.float()).to(x.dtype)
        """,
        """
        for images, labels in loader:
            images = images.float().cuda()
            loss = criterion(model(images), labels.cuda())
            loss.backward()
            optimizer.step()
        """,
        """
        def ends(steps: torch.Tensor):
            return steps.float().cpu()
        """,
        """
        for images, labels in loader:
            images = images.half().to(device)
            loss = criterion(model(images), labels.to(device))
            loss.backward()
            optimizer.step()
        """,
    )
    INVALID = (
        Invalid("""
            for images, labels in loader:
                images = images.float().to(device)  # !
                # + images = images.to(device).float()
                images = images / 255
                loss = criterion(model(images), labels.to(device))
                loss.backward()
                optimizer.step()
        """),
        Invalid("""
            def gather(outputs: torch.Tensor):
                if outputs.dtype == torch.bfloat16:
                    return outputs.float().cpu().numpy()  # !
                    # + return outputs.cpu().float().numpy()
        """),
        Invalid("""
            for images, masks in loader:
                masks = masks.to(torch.float32).cuda()  # !
                # + masks = masks.cuda().to(torch.float32)
                loss = criterion(model(images.cuda()), masks / 255)
                loss.backward()
                optimizer.step()
        """),
    )

    def check(self, node: ast.AST, file: SourceFile) -> Iterator[Problem]:
        if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
            return
        cast = _cast_of(node.func.value, file)
        if not isinstance(cast, ast.Call) or not isinstance(cast.func, ast.Attribute):
            return
        inner, wide = cast.func.value, _widened_to(cast, file)
        if not wide or isinstance(inner, (ast.Call, ast.BinOp, ast.Compare)):
            return  # the result of an operation may be wide already
        leaves = (node.func.attr == "cpu" and not node.args) or goes_to_cpu(node)
        move = None if leaves else move_of(node, file)
        if move is not None and (move.dtype or file.values.of(inner).device == "moved"):
            return
        if (move is None and not leaves) or file.values.of(inner).kind not in ("tensor", ""):
            return
        if move is not None and not _NARROW.search(file.source(inner)):
            return  # numbers of NumPy are float64, and narrowed by the cast: `cast-after-upload` holds that
        if not file.search(_HALF if leaves else _BYTES):
            return
        hot = hot_place(node, file)
        if hot is None:
            return
        apart = cast is not node.func.value
        fix, text = (None, "") if apart else _swapped(inner, cast, node, file)
        line = f" (line {cast.lineno})" if apart else ""
        yield Problem(
            node,
            f"{quote(file, cast if apart else node)} casts to {wide}{line} before the copy "
            f"{'to the host' if leaves else 'to the device'}, {hot.words}, so the wider type crosses the bus. "
            f"Copy first, cast then{f': `{text}`' if text else ''}.",
            0.4,
            (Evidence(cast.lineno, "the cast"), *hot.evidence) if apart else hot.evidence,
            fix,
            cause=hot.node,
            subject=inner,
            facts={"to_host": float(leaves), "to_device": float(not leaves), "apart": float(apart)},
        )


def _cast_of(expr: ast.expr, file: SourceFile) -> ast.expr | None:
    """The cast that is moved: `x.float()`, or what the name was bound to just before."""
    if not isinstance(expr, ast.Name):
        return expr
    binding = file.bindings.last_before(expr)
    same = binding is not None and file.index.function_of(binding.node) is file.index.function_of(expr)
    return binding.value if binding is not None and same and binding.kind == "assign" else None


def _swapped(inner: ast.expr, cast: ast.Call, node: ast.Call, file: SourceFile) -> tuple[Fix | None, str]:
    """The fix that exchanges the two calls, and the expression after it."""
    start, middle, end = file.bounds(inner)[1], file.bounds(cast)[1], file.bounds(node)[1]
    first, second = file.data[start:middle].decode(), file.data[middle:end].decode()
    text = f"{' '.join(file.source(inner).split())}{second}{first}"
    return Fix(Safety.SAFE, (Edit(start, end, second + first),)), text


def _widened_to(cast: ast.Call, file: SourceFile) -> str:
    """The wider type that the call casts to, or ""."""
    name = cast.func.attr if isinstance(cast.func, ast.Attribute) else ""
    if name in _WIDER and not cast.args and not cast.keywords:
        return _WIDER[name]
    if name in ("to", "type") and len(cast.args) == 1 and not cast.keywords:
        return _WIDE_DTYPES.get(file.imports.qualified(cast.args[0]), "")
    return ""
