from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import ClassVar

from ptopt.rules.base import Invalid, Problem, Rule, SourceFile
from ptopt.rules.code import quote
from ptopt.rules.ops._calls import Op, same_code, torch_op
from ptopt.rules.ops._evaluated import factors, is_gelu
from ptopt.rules.shared.export import for_export
from ptopt.rules.shared.flow import value_of
from ptopt.source.frequency import Often


class ActivationByHand(Rule):
    """An activation or a loss is put together from several kernels, where torch has one.

    ## What it does
    Finds `x * torch.sigmoid(x)` (SiLU), `x * torch.tanh(F.softplus(x))` (Mish), `torch.log(1 + torch.exp(x))` (softplus), the tanh and the
    erf formula of GELU, and `F.binary_cross_entropy(torch.sigmoid(x), y)`. Cross entropy with soft targets is left alone:
    `F.cross_entropy` computes it in the same three steps.

    ## Why it is slow
    Each operation reads and writes the whole tensor, and autograd keeps the intermediate results. The fused function makes one pass
    and keeps its input only; most of these are also safer against overflow.

    ## When this is wrong
    When the function is compiled, or exported to a runtime that lacks the fused operation.

    ## Fix safety
    No fix is offered: rounding differs in the last bits.

    ## Sources
    - [torch.nn.functional](https://docs.pytorch.org/docs/stable/nn.functional.html)
    """

    id = "PTO466"
    name = "activation-by-hand"
    family = "ops"
    most_stated = 0.4
    partly: ClassVar[frozenset[str]] = frozenset({'approximate="tanh"', "hardswish", "mish", "silu"})
    nodes = (ast.BinOp, ast.Call)
    requires = ("sigmoid", "softplus", "exp(", "tanh(", "erf(")
    when_wrong = "the function is compiled or exported"

    VALID = (
        """
        def gate(x, y):
            return y * torch.sigmoid(x)
        """,
        """
        def swish(x):
            return F.silu(x)
        """,
        """
        class NormalCdf(nn.Module):
            def forward(self, x):
                return 0.5 * (1.0 + torch.erf(x / math.sqrt(2.0)))
        """,
        """
        def approximate_cdf(x):
            cdf = 0.5 * (1.0 + torch.tanh(math.sqrt(2.0 / math.pi) * (x + 0.044715 * x**3)))
            return cdf
        """,
        """
        class Weighted(nn.Module):
            def forward(self, x, scale):
                return scale * 0.5 * (1.0 + torch.erf(x / math.sqrt(2.0)))
        """,
        """
        class NotGelu(nn.Module):
            def forward(self, x):
                return x * 0.5 * (1.0 + torch.erf(x))
        """,
        """
        class SoftTargets(nn.Module):
            def forward(self, logits, target):
                return -(target * F.log_softmax(logits, dim=1)).sum(1).mean()
        """,
        """
        class Swish(nn.Module):
            '''Stands in for `nn.SiLU` in the graph that is exported.'''

            def forward(self, x):
                return x * torch.sigmoid(x)
        """,
        """
        class Gate(nn.Module):
            def forward(self, x):
                if torch.onnx.is_in_onnx_export():
                    return x * torch.sigmoid(x)
                return F.silu(x)
        """,
        """
        def loss(x, y):
            return F.binary_cross_entropy_with_logits(x, y)
        """,
    )
    INVALID = (
        Invalid("""
            class Swish(nn.Module):
                def forward(self, x):
                    return x * torch.sigmoid(x)  # !
                    # ~ return F.silu(x)
        """),
        Invalid("""
            def loss(x: torch.Tensor, y):
                probs = torch.sigmoid(x)
                return F.binary_cross_entropy(probs, y)  # !
        """),
        Invalid("""
            def gelu(x):
                return 0.5 * x * (1.0 + torch.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))  # !
        """),
        Invalid("""
            def gelu(x: torch.Tensor):
                cdf = 0.5 * (1.0 + torch.erf(x / math.sqrt(2.0)))
                return x * cdf  # !
        """),
        Invalid("""
            class Gelu(nn.Module):
                def forward(self, x):
                    return x * (1.0 + torch.erf(x / 1.4142)) / 2.0  # !
        """),
    )

    def check(self, node: ast.AST, file: SourceFile) -> Iterator[Problem]:
        found = _product(node, file) if isinstance(node, ast.BinOp) else _call(node, file)
        if found is None or not isinstance(node, ast.expr):
            return
        name, instead, kernels = found
        if file.frequencies.of(node).often in (Often.ONCE, Often.RARELY):
            return
        function = file.index.function_of(node)
        first = function.args.args[0].arg if function is not None and function.args.args else ""
        if first == "ctx" or (function is not None and function.name == "backward"):
            return  # an autograd function has a formula of its own for the gradient
        if for_export(node, file):
            return  # spelled out because the other runtime lacks the operation
        if name == "GELU" and any(
            isinstance(a, ast.BinOp) and _product(a, file) is not None for a, _ in file.index.ancestors(node)
        ):
            return
        yield Problem(
            node,
            f"{quote(file, node, 60)} is {name}, written as {kernels} kernels that each read and write the whole tensor and keep "
            f"results for the backward pass. `{instead}` does it in one.",
            0.4,
            subject=node,
            facts={"kernels": kernels, "loss": "cross" in instead},
        )


def _product(node: ast.BinOp, file: SourceFile) -> tuple[str, str, int] | None:
    if not isinstance(node.op, (ast.Mult, ast.Div)) or file.values.of(node).kind == "array":
        return None
    if isinstance(node.op, ast.Div):
        return _gelu(node, file)
    for gate, x in ((node.right, node.left), (node.left, node.right)):
        value = value_of(gate, file)
        sigmoid = torch_op(value, file, "sigmoid")
        if sigmoid is not None and same_code(sigmoid.operand, x):
            return "SiLU", f"F.silu({file.source(x)})", 2
        tanh = torch_op(value, file, "tanh")
        soft = torch_op(tanh.operand, file, "softplus") if tanh is not None else None
        if soft is not None and same_code(soft.operand, x):
            return "Mish", f"F.mish({file.source(x)})", 3
    return _gelu(node, file)


def _gelu(node: ast.BinOp, file: SourceFile) -> tuple[str, str, int] | None:
    """GELU, when the whole product gives its values: without the factor x it is the normal distribution function."""
    parts = factors(node, file)
    gates = [value_of(part, file) for part in parts]
    inner = next(
        (
            op
            for gate in gates
            if isinstance(gate, ast.BinOp) and isinstance(gate.op, ast.Add) and _has_number_one(gate)
            for side in (gate.left, gate.right)
            if (op := torch_op(side, file, "tanh", "erf")) is not None
        ),
        None,
    )
    if inner is None:
        return None
    for x in parts:
        if not isinstance(x, ast.Constant) and is_gelu(node, x, file):
            if inner.name == "tanh":
                return "GELU", f"F.gelu({file.source(x)}, approximate='tanh')", 8
            return "GELU", f"F.gelu({file.source(x)})", 5
    return None


def _has_number_one(value: ast.BinOp) -> bool:
    return any(isinstance(s, ast.Constant) and s.value == 1 for s in (value.left, value.right))


def _call(node: ast.AST, file: SourceFile) -> tuple[str, str, int] | None:
    op = torch_op(node, file, "log", "binary_cross_entropy")
    if op is None:
        return None
    if op.name == "log":
        return _softplus(op, file)
    sigmoid = torch_op(value_of(op.operand, file), file, "sigmoid")
    if sigmoid is None or op.is_method:
        return None
    return (
        "sigmoid and binary cross entropy",
        f"F.binary_cross_entropy_with_logits({file.source(sigmoid.operand)}, …)",
        2,
    )


def _softplus(op: Op, file: SourceFile) -> tuple[str, str, int] | None:
    total = op.operand
    if not isinstance(total, ast.BinOp) or not isinstance(total.op, ast.Add) or not _has_number_one(total):
        return None
    other = total.right if isinstance(total.left, ast.Constant) else total.left
    inner = torch_op(other, file, "exp")
    if inner is None or not file.imports.qualified(op.call.func).startswith("torch") and not op.is_method:
        return None
    return "softplus", f"F.softplus({file.source(inner.operand)})", 3
