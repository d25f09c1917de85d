from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from typing import ClassVar

from ptopt.rules.base import Invalid, Problem, Rule, Severity, SourceFile
from ptopt.rules.ops._calls import torch_op


class NormByHand(Rule):
    """A root-mean-square or layer norm is written as a chain of small operations.

    ## What it does
    Finds `x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + eps)` in functions that are not compiled.

    ## Why it is slow
    Square, mean, sum, root and product are one kernel each, every one of them reads or writes a tensor of the size of x, and
    autograd keeps several. `F.rms_norm` is one operation with a fused kernel in current versions.

    ## When this is wrong
    When the module is compiled, which fuses the chain, or the norm deviates from the standard form.

    ## Example
    ```python
    x = x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.eps) * self.weight
    ```

    ## Use instead
    ```python
    x = F.rms_norm(x, (x.shape[-1],), self.weight, self.eps)
    ```

    ## Fix safety
    There is no fix: where the chain casts, the result may differ by a rounding.

    ## Sources
    - [torch.nn.functional.rms_norm](https://docs.pytorch.org/docs/stable/generated/torch.nn.functional.rms_norm.html)
    """

    id = "PTO821"
    name = "norm-by-hand"
    family = "memory"
    severity = Severity.MEDIUM
    nodes = (ast.Call,)
    calls = frozenset({"rsqrt", "sqrt"})
    requires = ("mean",)
    since: ClassVar[Mapping[str, str]] = {"torch": "2.4"}
    when_wrong = "the module is compiled, or the norm deviates from the standard form"

    VALID = (
        """
        def forward(self, x):
            return F.rms_norm(x, (x.shape[-1],), self.weight, self.eps)
        """,
        """
        def forward(self, x):
            return torch.rsqrt(self.variance + self.eps)
        """,
        """
        rmse = torch.sqrt(((a - b) ** 2).mean())
        """,
    )
    INVALID = (
        Invalid(
            """
            class RMSNorm(nn.Module):
                def forward(self, x):
                    return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.eps) * self.weight  # !
            """
        ),
        Invalid(
            """
            class RMSNorm(nn.Module):
                def forward(self, hidden_states):
                    variance = hidden_states.pow(2).mean(-1, keepdim=True)
                    return self.weight * (hidden_states * torch.rsqrt(variance + self.variance_epsilon))  # !
            """
        ),
        Invalid(
            """
            class RMSNorm(torch.nn.Module):
                def forward(self, x):
                    x = x.float()
                    rrms = torch.rsqrt(torch.mean(x**2, dim=-1, keepdim=True) + 1e-6)  # !
                    return x * rrms * self.scale
            """
        ),
    )

    def check(self, node: ast.AST, file: SourceFile) -> Iterator[Problem]:
        op = torch_op(node, file, "rsqrt", "sqrt")
        if op is None or op.rest:
            return
        mean = _named(_without_epsilon(op.operand), file)
        average = torch_op(mean, file, "mean")
        if (
            average is None
            or average.argument(0, "dim") is None
            or "keepdim" not in file.source(average.call)
        ):
            return
        square = _named(average.operand, file)
        squared = torch_op(square, file, "pow", "square")
        base = squared.operand if squared is not None else None
        if isinstance(square, ast.BinOp) and isinstance(square.op, ast.Pow):
            base = square.left
        elif isinstance(square, ast.BinOp) and isinstance(square.op, ast.Mult):
            base = square.left if file.source(square.left) == file.source(square.right) else None
        if not isinstance(base, (ast.Name, ast.Call)) or file.values.of(base).kind == "array":
            return
        function = file.index.function_of(node)
        if function is None or any("compile" in file.source(d) for d in function.decorator_list):
            return
        dim = average.argument(0, "dim")
        if dim is None or file.source(dim) not in ("-1", "(-1,)", "[-1]"):
            return
        text = file.source(base) if isinstance(base, ast.Name) else "x"
        yield Problem(
            node,
            f"The root-mean-square norm is a chain of small kernels here, and each of them reads or writes a tensor of the size "
            f"of `{text}`. `F.rms_norm({text}, ({text}.shape[-1],), weight, eps)` is one operation.",
            0.45,
            subject=base,
            cause=function,
            facts={"compiled": "torch.compile" in file.text, "casts": "float()" in file.source(function)},
        )


def _without_epsilon(expr: ast.expr) -> ast.expr:
    """`v` of `v + eps`."""
    if isinstance(expr, ast.BinOp) and isinstance(expr.op, ast.Add):
        return expr.right if isinstance(expr.left, ast.Constant) else expr.left
    return expr


def _named(expr: ast.expr, file: SourceFile) -> ast.expr:
    """What a name was last given, else the expression."""
    if isinstance(expr, ast.Name):
        binding = file.bindings.last_before(expr)
        if binding is not None and binding.kind == "assign" and binding.value is not None:
            return _without_epsilon(binding.value)
    return expr
