from __future__ import annotations

import ast
from collections.abc import Iterator

from ptopt.rules.base import Edit, Fix, Invalid, Problem, Rule, Safety, SourceFile
from ptopt.rules.code import quote
from ptopt.rules.ops._calls import torch_op
from ptopt.rules.shared.flow import outer_call
from ptopt.source.calls import last_name

# Give new memory whatever they are called with.
_FRESH = frozenset(
    "cat stack concat hstack vstack where matmul mm bmm einsum softmax log_softmax sigmoid repeat repeat_interleave gather index_select "
    "masked_select masked_fill clone exp log sqrt abs mean sum cumsum flip roll zeros ones full empty randn rand rand_like randn_like "
    "zeros_like ones_like full_like empty_like arange linspace one_hot sort argsort tanh relu normalize interpolate pad add mul div sub".split()
)
_COPIES = frozenset({"cpu", "cuda", "to", "half", "float", "bfloat16", "double", "long"})


class CloneOfCopy(Rule):
    """A tensor is cloned right before, or right after, it is copied anyway.

    ## What it does
    Finds `x.clone().cpu()`, `x.detach().clone().to("cpu")`, `torch.cat(xs).clone()`, `(a + b).clone()` and the like.

    ## Why it is slow
    The copy to another device or data type, and every operation that computes something, gives new memory already. The clone is a second
    tensor of that size for a moment, on the device where memory is short, and one more pass over it.

    ## When this is wrong
    When the tensor is on that device, and of that data type, already: then `to` gives back the tensor itself.

    ## Example
    ```python
    state[key] = value.detach().clone().to("cpu")
    ```

    ## Use instead
    ```python
    state[key] = value.detach().to("cpu", copy=True)
    ```

    ## Fix safety
    Safe for the clone of a new tensor. There is no fix for the clone before `to`, which may have nothing to copy.

    ## Sources
    - [torch.Tensor.to](https://docs.pytorch.org/docs/stable/generated/torch.Tensor.to.html)
    """

    id = "PTO893"
    name = "clone-of-copy"
    family = "memory"
    most_stated = 0.45
    nodes = (ast.Call,)
    calls = frozenset({"clone"})
    when_wrong = "`to` has nothing to copy"

    VALID = (
        """
        state[key] = value.detach().to("cpu", copy=True)
        """,
        """
        def keep(x):
            return x[0].clone()
        """,
        """
        weights = model.weight.detach().clone()
        """,
    )
    INVALID = (
        Invalid("""
            for key, value in network.state_dict().items():
                state[key] = value.detach().clone().to("cpu")  # !
        """),
        Invalid("""
            features = torch.cat(parts).clone()  # !
            # + features = torch.cat(parts)
        """),
        Invalid("""
            def snapshot(x: torch.Tensor):
                return x.clone().detach().cpu().numpy()  # !
        """),
    )

    def check(self, node: ast.AST, file: SourceFile) -> Iterator[Problem]:
        op = torch_op(node, file, "clone")
        if op is None or op.rest or op.call.keywords:
            return
        whole: ast.Call = op.call
        outer = outer_call(whole, file)
        while outer is not None and last_name(outer.func) == "detach":
            whole, outer = outer, outer_call(outer, file)
        name = last_name(outer.func) if outer is not None else ""
        fresh = _is_fresh(op.operand, file)
        if fresh and op.is_method:
            edit = Edit(file.bounds(op.operand)[1], file.bounds(op.call)[1], "")
            yield Problem(
                op.call,
                f"{quote(file, op.operand, 45)} is a new tensor already: `.clone()` copies it once more and lets the first go. Drop `.clone()`.",
                0.45,
                fix=Fix(Safety.SAFE, (edit,)),
                cause=file.index.statement_of(op.call),
                subject=op.operand,
                facts={"fresh": 1},
            )
        elif (
            outer is not None
            and name in _COPIES
            and (outer.args or name != "to")
            and not any(k.arg == "copy" for k in outer.keywords)
        ):
            text = file.source(outer)[len(file.source(whole)) :]
            yield Problem(
                op.call,
                f"`{text.strip()}` copies the tensor by itself, unless it has nothing to convert: with `.clone()` before it there are two copies, the first where "
                f"{quote(file, op.operand, 30)} is. Drop `.clone()`, or write `.to(…, copy=True)` if the result must be a copy in any case.",
                0.4,
                cause=file.index.statement_of(op.call),
                subject=op.operand,
                facts={
                    "to_host": "cpu" in text,
                    "fresh": 0,
                    "cast": name in ("half", "float", "bfloat16", "double", "long"),
                },
            )


def _is_fresh(expr: ast.expr, file: SourceFile) -> bool:
    """Does the expression always give new memory?"""
    if isinstance(expr, ast.BinOp):
        return file.values.is_tensor(expr)
    if not isinstance(expr, ast.Call):
        return False
    name = last_name(expr.func)
    if any(k.arg == "out" for k in expr.keywords):
        return False
    return name in _FRESH and (
        file.imports.qualified(expr.func).startswith("torch.") or file.values.is_tensor(expr)
    )
