from __future__ import annotations

import ast
from collections.abc import Iterator

from ptopt.rules.base import Invalid, Problem, Rule, SourceFile
from ptopt.rules.code import is_call_of, keyword_of, quote
from ptopt.rules.shared.places import often_place
from ptopt.rules.sync._reads import beside, wait_facts
from ptopt.source.index import walk
from ptopt.source.uses import REDUCED

_SHAPED = {
    "nonzero": "`torch.where` with three arguments, or a mask, keeps the shape fixed.",
    "argwhere": "`torch.where` with three arguments, or a mask, keeps the shape fixed.",
    "unique": "Where the values are small whole numbers, `scatter_` into a table of fixed size needs no read.",
    "unique_consecutive": "Compare neighbours and use `cumsum` to number the runs without a read.",
    "bincount": "`torch.zeros(n).scatter_add_` on the device counts into a table of known size.",
    "one_hot": "Pass `num_classes`: without it the largest index is read back first.",
}
# What an operation leaves out of account: with it in place of what the mask drops, the result is the same.
_NEUTRAL = {
    **dict.fromkeys(("sum", "mean", "norm", "count_nonzero", "std", "var"), "0"),
    **dict.fromkeys(("min", "amin"), 'float("inf")'),
    **dict.fromkeys(("max", "amax"), '-float("inf")'),
    "any": "False",
    "all": "True",
    "prod": "1",
}
_COUNTED = frozenset({"mean", "std", "var"})  # divided by how many there are


class SizeReadFromDevice(Rule):
    """An operation whose output size depends on the data waits for the device.

    ## What it does
    Finds `x[mask]`, `nonzero`, `torch.where(mask)`, `masked_select`, `unique`, `bincount` and `one_hot` without
    `num_classes` on tensors, in code that runs often.

    ## Why it is slow
    Python must know the size of the result to allocate it, so it waits until every queued kernel is done and reads one
    number back. Until the next kernel is queued, the GPU idles. Under `torch.compile` the graph breaks as well.

    ## Fix safety
    No fix: which form keeps the meaning depends on what follows.

    ## Sources
    - [PyTorch documentation: torch.nonzero](https://docs.pytorch.org/docs/stable/generated/torch.nonzero.html)
    """

    id = "PTO130"
    name = "size-read-from-device"
    family = "sync"
    most_stated = 0.4
    nodes = (ast.Call, ast.Subscript)
    calls = frozenset({*_SHAPED, "masked_select", "where"})
    when_wrong = "the selection saves more work than the wait costs, or the code runs on the CPU"

    VALID = (
        """
        class Net(nn.Module):
            def forward(self, x):
                return x[x.shape[0] // 2:] + x[:, None]
        """,
        """
        class Masks(Dataset):
            def __getitem__(self, i):
                mask = torch.from_numpy(self.masks[i])
                return mask[mask > 0].float()
        """,
        """
        class Net(nn.Module):
            def forward(self, x, mask):
                x[x < 0] = 0.0
                return torch.where(x > 1, x, 1 / x), F.one_hot(x.long(), num_classes=3)
        """,
    )
    INVALID = (
        Invalid("""
            class Loss(nn.Module):
                def forward(self, pred, target):
                    valid = target.detach() > 0
                    return F.l1_loss(pred[valid], target[valid])  # !
                    # ~ error = torch.where(valid, (pred - target).abs(), 0.0)
                    # ~ return error.sum() / valid.sum()
        """),
        Invalid("""
            class Loss(nn.Module):
                def forward(self, dist: torch.Tensor, same: torch.Tensor):
                    return dist[same == 0].min()  # !
        """),
        Invalid("""
            class Loss(nn.Module):
                def forward(self, error: torch.Tensor, valid: torch.Tensor):
                    return torch.masked_select(error, valid > 0).mean()  # !
        """),
        Invalid("""
            class Head(nn.Module):
                def forward(self, scores: torch.Tensor):
                    keep = torch.nonzero(scores > 0.5)  # !
                    return keep, torch.where(scores < 0.1)  # !
        """),
        Invalid("""
            def count(labels):
                hot = F.one_hot(labels.view(-1))  # !
                return hot.sum(0), labels.device
        """),
    )

    def candidates(self, file: SourceFile) -> list[ast.AST]:
        calls: list[ast.AST] = [call for name in sorted(self.calls) for call in file.calls_named(name)]
        return calls + file.index.computed_subscripts

    def check(self, node: ast.AST, file: SourceFile) -> Iterator[Problem]:
        advice = ""
        if isinstance(node, ast.Subscript) and file.waits.selects_by_mask(node):
            advice = _selection_advice(node, file)
        elif isinstance(node, ast.Call) and not _counted(node, file):
            advice = _advice(node, file)
        place = often_place(node, file) if advice else None
        if place is None or _shrinks_until_empty(node, file):
            return
        yield Problem(
            node,
            f"The size of {quote(file, node)} depends on the data, so Python waits for the GPU to learn it, {place.words}. "
            f"{advice}{beside(node, place.node, file)}",
            0.4 if REDUCED in file.uses.of(node) else 0.3,
            place.evidence,
            cause=place.node,
            subject=node if isinstance(node, ast.expr) else None,
            facts=wait_facts(node, place.node, file),
        )


def _shrinks_until_empty(node: ast.AST, file: SourceFile) -> bool:
    """Does a `while` loop ask for the size of what is left: `while left.numel(): left = left[mask]`?"""
    statement = file.index.statement_of(node)
    targets = statement.targets if isinstance(statement, ast.Assign) else []
    names = {target.id for target in targets if isinstance(target, ast.Name)}
    return any(
        isinstance(part, ast.Name) and part.id in names
        for loop in file.index.loops_of(node)
        if isinstance(loop, ast.While)
        for part in walk(loop.test)
    )


def _selection_advice(node: ast.expr, file: SourceFile) -> str:
    """What to write instead of `x[mask]`; "" where what is done with it needs the selection itself."""
    reductions = sorted(file.uses.reductions(node))
    if not reductions:
        return "`torch.where` or a weight of zero keeps the shape fixed."
    if any(name not in _NEUTRAL for name in reductions):
        return ""  # the position of an extreme, a median
    used = " and ".join(f"`{name}`" for name in reductions)
    neutral = {_NEUTRAL[name]: name for name in reductions}
    forms = " and ".join(
        f"`torch.where(mask, …, {value})`" + (f" for `{name}`" if len(neutral) > 1 else "")
        for value, name in neutral.items()
    )
    count = ", and the count is `mask.sum()`" if _COUNTED.intersection(reductions) else ""
    of_it = "is" if len(reductions) == 1 else "are"
    return f"Only the {used} of it {of_it} used: reduce {forms}, which keeps the shape{count}."


def _counted(call: ast.Call, file: SourceFile) -> bool:
    """`len(x.nonzero())`, `x.nonzero().numel()`: `count-to-test-any` speaks."""
    parent = file.index.parent(call)
    if isinstance(parent, ast.Attribute):
        return parent.attr in ("numel", "shape", "size")
    return is_call_of(parent, "len")


def _advice(call: ast.Call, file: SourceFile) -> str:
    """What to write instead, when the call gives a tensor whose size depends on the data."""
    qualified = file.imports.qualified(call.func)
    if qualified:
        leaf = qualified.rpartition(".")[2]
        tensor = call.args[0] if call.args and qualified.startswith("torch.") else None
        if leaf == "where" and len(call.args) == 1 and not call.keywords:
            leaf = "nonzero"
        if leaf == "one_hot" and (len(call.args) > 1 or keyword_of(call, "num_classes") is not None):
            return ""
    else:
        leaf = call.func.attr if isinstance(call.func, ast.Attribute) else ""
        tensor = call.func.value if isinstance(call.func, ast.Attribute) else None
    if tensor is None or leaf not in (*_SHAPED, "masked_select"):
        return ""
    value = file.values.of(tensor)
    if value.kind != "tensor" or value.device == "cpu":
        return ""
    return _selection_advice(call, file) if leaf == "masked_select" else _SHAPED[leaf]
