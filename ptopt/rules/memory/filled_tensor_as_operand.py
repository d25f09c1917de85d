from __future__ import annotations

import ast
from collections.abc import Iterator

from ptopt.rules.base import Invalid, Problem, SourceFile
from ptopt.rules.code import quote
from ptopt.rules.ops._calls import same_code, torch_op
from ptopt.rules.shared.calls import CallRule, ResolvedCall
from ptopt.rules.shared.flow import reads

_VALUES = {"zeros_like": "0", "ones_like": "1", "full_like": "", "zeros": "0", "ones": "1", "full": ""}
_MERGES = frozenset({"maximum", "minimum", "max", "min"})


class FilledTensorAsOperand(CallRule):
    """A tensor of one repeated value is filled in full only to be an operand.

    ## What it does
    Finds `torch.where(mask, x, torch.zeros_like(x))`, `torch.max(x, torch.zeros_like(x))`, `torch.ones_like(x) - x` and
    `torch.ones(n, m) * value`, also through a name.

    ## Why it is slow
    The constant is written to memory as a tensor as large as the other operand, and read back once. A Python number is
    broadcast inside of the kernel: one allocation, one kernel and one read of that size less.

    ## Fix safety
    There is no fix: the data type of the result may follow from the constant.

    ## Sources
    - [torch.where](https://docs.pytorch.org/docs/stable/generated/torch.where.html)
    """

    id = "PTO881"
    name = "filled-tensor-as-operand"
    family = "memory"
    most_stated = 0.35
    functions = frozenset(f"torch.{name}" for name in _VALUES)
    when_wrong = "the constant gives the result its shape or data type"

    VALID = (
        """
        def forward(self, x, mask):
            return torch.where(mask, x, 0.0)
        """,
        """
        def forward(self, scores):
            return F.binary_cross_entropy_with_logits(scores, torch.ones_like(scores))
        """,
        """
        def forward(self, x):
            out = torch.zeros_like(x)
            out[:, 1:] = x[:, :-1]
            return out
        """,
    )
    INVALID = (
        Invalid("""
            def masked(x: torch.Tensor, mask: torch.Tensor):
                return torch.where(mask, x, torch.zeros_like(x))  # !
                # ~ return x.masked_fill(~mask, 0)
        """),
        Invalid("""
            def training_step(self, batch):
                zero = torch.zeros_like(batch)  # !
                return torch.max(batch, zero).mean()
        """),
        Invalid("""
            def surprise(probability: torch.Tensor):
                return torch.log(torch.ones_like(probability) - probability)  # !
        """),
        Invalid("""
            def bias(x: torch.Tensor):
                return torch.ones(x.shape[0], x.shape[1], device=x.device) * -1e9  # !
        """),
    )

    def check_call(self, call: ResolvedCall) -> Iterator[Problem]:
        node, file = call.node, call.file
        name = call.name.rpartition(".")[2]
        if not node.args or any(k.arg in ("out", "requires_grad") for k in node.keywords):
            return
        uses = reads(node, file)
        found = [_instead(use, name, node, file) for use in uses]
        if not found or not all(found):
            return
        where = "" if uses[0] is node else f" on line {uses[0].lineno}"
        yield Problem(
            node,
            f"{quote(file, node, 45)} writes one value to memory as a whole tensor, which is only read back as an operand{where}. "
            f"{found[0]}",
            0.35,
            call.evidence,
            cause=file.index.statement_of(node),
            subject=node,
            facts={"like": name.endswith("_like"), "through_name": uses[0] is not node, "reads": len(uses)},
        )


def _instead(use: ast.expr, name: str, made: ast.Call, file: SourceFile) -> str:
    """What to write in the place of this use; "" when the constant may be needed."""
    parent = file.index.parent(use)
    value = _VALUES[name] or (file.source(made.args[1]) if len(made.args) > 1 else "value")
    like = made.args[0] if name.endswith("_like") else None
    where = torch_op(parent, file, "where")
    if where is not None and not where.is_method and len(where.rest) == 2 and use in where.rest:
        other = where.rest[1] if where.rest[0] is use else where.rest[0]
        if isinstance(other, ast.Constant) or like is None:
            return ""
        return f"`torch.where` and `masked_fill` take the number itself: write `{value}` instead."
    merge = torch_op(parent, file, *_MERGES)
    if merge is not None and like is not None:
        other = merge.rest[0] if merge.rest and merge.operand is use else merge.operand
        if other is use or not same_code(other, like):
            return ""
        bound = "min" if merge.name.startswith("max") else "max"
        return f"Write {quote(file, other, 30)[:-1]}.clamp({bound}={value})`."
    if isinstance(parent, ast.BinOp) and isinstance(parent.op, (ast.Add, ast.Sub, ast.Mult, ast.Div)):
        other = parent.left if parent.right is use else parent.right
        if like is not None and same_code(other, like):
            return f"Write the number `{value}` instead: it is broadcast inside of the kernel."
        number = isinstance(other, ast.Constant) or (
            isinstance(other, ast.UnaryOp) and isinstance(other.operand, ast.Constant)
        )
        if (
            number
            and isinstance(parent.op, (ast.Mult, ast.Add))
            and name in ("ones", "ones_like", "zeros", "zeros_like")
        ):
            full = "torch.full_like" if like is not None else "torch.full"
            return f"`{full}(…, {file.source(other)})` writes the result at once."
    if isinstance(parent, ast.Compare) and len(parent.comparators) == 1 and like is not None:
        other = parent.left if parent.comparators[0] is use else parent.comparators[0]
        if same_code(other, like):
            return f"Compare with the number `{value}`."
    return ""
