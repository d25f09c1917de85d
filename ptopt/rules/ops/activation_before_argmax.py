from __future__ import annotations

import ast
from collections.abc import Iterator

from ptopt.rules.base import Evidence, Invalid, Problem, Rule, SourceFile
from ptopt.rules.code import quote
from ptopt.rules.ops._calls import Op, torch_op
from ptopt.rules.ops._pure import nested_functions
from ptopt.source.index import COMPREHENSIONS

_ORDERED = {
    "softmax": True,
    "log_softmax": True,
    "sigmoid": False,
    "logsigmoid": False,
    "tanh": False,
    "exp": False,
}
_CLASSES = {
    "torch.nn.Softmax": "softmax",
    "torch.nn.LogSoftmax": "log_softmax",
    "torch.nn.Sigmoid": "sigmoid",
}


class ActivationBeforeArgmax(Rule):
    """Scores go through a softmax or a sigmoid although only the indices of the largest are used.

    ## What it does
    Finds a softmax, log-softmax, sigmoid, tanh or exp whose result is used for an `argmax`, the indices of a maximum or
    `topk`, and for nothing else. Comparisons with a threshold are `sigmoid-before-threshold`.

    ## Why it is slow
    These functions keep the order of the scores, so the indices are the same without them. Each reads and writes
    the whole tensor, and a softmax reads it twice.

    ## When this is wrong
    When the probabilities are wanted for something that is added later.

    ## Fix safety
    No fix: scores that differ by less than the rounding of the activation may tie in one form only.

    ## Sources
    - [nnU-Net: argmax of the logits](https://github.com/MIC-DKFZ/nnUNet/commit/d30108b9dfdb84226347efde10765466fd9b381a)
    """

    id = "PTO472"
    name = "activation-before-argmax"
    family = "ops"
    most_stated = 0.5
    nodes = (ast.Call,)
    calls = frozenset({*_ORDERED, *(name.rpartition(".")[2] for name in _CLASSES)})
    when_wrong = "the probabilities are needed for something else as well"

    VALID = (
        """
        def predict(logits):
            probs = F.softmax(logits, dim=1)
            return probs, probs.argmax(dim=1)
        """,
        """
        def predict(logits):
            score, label = F.softmax(logits, dim=1).max(dim=1)
            return label[score > 0.9]
        """,
        """
        def attention(scores, mask):
            return F.softmax(scores, dim=-1).argmax(dim=0)
        """,
        """
        def confident(x):
            return torch.exp(x).sum() > 0.5
        """,
        """
        def masks(logits):
            return torch.sigmoid(logits) > 0.5
        """,
    )
    INVALID = (
        Invalid("""
            def predict(logits):
                return F.softmax(logits, dim=1).argmax(dim=1)  # !
                # ~ return logits.argmax(dim=1)
        """),
        Invalid("""
            def predict(logits, k):
                probs = torch.softmax(logits, -1)  # !
                _, ids = probs.topk(k, dim=-1)
                return ids
        """),
        Invalid("""
            def labels(logits):
                return nn.Softmax(dim=1)(logits).max(dim=1)[1]  # !
        """),
    )

    def check(self, node: ast.AST, file: SourceFile) -> Iterator[Problem]:
        parent = file.index.parent(node)
        if isinstance(parent, ast.Call) and parent.func is node:
            node = parent  # nn.Softmax(dim=1)(x)
        found = _activation(node, file)
        if found is None or not isinstance(node, ast.Call):
            return
        name, dim = found
        users = _users(node, file)
        if users is None or not users:
            return
        ways = [_only_order(use, name, dim, file) for use in users]
        if not all(ways):
            return
        first = next(w for w in ways if w)
        yield Problem(
            node,
            f"Only the {first} of {quote(file, node)} is used, and `{name}` keeps the order of its input: "
            "the input itself gives the same indices. Leave the function out.",
            0.5,
            tuple(
                Evidence(u.lineno, f"uses only the {w}")
                for u, w in zip(users, ways, strict=True)
                if u.lineno != node.lineno
            )[:2],
            subject=node,
            facts={"uses": len(users), "softmax": _ORDERED[name]},
        )


def _activation(node: ast.AST, file: SourceFile) -> tuple[str, str] | None:
    """Name of the function and text of its dimension."""
    op = torch_op(node, file, *_ORDERED)
    if op is not None:
        if op.name == "exp" or (op.is_method and file.values.of(op.operand).kind == "array"):
            return None if file.values.of(op.operand).kind != "tensor" else ("exp", "")
        return op.name, _dim(op, 0)
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Call):  # nn.Softmax(dim=1)(x)
        name = _CLASSES.get(file.imports.qualified(node.func.func))
        if name is not None:
            made = Op(name, node.func, node, tuple(node.func.args), True)
            return name, _dim(made, 0)
    return None


def _dim(op: Op, place: int) -> str:
    dim = op.argument(place, "dim", "axis")
    return ast.unparse(dim) if dim is not None else ""


def _users(node: ast.expr, file: SourceFile) -> list[ast.expr] | None:
    """The expressions that stand for the result: itself, or every read of the one name that it is given."""
    parent = file.index.parent(node)
    if not isinstance(parent, ast.Assign):
        return [node]
    target = parent.targets[0]
    if len(parent.targets) != 1 or not isinstance(target, ast.Name):
        return None
    function = file.index.function_of(node)
    if function is None or len(file.bindings.of(function, target.id)) != 1:
        return None
    inner = file.once(nested_functions).get(function, [])
    if any(file.uses.loads(f, target.id) for f in inner):
        return None
    loads: list[ast.expr] = list(file.uses.loads(function, target.id))
    everywhere = sum(1 for _ in file.uses.named_in(function, target.id))
    return loads if everywhere == len(loads) + 1 else None  # a nested function reads it, too


def _only_order(use: ast.expr, name: str, dim: str, file: SourceFile) -> str:
    """How the use depends on the order alone, in words; "" when it may need the values."""
    parent = file.index.parent(use)
    while isinstance(parent, ast.Attribute) and parent.attr in ("data", "detach", "cpu"):
        use = parent
        parent = file.index.parent(use)
        if isinstance(parent, ast.Call) and parent.func is use:
            use, parent = parent, file.index.parent(parent)
    call = file.index.parent(parent) if isinstance(parent, ast.Attribute) else parent
    op = torch_op(call, file, "argmax", "argmin", "argsort", "max", "min", "topk", "sort")
    if op is None or op.operand is not use:
        return ""
    position = 1 if op.name == "topk" else 0
    along = _dim(op, position) or ("-1" if op.name in ("topk", "sort", "argsort") else "")
    if _ORDERED[name] and (not dim or along != dim):
        return ""  # a softmax keeps the order within its own dimension only
    if op.name in ("argmax", "argmin", "argsort"):
        return f"`{op.name}`"
    return f"indices of `{op.name}`" if along and _takes_indices(op.call, file) else ""


def _takes_indices(call: ast.Call, file: SourceFile) -> bool:
    parent = file.index.parent(call)
    if isinstance(parent, ast.Attribute):
        return parent.attr == "indices"
    if isinstance(parent, ast.Subscript) and not isinstance(file.index.parent(parent), COMPREHENSIONS):
        return isinstance(parent.slice, ast.Constant) and parent.slice.value == 1
    if isinstance(parent, ast.Assign) and isinstance(parent.targets[0], ast.Tuple):
        first = parent.targets[0].elts[0]
        return (
            isinstance(first, ast.Name)
            and first.id.startswith("_")
            and not file.uses.loads(file.index.function_of(call), first.id)
        )
    return False
