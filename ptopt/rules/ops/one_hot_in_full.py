from __future__ import annotations

import ast
from collections.abc import Iterator

from ptopt.rules.base import Evidence, Invalid, Problem, Rule, SourceFile, quote
from ptopt.rules.ops._calls import Op, torch_op
from ptopt.source.uses import Uses

_CASTS = frozenset({"float", "to", "type", "type_as", "half", "bfloat16", "double"})
_MOVES = frozenset(
    {"permute", "transpose", "movedim", "moveaxis", "contiguous", "view", "reshape", "squeeze", "unsqueeze"}
)


class OneHotInFull(Rule):
    """A one-hot tensor is written out to pick entries, or in 64-bit integers to be cast.

    ## What it does
    Finds `(F.one_hot(i, n) * x).sum(-1)`, which picks one entry a row, and `F.one_hot(i, n).permute(...).float()`.

    ## Why it is slow
    `one_hot` writes `n` 64-bit integers for each index. Picking by a product reads them all again; `gather` reads one entry.
    A cast and a permutation write the whole tensor once or twice more; `scatter_` writes it in the wanted type and order.

    ## When this is wrong
    When `n` is small.

    ## Example
    ```python
    q = (F.one_hot(action, n) * q_values).sum(-1)
    target = F.one_hot(labels, n).permute(0, 3, 1, 2).float()
    ```

    ## Use instead
    ```python
    q = q_values.gather(-1, action.unsqueeze(-1)).squeeze(-1)
    target = torch.zeros(b, n, h, w, device=labels.device).scatter_(1, labels.unsqueeze(1), 1)
    ```

    ## Fix safety
    No fix: the sizes of the result have to be written out.

    ## Sources
    - [torch.gather](https://docs.pytorch.org/docs/stable/generated/torch.gather.html)
    """

    id = "PTO482"
    name = "one-hot-in-full"
    family = "ops"
    most_stated = 0.5
    nodes = (ast.Call,)
    calls = frozenset({"one_hot"})
    when_wrong = "there are few classes"

    VALID = (
        """
        def encode(i, n):
            return F.one_hot(i, n)
        """,
        """
        def smooth(i, n, logits):
            target = F.one_hot(i, n).float()
            return (target * logits).sum(-1), target
        """,
        """
        def count(i, n):
            return F.one_hot(i, n).sum(0)
        """,
    )
    INVALID = (
        Invalid(
            """
            def pick(action, q_values, n):
                return (F.one_hot(action, n) * q_values).sum(-1)  # !
            """
        ),
        Invalid(
            """
            def target(labels, n):
                return F.one_hot(labels, n).permute(0, 3, 1, 2).float()  # !
            """
        ),
        Invalid(
            """
            def loss(log_probs, labels, n):
                hot = F.one_hot(labels, n).float()  # !
                return -torch.sum(hot * log_probs, dim=1)
            """
        ),
    )

    def check(self, node: ast.AST, file: SourceFile) -> Iterator[Problem]:
        op = torch_op(node, file, "one_hot")
        if op is None or not isinstance(node, ast.Call):
            return
        last, cast, moved = _chain(node, file)
        index = file.source(op.operand)
        product = _product(last, file)
        if product is not None:
            other = file.source(product[1])
            yield Problem(
                node,
                f"{quote(file, product[0])} picks one entry for each index by multiplying with a full one-hot tensor. "
                f"`{other}.gather(-1, {index}.unsqueeze(-1)).squeeze(-1)` reads only those entries.",
                0.5,
                (Evidence(product[0].lineno, "the sum over the product"),)
                if product[0].lineno != node.lineno
                else (),
                subject=op.operand,
                facts={"picked": 1, "moved": moved},
            )
        elif cast and moved:
            yield Problem(
                node,
                f"`one_hot` writes 64-bit integers, and {quote(file, last)} copies them to another order and type. "
                f"`torch.zeros(…, device={index}.device).scatter_(1, {index}.unsqueeze(1), 1)` writes the result once.",
                0.4,
                subject=op.operand,
                facts={"picked": 0, "moved": moved},
            )


def _chain(call: ast.Call, file: SourceFile) -> tuple[ast.expr, bool, bool]:
    """The end of the chain of casts and moves after the call, and whether it casts and moves."""
    last: ast.expr = call
    cast = moved = False
    while True:
        attribute = file.index.parent(last)
        outer = file.index.parent(attribute) if isinstance(attribute, ast.Attribute) else None
        if (
            not isinstance(attribute, ast.Attribute)
            or not isinstance(outer, ast.Call)
            or outer.func is not attribute
        ):
            return last, cast, moved
        if attribute.attr in _CASTS:
            cast = True
        elif attribute.attr in _MOVES:
            moved |= attribute.attr in ("permute", "transpose", "movedim", "moveaxis")
        else:
            return last, cast, moved
        last = outer


def _product(hot: ast.expr, file: SourceFile) -> tuple[ast.expr, ast.expr] | None:
    """The sum over the last dimension of the product with the one-hot tensor, and the other factor."""
    parent = file.index.parent(hot)
    if isinstance(parent, ast.Assign) and isinstance(parent.targets[0], ast.Name):
        uses: Uses = file.uses
        loads = uses.loads(file.index.function_of(hot), parent.targets[0].id)
        if len(loads) != 1 or loads[0].lineno < parent.lineno:
            return None
        hot, parent = loads[0], file.index.parent(loads[0])
    if not isinstance(parent, ast.BinOp) or not isinstance(parent.op, ast.Mult):
        return None
    other = parent.right if parent.left is hot else parent.left
    outer = file.index.parent(parent)
    call = file.index.parent(outer) if isinstance(outer, ast.Attribute) else outer
    op: Op | None = torch_op(call, file, "sum")
    if op is None or op.operand is not parent:
        return None
    dim = op.argument(0, "dim", "axis")
    return (op.call, other) if dim is not None and ast.unparse(dim) in ("-1", "1", "2") else None
