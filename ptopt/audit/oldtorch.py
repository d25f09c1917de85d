"""Code that newer versions of torch refuse as it runs, and so a bound of the torch that a script is for: `loss.data[0]`, `batches.next()`.

The iterators of loaders had a method `next` until 1.12: `next = __next__` in `torch/utils/data/dataloader.py` of the wheel of 1.12.1.
Since 0.4 a loss has no dimensions; its index was a warning in 0.4, and is an error since. What has one element in one dimension can
still be indexed: only what a backward pass without arguments starts from counts, and nothing that is made with a size.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from ptopt.audit.evaluate import Evaluator
from ptopt.audit.live import Live
from ptopt.audit.modules import Module, held_by, text_of
from ptopt.project.pins import Pin

_WITH_NEXT = "1.12.1"  # the next is 1.13
_LOADER = re.compile(r"loader|\bdl\b|_dl\b", re.I)
_NEWEST = "0.4.1"  # the next is 1.0
_NEWER = (b"no_grad", b".item()")  # came with 0.4: such code was brought up to date, at least in part
_SIZED = re.compile(r"zeros|ones|Tensor\(|\.view\(|unsqueeze|reshape|\bnew\w*\(|cat\(|stack\(|expand|keepdim")
_ASKS = re.compile(r"version|hasattr|isinstance|dim\(|ndim|size|shape|numel|len\(|data\b")


def old_torch(live: Live, evaluator: Evaluator) -> list[Pin]:
    """The bound of what runs."""
    return _of_losses(live, evaluator) or _of_iterators(live, evaluator)


def _of_losses(live: Live, evaluator: Evaluator) -> list[Pin]:
    """None where anything among what runs needs torch 0.4, too."""
    files = [module.file for module in live.read.values()]
    if any(word in file.data for file in files for word in _NEWER):
        return []
    for module in live.read.values():
        for node in module.once(_indexed, module.file.tree) if b".data[0]" in module.file.data else ():
            within = (
                live.outermost(module, node) is not None or module is live.start
            )  # no script of another module
            if within and live.runs(module, node) and evaluator.runs(node, module).truth is not False:
                line = module.file.head_line(node.lineno)
                text = f"`{text_of(node)}`"
                return [Pin("torch", f"<={_NEWEST}", False, module.path, line, refused=text)]
    return []


def _of_iterators(live: Live, evaluator: Evaluator) -> list[Pin]:
    for module in live.read.values():
        for call in module.once(_asked_for_next, module.file.tree) if b".next()" in module.file.data else ():
            if live.runs(module, call) and evaluator.runs(call, module).truth is True:
                line = module.file.head_line(call.lineno)
                return [
                    Pin("torch", f"<={_WITH_NEXT}", False, module.path, line, refused=f"`{text_of(call)}`")
                ]
    return []


def _asked_for_next(module: Module, _: ast.Module) -> list[ast.Call]:
    """`batches.next()` of `batches = iter(train_loader)`, in no `try`, and under no condition that may be about the version."""
    found = []
    for call in module.file.index.of_type(ast.Call):
        func = call.func
        if not isinstance(func, ast.Attribute) or func.attr != "next" or call.args or call.keywords:
            continue
        made = held_by(module, func.value) or func.value
        if (
            isinstance(made, ast.Call)
            and text_of(made.func) == "iter"
            and made.args
            and _LOADER.search(text_of(made.args[0]))
            and not any(map(_may_ask_for_version, _above(module, call)))
        ):
            found.append(call)
    return found


def _may_ask_for_version(ancestor: ast.AST) -> bool:
    """Not `except StopIteration`."""
    if isinstance(ancestor, ast.Try):
        return any(h.type is None or text_of(h.type) != "StopIteration" for h in ancestor.handlers)
    return _decides(ancestor)


def _indexed(module: Module, _: ast.Module) -> list[ast.Subscript]:
    """`loss.data[0]` beside `loss.backward()`, in no `try`, and under no condition that may be about the version."""
    index = module.file.index
    starts = {
        (index.function_of(call), text_of(call.func.value))
        for call in index.of_type(ast.Call)
        if isinstance(call.func, ast.Attribute) and call.func.attr == "backward" and not call.args
    }
    return [
        node
        for node in index.of_type(ast.Subscript)
        if isinstance(node.ctx, ast.Load)
        and isinstance(node.slice, ast.Constant)
        and node.slice.value == 0
        and isinstance(node.value, ast.Attribute)
        and node.value.attr == "data"
        and (index.function_of(node), text_of(node.value.value)) in starts
        and not _SIZED.search(" ".join(_made(module, node.value.value, node)))
        and not any(map(_decides, _above(module, node)))
    ]


def _made(module: Module, value: ast.expr, at: ast.AST) -> Iterator[str]:
    """All that is assigned to what is read, as text."""
    function = module.file.index.function_of(at)
    for node in module.file.index.of_type(ast.Assign, ast.AugAssign):
        targets = node.targets if isinstance(node, ast.Assign) else [node.target]
        if module.file.index.function_of(node) is function and any(
            text_of(part) == text_of(value) for target in targets for part in ast.walk(target)
        ):
            yield text_of(node.value)


def _above(module: Module, node: ast.AST) -> Iterator[ast.AST]:
    """What stands around a node in its function."""
    function = module.file.index.function_of(node)
    for ancestor, _ in module.file.index.ancestors(node):
        if ancestor is function:
            return
        yield ancestor


def _decides(ancestor: ast.AST) -> bool:
    if isinstance(ancestor, ast.Try):
        return True
    return isinstance(ancestor, (ast.If, ast.IfExp)) and _ASKS.search(text_of(ancestor.test)) is not None
