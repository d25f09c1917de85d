"""Where a value goes on from here, for rules that look at what is made of it."""

from __future__ import annotations

import ast
import re

from ptopt.rules.base import SourceFile
from ptopt.source.calls import last_name
from ptopt.source.index import FUNCTIONS

_DTYPES = frozenset(
    "float float16 float32 float64 bfloat16 half double int int8 int16 int32 int64 long short uint8 bool".split()
)
CASTS = frozenset("float half double bfloat16 long int bool short type type_as to".split())
# What people call a network, or the method that runs one.
_NETWORK = re.compile(
    r"(^|_)(model|net|network|forward|decode|decoder|encode|encoder|vae|predict|backbone|generator|module|extract|features?|"
    r"infer|inference)(_|s?$)",
    re.I,
)


def runs_network(call: ast.expr, file: SourceFile) -> bool:
    """Does the call run a network, by what is known of it or by its name?"""
    if not isinstance(call, ast.Call):
        return False
    func = call.func
    name = last_name(func)
    return file.values.is_a(func, "module") or bool(_NETWORK.search(name))


def reads(expr: ast.expr, file: SourceFile) -> list[ast.expr]:
    """Where the value of `expr` is read: `expr` itself, or every read of the one local name that it is given.

    Empty when the name is bound elsewhere too, so that a read may mean another value.
    """
    statement = file.index.parent(expr)
    if not isinstance(statement, (ast.Assign, ast.AnnAssign)):
        return [expr]
    targets = statement.targets if isinstance(statement, ast.Assign) else [statement.target]
    target = targets[0] if len(targets) == 1 else None
    if not isinstance(target, ast.Name):
        return []
    function = file.index.function_of(statement)
    bindings = file.bindings.of(function, target.id)
    later = [b.line for b in bindings if b.line > statement.lineno]
    if any(b.kind == "augment" for b in bindings):
        return []
    end = min(later, default=1 << 30)
    loads: list[ast.expr] = [
        load
        for load in file.uses.loads(function, target.id)
        if statement.lineno < load.lineno <= end and not file.index.within(load, statement)
    ]
    branch = file.index.enclosing(statement, (ast.If,)) if len(bindings) > 1 else None
    if branch is not None and not all(file.index.within(load, branch) for load in loads):
        return []  # the read may mean what another branch gave
    return loads


def outer_call(expr: ast.expr, file: SourceFile) -> ast.Call | None:
    """The call whose receiver is `expr`: `x.sum()` of `x`."""
    attribute = file.index.parent(expr)
    call = file.index.parent(attribute) if isinstance(attribute, ast.Attribute) else None
    return call if isinstance(call, ast.Call) and call.func is attribute else None


def assigned(expr: ast.AST | None, file: SourceFile) -> ast.expr | None:
    """What a name was last given, when that is one assignment; None also for what is no name."""
    return file.bindings.assigned(expr)


def value_of(expr: ast.expr, file: SourceFile) -> ast.expr:
    """What a local name was last given, when that is one assignment; else the expression itself."""
    return assigned(expr, file) or expr


def block_of(node: ast.AST, file: SourceFile) -> list[ast.stmt]:
    """The statements among which a statement stands; none for what is no statement of a block."""
    parent = file.index.parent(node)
    blocks = (getattr(parent, name, None) for name in ("body", "orelse", "finalbody"))
    return next((block for block in blocks if isinstance(block, list) and node in block), [])


def entries_of(subscript: ast.Subscript) -> list[ast.expr]:
    """What stands between the brackets: `0` and `:k` of `x[0, :k]`."""
    return subscript.slice.elts if isinstance(subscript.slice, ast.Tuple) else [subscript.slice]


def is_cast(call: ast.Call, file: SourceFile) -> bool:
    """Does the method call only change the data type: `.float()`, `.to(torch.float16)`, `.type_as(x)`?"""
    func = call.func
    if not isinstance(func, ast.Attribute) or func.attr not in CASTS:
        return False
    if func.attr != "to":
        return True
    given = [*call.args, *(k.value for k in call.keywords if k.arg == "dtype")]
    return len(call.args) + len(call.keywords) == 1 and any(is_dtype(g, file) for g in given)


def is_dtype(expr: ast.expr, file: SourceFile) -> bool:
    """Is it `torch.float16`, `x.dtype`, or a name that ends in "dtype"?"""
    if isinstance(expr, (ast.Attribute, ast.Name)):
        leaf = expr.attr if isinstance(expr, ast.Attribute) else expr.id
        qualified = file.imports.qualified(expr)
        return leaf.endswith("dtype") or (qualified.startswith("torch.") and leaf in _DTYPES)
    return False


def added_dimension(expr: ast.expr, file: SourceFile) -> int | None:
    """Where the operand gets a dimension of size 1, or None."""
    if isinstance(expr, ast.Call) and isinstance(expr.func, ast.Attribute) and expr.func.attr == "unsqueeze":
        given = expr.args[-1:] or [k.value for k in expr.keywords if k.arg == "dim"]
        value = ast.unparse(given[0]) if given else ""
        return int(value) if value.lstrip("-").isdigit() else None
    if isinstance(expr, ast.Subscript):
        entries = entries_of(expr)
        new = [i for i, e in enumerate(entries) if isinstance(e, ast.Constant) and e.value is None]
        plain = all(isinstance(e, ast.Slice) or i in new for i, e in enumerate(entries))
        if len(new) == 1 and plain:
            return None if file.values.of(expr.value).kind == "array" else new[0]
    return None


def is_other_type(expr: ast.expr, file: SourceFile) -> bool:
    """Does it stand in a branch that `isinstance` keeps to what is no tensor?"""
    text = ast.dump(expr)
    for around, child in file.index.ancestors(expr):
        if isinstance(around, FUNCTIONS):
            return False
        if not isinstance(around, (ast.If, ast.IfExp)) or child is around.test:
            continue
        body = around.body if isinstance(around.body, list) else [around.body]
        test = around.test
        if (
            child in body
            and isinstance(test, ast.Call)
            and last_name(test.func) == "isinstance"
            and len(test.args) == 2
            and ast.dump(test.args[0]) == text
            and "Tensor" not in file.source(test.args[1])
        ):
            return True
    return False
