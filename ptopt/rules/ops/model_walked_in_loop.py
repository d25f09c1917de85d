from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from ptopt.rules.base import Invalid, Problem, Rule, SourceFile
from ptopt.rules.code import beside, is_call_of, quote
from ptopt.rules.ops._pure import changes, reads
from ptopt.rules.shared.repeats import repeat_of, words_for
from ptopt.source.calls import called_name
from ptopt.source.index import LOOPS

_WALKS = frozenset(
    "state_dict parameters named_parameters modules named_modules buffers named_buffers".split()
)
_COLLECTS = frozenset("dict list set tuple sum len".split())
_EPOCHS = re.compile(r"epoch|fold|seed|model", re.I)


class ModelWalkedInLoop(Rule):
    """The names of a whole model are collected again in each iteration.

    ## What it does
    Finds `model.state_dict()[name]`, `name in model.state_dict()`, `dict(model.named_modules())[name]`,
    `list(model.parameters())` and `sum(p.numel() for p in model.parameters())` in a loop or a comprehension that does not
    bind `model`.

    ## Why it is slow
    Each call visits every submodule and parameter of the model in Python. Looking up one entry per iteration makes the
    time grow with the square of the number of parameters; on every training step it is host time before the next kernel.

    ## Fix safety
    No fix is offered: a line is added before the loop.

    ## Sources
    - [torch.nn.Module.state_dict](https://docs.pytorch.org/docs/stable/generated/torch.nn.Module.html#torch.nn.Module.state_dict)
    """

    id = "PTO452"
    name = "model-walked-in-loop"
    family = "ops"
    most_stated = 0.4
    nodes = (ast.Call,)
    calls = _WALKS
    when_wrong = "the loop adds or replaces submodules or parameters"

    VALID = (
        """
        for epoch in range(epochs):
            torch.save(model.state_dict(), path)
        """,
        """
        for model in models:
            state = model.state_dict()["head.weight"]
        """,
        """
        for name, parameter in model.named_parameters():
            print(name)
        """,
    )
    INVALID = (
        Invalid("""
            def average(model, others):
                for name in names:
                # ~ state = model.state_dict()
                # ~ for name in names:
                    merged[name] = model.state_dict()[name] / 2  # !
                    # ~ merged[name] = state[name] / 2
        """),
        Invalid("""
            def load(model, saved):
                return {k: v for k, v in saved.items() if k in model.state_dict()}  # !
        """),
        Invalid("""
            def replace(model, targets):
                for target in targets:
                    wrap(dict(model.named_modules())[target])  # !
        """),
    )

    def check(self, node: ast.AST, file: SourceFile) -> Iterator[Problem]:
        if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
            return
        model = node.func.value
        whole = _collected(node, file)
        place = repeat_of(whole, file) if whole is not None else None
        if whole is None or place is None or not isinstance(model, (ast.Name, ast.Attribute)):
            return
        keys = reads(model, file)
        printed = file.index.enclosing(whole, (ast.Expr,))
        if not keys or (printed is not None and "print" in ast.unparse(printed)[:6]):
            return
        found = changes(file.index.function_of(place), file)
        in_loop = isinstance(place, (ast.For, ast.AsyncFor))
        if isinstance(place, ast.For) and _EPOCHS.search(ast.unparse(place.target)):
            return
        if found.in_node(frozenset(keys) - {k for k in keys if k not in found.at}, place):
            return
        over = words_for(place)
        yield Problem(
            whole,
            f"{quote(file, whole, 50)} visits every submodule of {quote(file, model, 30)} in Python in each iteration of the "
            f"{over} at line {place.lineno}. Take it once before the {over} (`{_name(node)} = …`) and look up entries there.",
            0.4,
            beside(node, place, f"the {over}"),
            cause=place,
            facts={
                "state_dict": called_name(node) == "state_dict",
                "looked_up": isinstance(file.index.parent(whole), (ast.Subscript, ast.Compare)),
                "loop": in_loop,
                "while": isinstance(place, LOOPS) and not in_loop,
            },
        )


def _name(call: ast.Call) -> str:
    return {"state_dict": "state", "parameters": "parameters"}.get(called_name(call), "entries")


def _collected(walk: ast.Call, file: SourceFile) -> ast.expr | None:
    """The expression that is wanted of the walk: an entry, a membership test, a list, a dictionary or a number."""
    parent = file.index.parent(walk)
    if called_name(walk) == "state_dict":
        inner: ast.AST = walk
        if isinstance(parent, ast.Attribute) and parent.attr == "keys":
            inner = file.index.parent(parent) or walk
            parent = file.index.parent(inner)
        if isinstance(parent, ast.Subscript) and parent.value is walk:
            return walk
        return walk if isinstance(parent, ast.Compare) and parent.left is not inner else None
    if is_call_of(parent, *_COLLECTS):
        return parent
    if isinstance(parent, ast.comprehension) and parent.iter is walk:
        made = file.index.parent(parent)
        outer = file.index.parent(made) if made is not None else None
        return outer if is_call_of(outer, "sum", "len") else None
    return None
