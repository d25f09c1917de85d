from __future__ import annotations

import ast
from collections.abc import Iterator

from ptopt.rules.base import Evidence, Invalid, Problem, Rule, SourceFile
from ptopt.rules.code import is_call_of, keyword_of, method_call, quote
from ptopt.rules.ops._calls import int_literal, torch_op
from ptopt.rules.shared.flow import assigned, outer_call, reads, runs_network

_REDUCTIONS = ("mean", "sum", "amax", "amin", "max", "min")
_SMALL = ("loss", ".item(", "metric", "acc")


class HeldUntilReduced(Rule):
    """All results are held in a list, and stacked, only to be summed.

    ## What it does
    Finds `sum([f(x) for x in xs])` over tensors, and `torch.stack(results).mean(0)`, `.sum(0)` and the like, where the list
    serves nothing else.

    ## Why it is slow
    All results are alive at once and the stack is a second copy of them all, although each one could be added to the sum as
    it comes. The peak grows with the number of results.

    ## Fix safety
    There is no fix: the order of the additions changes the last digits.

    ## Sources
    - [Python: generator expressions](https://docs.python.org/3/reference/expressions.html#generator-expressions)
    """

    id = "PTO816"
    name = "held-until-reduced"
    family = "memory"
    most_stated = 0.4
    nodes = (ast.Call,)
    calls = frozenset({"sum", "stack"})
    when_wrong = "autograd records the results, so that they are kept anyway"

    VALID = (
        """
        total = sum(model(x) for x in crops)
        """,
        """
        losses = torch.stack([loss_fn(h, y) for h in heads]).mean()
        """,
        """
        outs = torch.stack([model(x) for x in crops])
        mean, std = outs.mean(0), outs.std(0)
        """,
    )
    INVALID = (
        Invalid("""
            def predict(self, x, axes):
                return sum([torch.flip(self.network(torch.flip(x, a)), a) for a in axes]) / len(axes)  # !
                # ~ return sum(torch.flip(self.network(torch.flip(x, a)), a) for a in axes) / len(axes)
        """),
        Invalid("""
            @torch.no_grad()
            def ensemble(models, x):
                return torch.stack([model(x) for model in models]).mean(dim=0)  # !
        """),
        Invalid("""
            @torch.no_grad()
            def average(model, crops):
                outputs = []
                for crop in crops:
                    outputs.append(model(crop))
                stacked = torch.stack(outputs, dim=0)  # !
                return torch.mean(stacked, dim=0)
        """),
    )

    def check(self, node: ast.AST, file: SourceFile) -> Iterator[Problem]:
        if not isinstance(node, ast.Call) or not node.args:
            return
        held: ast.expr = node.args[0]
        if is_call_of(node, "sum") and not file.imports.qualified(node.func):
            if not isinstance(held, ast.ListComp) or not _is_large(held.elt, file):
                return
            text = "a generator, `sum(… for …)`, adds each one as it comes"
            reduction: ast.AST = node
        elif file.imports.qualified(node.func) == "torch.stack":
            dim = int_literal(
                keyword_of(node, "dim") or (node.args[1] if len(node.args) > 1 else ast.Constant(0))
            )
            if dim != 0:
                return
            found = _reduced(node, file)
            if found is None or not _fits(held, node, file):
                return
            reduction, text = found, "keep one running result instead of the list"
        else:
            return
        no_grad = file.context.grad_off(node)
        yield Problem(
            node,
            f"All tensors of {quote(file, held, 40)} are held at once only to be reduced to one on line "
            f"{getattr(reduction, 'lineno', node.lineno)}; {text}, and the peak is that of one.",
            0.4 if no_grad else 0.35,
            (Evidence(reduction.lineno, "reduced"),) if getattr(reduction, "lineno", 0) > node.lineno else (),  # type: ignore[attr-defined]
            subject=held,
            facts={"no_grad": no_grad, "stacked": reduction is not node},
        )


def _is_large(expr: ast.expr, file: SourceFile) -> bool:
    """Does the element come from a module or a torch function, and is no loss or metric?"""
    text = file.source(expr).lower()
    if not isinstance(expr, ast.Call) or any(word in text for word in _SMALL):
        return False
    if isinstance(expr.func, ast.Attribute) and expr.func.attr in (*_REDUCTIONS, "norm", "numel", "size"):
        return False
    kind = file.values.of(expr).kind
    return kind == "tensor" or (not kind and runs_network(expr, file))


def _fits(held: ast.expr, node: ast.Call, file: SourceFile) -> bool:
    """Is what is stacked a list of results that serves nothing else?"""
    if isinstance(held, ast.ListComp):
        return _is_large(held.elt, file)
    if not isinstance(held, ast.Name):
        return False
    function = file.index.function_of(node)
    loads = file.uses.loads(function, held.id)
    appends = [call for load in loads if (call := outer_call(load, file)) is not None]
    return (
        len(loads) == len(appends) + 1
        and bool(appends)
        and all(method_call(a, "append") and a.args and _large_value(a.args[0], file) for a in appends)
    )


def _large_value(expr: ast.expr, file: SourceFile) -> bool:
    if not isinstance(expr, ast.Name):
        return _is_large(expr, file)
    value = assigned(expr, file)
    named_small = any(word in expr.id.lower() for word in _SMALL)
    return not named_small and value is not None and _is_large(value, file)


def _reduced(stack: ast.Call, file: SourceFile) -> ast.AST | None:
    """The reduction over the first dimension that is all that the stack serves."""
    uses = reads(stack, file)
    if len(uses) != 1:
        return None
    op = torch_op(outer_call(uses[0], file), file, *_REDUCTIONS) or torch_op(
        file.index.parent(uses[0]), file, *_REDUCTIONS
    )
    if op is None or op.operand is not uses[0] or op.rest and op.name in ("max", "min") and not op.is_method:
        return None
    return op.call if int_literal(op.argument(0, "dim", "axis")) == 0 else None
