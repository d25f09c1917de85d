from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping
from typing import ClassVar

from ptopt.rules.base import Evidence, Invalid, Problem, Rule, Severity, SourceFile, Span
from ptopt.rules.code import quote
from ptopt.rules.optim.ema_update_allocates import EmaUpdateAllocates
from ptopt.source.index import own_nodes

_PARAMETERS = re.compile(
    r"parameters\(|param_groups|state_dict\(\)|\bparams?\b|_params\b|\bgrads?\b|_grads\b|\[.params.\]|buffers\("
)
# In-place methods -> the call on lists that does the same.
_FOREACH = {
    name: f"torch._foreach_{name}"
    for name in (
        "mul_ add_ sub_ div_ lerp_ copy_ zero_ addcmul_ addcdiv_ clamp_min_ clamp_max_ sqrt_ neg_ abs_ exp_ sign_ pow_".split()
    )
} | {"clamp_": "torch._foreach_clamp_min_` and `torch._foreach_clamp_max_"}
_NORMS = frozenset({"norm", "vector_norm", "abs", "isnan", "isfinite", "isinf"})
_SET_UP = re.compile(r"\binit\.|xavier|kaiming|orthogonal|requires_grad|bernoulli_|normal_\(|uniform_\(")
_EMA = EmaUpdateAllocates()


class KernelPerParameter(Rule):
    """Every parameter or gradient gets small kernels of its own in a Python loop.

    ## What it does
    Finds loops over parameters, gradients or state dictionaries whose body updates each tensor in place (`mul_`, `add_`,
    `lerp_`, `copy_`, …) or takes its norm.

    ## Why it is slow
    A model has hundreds of parameters, most of them small, so launches and Python dominate. The `torch._foreach_*` functions
    do the same to a whole list in a few kernels.

    ## Fix safety
    None: the lists are best built once, outside of the step.

    ## Sources
    - [torch.optim.Optimizer: foreach](https://docs.pytorch.org/docs/stable/optim.html)
    """

    id = "PTO444"
    name = "kernel-per-parameter"
    family = "optim"
    since: ClassVar[Mapping[str, str]] = {"torch": "2.1"}
    severity = Severity.LOW
    most_stated = 0.4
    triggers = ("param", "grad", "state_dict")
    requires = tuple(f"{name}(" for name in (*_FOREACH, "norm"))
    partly: ClassVar[frozenset[str]] = frozenset({"get_total_norm"})
    nodes = (ast.For,)
    when_wrong = "the loop runs once, or the tensors differ in device or type and so are not fused"

    VALID = (
        """
        for p in model.parameters():
            p.requires_grad_(False)
        """,
        """
        for p in model.parameters():
            nn.init.normal_(p)
        """,
        """
        torch._foreach_lerp_(list(ema.parameters()), list(model.parameters()), 1 - decay)
        """,
    )
    INVALID = (
        Invalid("""
            for p_ema, p in zip(ema.parameters(), model.parameters()):  # !
            # ~ torch._foreach_lerp_(list(ema.parameters()), list(model.parameters()), 1 - decay)
                p_ema.lerp_(p, 1 - decay)
                # ~
        """),
        Invalid("""
            def update_ema(ema_model, model, decay):
                ema_params = OrderedDict(ema_model.named_parameters())
                model_params = OrderedDict(model.named_parameters())
                for name, param in model_params.items():  # !
                    ema_params[name].mul_(decay).add_(param.data, alpha=1 - decay)
        """),
        Invalid("""
            total = 0.0
            for p in model.parameters():  # !
                if p.grad is not None:
                    total += p.grad.norm(2).item() ** 2
        """),
        Invalid("""
            for group in optimizer.param_groups:
                for p in group["params"]:  # !
                    p.grad.mul_(clip)
        """),
    )

    def check(self, node: ast.AST, file: SourceFile) -> Iterator[Problem]:
        if not isinstance(node, ast.For) or "_foreach_" in file.text:
            return
        iterable = file.source(node.iter)
        if not _PARAMETERS.search(iterable) or any(isinstance(n, ast.For) for n in own_nodes(node)):
            return
        text = "\n".join(file.source(stmt) for stmt in node.body)
        if _SET_UP.search(text) or ".remove_" in text:
            return
        names = {n.id for n in own_nodes(node) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
        updates, norms = _kernels(node, names, file)
        if not updates and not norms:
            return
        if any(
            True
            for n in own_nodes(node)
            if isinstance(n, (ast.Assign, ast.Expr))
            for _ in _EMA.check(n, file)
        ):
            return
        first = (updates or norms)[0]
        method = first.func.attr if isinstance(first.func, ast.Attribute) else ""
        if updates:
            does = f"updates one tensor at a time ({quote(file, first, 50)})"
            instead = f"Collect the tensors in lists once, and call `{_FOREACH[method]}` on the lists."
        else:
            does = f"reduces one tensor at a time ({quote(file, first, 50)})"
            of_all = (
                "`torch.nn.utils.get_total_norm(grads)` gives the norm of all gradients in a few kernels "
                "(`clip_grad_norm_` returns it, too)"
                if file.facts.has("get_total_norm")
                else "`clip_grad_norm_` returns the norm of all gradients, in a few kernels"
            )
            instead = f"{of_all}; `torch._foreach_norm(tensors)` gives one for each."
        reads = sum(
            isinstance(n, ast.Call) and isinstance(n.func, ast.Attribute) and n.func.attr == "item"
            for n in own_nodes(node)
        )
        yield Problem(
            node,
            f"The loop over {quote(file, node.iter, 50)} {does}, so each gets kernels of its own, most of them tiny. {instead}",
            0.4,
            (Evidence(first.lineno, "launches kernels for one parameter at a time"),),
            cause=node,
            span=Span(node.lineno, node.lineno),
            at=first,
            facts={
                "kernels": len(updates) + len(norms),
                "updates": len(updates),
                "reads": reads,
                "statements": len(node.body),
                "average": float(_averages(updates)),
            },
        )


def _kernels(loop: ast.For, names: set[str], file: SourceFile) -> tuple[list[ast.Call], list[ast.Call]]:
    """(In-place updates, norms) of what the loop gives, one tensor each."""
    updates, norms = [], []
    for node in own_nodes(loop):
        if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
            continue
        if file.values.of(node.func.value).device == "cpu":
            continue  # a copy on the host
        if node.func.attr in _FOREACH and (_root(node.func.value) in names or _key(node.func.value) in names):
            updates.append(node)
        elif node.func.attr in _NORMS and (
            _root(node.func.value) in names or any(_root(arg) in names for arg in node.args)
        ):
            norms.append(node)
    return updates, [
        n for n in norms if isinstance(n.func, ast.Attribute) and n.func.attr in ("norm", "vector_norm")
    ]


def _averages(updates: list[ast.Call]) -> bool:
    """Is it a moving average: `lerp_`, or `mul_` and then `add_` with a factor?"""
    methods = {call.func.attr: call for call in updates if isinstance(call.func, ast.Attribute)}
    added = methods.get("add_")
    scaled = added is not None and (len(added.args) > 1 or any(k.arg == "alpha" for k in added.keywords))
    return "lerp_" in methods or ("mul_" in methods and scaled)


def _key(expr: ast.expr) -> str:
    """`name` of `averages[name].mul_(decay)`."""
    while isinstance(expr, ast.Attribute) or (
        isinstance(expr, ast.Call) and isinstance(expr.func, ast.Attribute)
    ):
        expr = expr.func if isinstance(expr, ast.Call) else expr.value
    return expr.slice.id if isinstance(expr, ast.Subscript) and isinstance(expr.slice, ast.Name) else ""


def _root(expr: ast.expr) -> str:
    while True:
        if isinstance(expr, (ast.Attribute, ast.Subscript)):
            expr = expr.value
        elif isinstance(expr, ast.Call) and isinstance(expr.func, ast.Attribute):
            expr = expr.func.value
        else:
            return expr.id if isinstance(expr, ast.Name) else ""
