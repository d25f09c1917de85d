from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from typing import ClassVar

from ptopt.rules.base import Invalid, Problem, Rule, SourceFile
from ptopt.rules.ops._calls import torch_op
from ptopt.rules.shared.flow import assigned
from ptopt.source.calls import called_name

_SCALES = frozenset({"mul", "mul_", "div", "div_", "multiply", "divide", "true_divide"})
_CASTS = frozenset({"to", "type_as", "float", "half", "bfloat16", "type"})


class NormByHand(Rule):
    """A root-mean-square or layer norm is written as a chain of small operations.

    ## What it does
    Finds `x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + eps)` in functions that are not compiled.

    ## Why it is slow
    Square, mean, sum, root and product are one kernel each, every one of them reads or writes a tensor of the size of x, and
    autograd keeps several. `F.rms_norm` is one operation with a fused kernel in current versions.

    ## When this is wrong
    When the module is compiled, which fuses the chain, or the norm deviates from the standard form. Norms that hand the root or the
    mean on, such as to a hook that may read or replace it, are left alone.

    ## Fix safety
    There is no fix: where the chain casts, the result may differ by a rounding.

    ## Sources
    - [torch.nn.functional.rms_norm](https://docs.pytorch.org/docs/stable/generated/torch.nn.functional.rms_norm.html)
    """

    id = "PTO821"
    name = "norm-by-hand"
    family = "memory"
    most_stated = 0.45
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
        """
        class RMSNorm(nn.Module):
            def forward(self, x):
                scale = self.hook_scale((x.pow(2).mean(-1, keepdim=True) + self.eps).sqrt())
                return self.hook_normalized(x / scale) * self.weight
        """,
        """
        class RMSNorm(nn.Module):
            def forward(self, x):
                scale = (x.pow(2).mean(-1, keepdim=True) + self.eps).sqrt()
                return x / scale * self.weight, scale
        """,
        """
        class RMSNorm(nn.Module):
            def forward(self, x):
                variance = x.pow(2).mean(-1, keepdim=True)
                self.seen(variance)
                return x * torch.rsqrt(variance + self.eps) * self.weight
        """,
    )
    INVALID = (
        Invalid("""
            class RMSNorm(nn.Module):
                def forward(self, x):
                    return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.eps) * self.weight  # !
        """),
        Invalid("""
            class RMSNorm(nn.Module):
                def forward(self, hidden_states):
                    variance = hidden_states.pow(2).mean(-1, keepdim=True)
                    return self.weight * (hidden_states * torch.rsqrt(variance + self.variance_epsilon))  # !
        """),
        Invalid("""
            class RMSNorm(torch.nn.Module):
                def forward(self, x):
                    x = x.float()
                    rrms = torch.rsqrt(torch.mean(x**2, dim=-1, keepdim=True) + 1e-6)  # !
                    return x * rrms * self.scale
        """),
        Invalid("""
            class RMSNorm(torch.nn.Module):
                def forward(self, x):
                    scale = (x.pow(2).mean(-1, keepdim=True) + self.eps).sqrt()  # !
                    normed = x / scale.to(x.dtype)
                    return self.hook_normalized(normed) * self.weight
        """),
        Invalid("""
            class RMSNorm(torch.nn.Module):
                def forward(self, x):
                    inverse = 1.0 / torch.sqrt(x.pow(2).mean(-1, keepdim=True) + self.eps)  # !
                    return torch.mul(x, inverse) * self.weight
        """),
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
        if not _only_scales(node, file) or not _is_read_once(_without_epsilon(op.operand), file):
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


def _only_scales(root: ast.AST, file: SourceFile) -> bool:
    """Is the root only multiplied with or divided by? A hook that sees it may put another one in its place."""
    parent = file.index.parent(root)
    while isinstance(parent, ast.Attribute):  # `root.to(x.dtype)`
        call = file.index.parent(parent)
        if not (isinstance(call, ast.Call) and call.func is parent):
            return False
        if parent.attr in _SCALES:
            return True
        if parent.attr not in _CASTS:
            return False
        root, parent = call, file.index.parent(call)
    if isinstance(parent, ast.BinOp) and isinstance(parent.op, (ast.Mult, ast.Div)):
        other = parent.right if root is parent.left else parent.left
        return not isinstance(other, ast.Constant) or _only_scales(parent, file)
    if isinstance(parent, ast.AugAssign):
        return isinstance(parent.op, (ast.Mult, ast.Div))
    if isinstance(parent, ast.Call):
        return called_name(parent) in _SCALES
    targets = parent.targets if isinstance(parent, ast.Assign) else []
    if isinstance(parent, ast.AnnAssign):
        targets = [parent.target]
    if len(targets) != 1 or not isinstance(targets[0], ast.Name):
        return False
    loads = file.uses.loads(file.index.function_of(root), targets[0].id)
    return bool(loads) and all(_only_scales(load, file) for load in loads)


def _is_read_once(mean: ast.expr, file: SourceFile) -> bool:
    """Is the mean, where it has a name, only there for the root?"""
    if not isinstance(mean, ast.Name):
        return True
    return len(file.uses.loads(file.index.function_of(mean), mean.id)) == 1


def _without_epsilon(expr: ast.expr) -> ast.expr:
    """`v` of `v + eps`."""
    if isinstance(expr, ast.BinOp) and isinstance(expr.op, ast.Add):
        return expr.right if isinstance(expr.left, ast.Constant) else expr.left
    return expr


def _named(expr: ast.expr, file: SourceFile) -> ast.expr:
    """What a name was last given, else the expression."""
    value = assigned(expr, file)
    return expr if value is None else _without_epsilon(value)
