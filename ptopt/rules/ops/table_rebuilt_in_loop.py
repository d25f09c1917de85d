from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from ptopt.rules.base import Invalid, Problem, Rule, Severity, SourceFile
from ptopt.rules.code import beside, method_call, quote
from ptopt.rules.ops._calls import names_in
from ptopt.source.calls import last_name
from ptopt.source.index import COMPREHENSIONS, FUNCTIONS, own_nodes

_TABLES = frozenset(
    {"state_dict", "named_parameters", "named_modules", "named_buffers", "parameters", "modules"}
)
_COLLECT = frozenset({"dict", "list", "tuple", "len", "sum", "set"})
_LOOKUPS = frozenset({"keys", "get", "items", "values"})


class TableRebuiltInLoop(Rule):
    """The table of a module's parameters is built again in every iteration.

    ## What it does
    Finds `model.state_dict()[key]`, `key in model.state_dict()`, `dict(model.named_parameters())[key]`, `list(model.parameters())` and
    the like in a loop that does not change `model`.

    ## Why it is slow
    Each call walks over all modules and makes a new dictionary or list with an entry for every parameter, to use one of them. Built
    once before the loop, it serves all iterations: its tensors share memory with the parameters.

    ## Fix safety
    None: the name of the new variable is the author's choice.

    ## Sources
    - [torch.nn.Module.state_dict](https://docs.pytorch.org/docs/stable/generated/torch.nn.Module.html#torch.nn.Module.state_dict)
    """

    id = "PTO450"
    name = "table-rebuilt-in-loop"
    family = "ops"
    severity = Severity.LOW
    most_stated = 0.4
    triggers = tuple(f"{name}(" for name in sorted(_TABLES))
    nodes = (ast.Call,)
    calls = _TABLES
    when_wrong = "the loop adds or replaces modules or parameters"

    VALID = (
        """
        for batch in loader:
            loss_scaler(model(batch.cuda()).loss, optimizer)
            scale = loss_scaler.state_dict()["scale"]
            log(scale)
        """,
        """
        own = model.state_dict()
        for name, value in checkpoint.items():
            if own[name].shape == value.shape:
                kept[name] = value
        """,
        """
        for model in models:
            total += sum(p.numel() for p in model.parameters())
        """,
        """
        for epoch in range(epochs):
            torch.save(model.state_dict(), path)
        """,
    )
    INVALID = (
        Invalid("""
            for name, value in checkpoint.items():
            # ~ own = model.state_dict()
            # ~ for name, value in checkpoint.items():
                if model.state_dict()[name].shape == value.shape:  # !
                # ~ if own[name].shape == value.shape:
                    kept[name] = value
        """),
        Invalid("""
            kept = {k: v for k, v in checkpoint.items() if k in model.state_dict()}  # !
        """),
        Invalid("""
            for i, grad in enumerate(grads):
                list(model.parameters())[i].grad = grad  # !
        """),
    )

    def check(self, node: ast.AST, file: SourceFile) -> Iterator[Problem]:
        owner = method_call(node, *_TABLES)
        if owner is None or not isinstance(node, ast.Call) or node.keywords:
            return
        used = _one_entry(node, file)
        place = _place(node, file) if used is not None else None
        if used is None or place is None:
            return
        if (
            re.search(r"optim|scaler|sched|meter|ema", file.source(owner), re.I)
            or file.values.of(owner).kind == "optimizer"
        ):
            return
        roots = names_in(owner)
        changed = {n.id for n in own_nodes(place) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
        if roots & changed or _replaces(place, file.source(owner)):
            return
        name = used if isinstance(used, ast.Call) else node
        yield Problem(
            node,
            f"{quote(file, name, 50)} walks over all modules and makes a new table in each iteration of the loop at line {place.lineno}, "
            f"which takes one entry. Build it once before the loop (`table = {quote(file, name, 50).strip('`')}`) and look up there.",
            0.4,
            beside(node, place, "the loop"),
            cause=place,
            facts={
                "state_dict": isinstance(node.func, ast.Attribute) and node.func.attr == "state_dict",
                "comprehension": isinstance(place, COMPREHENSIONS),
            },
        )


def _one_entry(call: ast.Call, file: SourceFile) -> ast.AST | None:
    """The table, where only an entry of it is used: `table[key]`, `key in table`, `table.get(key)`."""
    table: ast.AST = call
    parent = file.index.parent(call)
    if (
        isinstance(parent, ast.Call)
        and isinstance(parent.func, ast.Name)
        and parent.func.id in _COLLECT
        and parent.args[:1] == [call]
    ):
        table, parent = parent, file.index.parent(parent)
    elif isinstance(call.func, ast.Attribute) and call.func.attr != "state_dict":
        return None
    if isinstance(parent, ast.Subscript) and parent.value is table:
        return table
    if (
        isinstance(parent, ast.Compare)
        and table in parent.comparators
        and isinstance(parent.ops[0], (ast.In, ast.NotIn))
    ):
        return table
    if isinstance(parent, ast.Attribute) and parent.attr in _LOOKUPS:
        outer = file.index.parent(file.index.parent(parent) or parent)
        inside = isinstance(outer, ast.Compare) and isinstance(outer.ops[0], (ast.In, ast.NotIn))
        return table if inside or parent.attr == "get" else None
    return None


def _place(
    node: ast.AST, file: SourceFile
) -> ast.For | ast.While | ast.ListComp | ast.DictComp | ast.SetComp | ast.GeneratorExp | None:
    """The innermost loop or comprehension that runs the call again and again."""
    for ancestor, child in file.index.ancestors(node):
        if isinstance(ancestor, (*FUNCTIONS, ast.Lambda, ast.ClassDef)):
            return None
        if isinstance(ancestor, (ast.For, ast.While)) and child in ancestor.body:
            return ancestor
        if isinstance(ancestor, COMPREHENSIONS):
            first = ancestor.generators[0]
            if not (child is first and file.index.within(node, first.iter)):
                return ancestor
    return None


def _replaces(place: ast.AST, owner: str) -> bool:
    """Does the loop set attributes of the module, or load weights into it?"""
    for node in own_nodes(place):
        if isinstance(node, ast.Call):
            func = node.func
            name = last_name(func)
            if name in ("setattr", "delattr", "register_parameter", "register_buffer", "add_module"):
                return True
        if (
            isinstance(node, ast.Attribute)
            and isinstance(node.ctx, ast.Store)
            and ast.unparse(node.value) == owner
        ):
            return True
    return False
