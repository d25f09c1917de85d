from __future__ import annotations

import ast
from collections.abc import Iterator

from ptopt.rules.base import Fix, Invalid, Problem, Rule, Safety, Severity, SourceFile
from ptopt.rules.code import replace_node


class GradientsZeroedByHand(Rule):
    """The gradients of parameters are filled with zeros one by one.

    ## What it does
    Finds `p.grad.zero_()` (also `.data.zero_()`, `.detach_()` and `fill_(0)`) in a loop over parameters.

    ## Why it is slow
    One kernel per parameter writes zeros, the gradients stay in memory during the forward pass, and the backward
    pass reads them to add to them. With `p.grad = None` the memory is released and the backward pass stores its result.

    ## Fix safety
    Unsafe: optimizers skip a parameter whose gradient is None.

    ## Sources
    - [PyTorch performance tuning guide](https://docs.pytorch.org/tutorials/recipes/recipes/tuning_guide.html)
    """

    id = "PTO730"
    name = "gradients-zeroed-by-hand"
    family = "optim"
    severity = Severity.LOW
    most_stated = 0.45
    triggers = ("zero_", "fill_")
    requires = ("grad",)
    nodes = (ast.Call,)
    calls = frozenset({"zero_", "fill_"})
    when_wrong = "something reads the zeros: a hook, a captured graph, momentum of unused parameters"

    VALID = (
        """
        for p in model.parameters():
            p.grad = None
        """,
        "x.grad.zero_()",
        """
        for p in model.parameters():
            p.data.zero_()
        """,
    )
    INVALID = (
        Invalid("""
            for p in model.parameters():
                if p.grad is not None:
                    p.grad.zero_()  # !
                    # + p.grad = None
        """),
        Invalid("""
            def zero_grad(self):
                for group in self.param_groups:
                    for p in group["params"]:
                        p.grad.data.zero_()  # !
                        # + p.grad = None
        """),
        Invalid("""
            for name, p in net.named_parameters():
                p.grad.data.fill_(0)  # !
                # + p.grad = None
        """),
    )

    def check(self, node: ast.AST, file: SourceFile) -> Iterator[Problem]:
        if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
            return
        if node.func.attr == "fill_" and not (
            node.args and isinstance(node.args[0], ast.Constant) and node.args[0].value == 0
        ):
            return
        held: ast.expr = node.func.value
        while isinstance(held, (ast.Attribute, ast.Call)) and not _is_grad(held):
            if isinstance(held, ast.Attribute) and held.attr not in ("data", "detach", "detach_"):
                return  # another tensor
            held = held.func if isinstance(held, ast.Call) else held.value
        loop = next(file.index.loops_of(node), None)
        if not isinstance(held, ast.Attribute) or not isinstance(held.value, ast.Name):
            return
        if not isinstance(loop, ast.For) or not any(
            isinstance(n, ast.Name) and n.id == held.value.id for n in ast.walk(loop.target)
        ):
            return
        function = file.index.function_of(node)
        if function is not None and "set_to_none" in file.source(function):
            return  # a choice of the caller
        grad = file.source(held)
        alone = isinstance(file.index.parent(node), ast.Expr)
        yield Problem(
            node,
            f"One kernel for each parameter fills `{grad}` with zeros, which the backward pass then reads to add to "
            f"them. Release it: `{grad} = None`.",
            0.45,
            fix=Fix(Safety.UNSAFE, (replace_node(file, node, f"{grad} = None"),), "nothing reads the zeros")
            if alone
            else None,
            cause=loop,
            facts={"in_method_zero_grad": float("zero_grad" in file.index.symbol_of(node))},
        )


def _is_grad(node: ast.expr) -> bool:
    return isinstance(node, ast.Attribute) and node.attr == "grad"
