from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from ptopt.rules.base import Evidence, Invalid, Problem, Rule, SourceFile
from ptopt.rules.code import quote
from ptopt.source.calls import last_name
from ptopt.source.file import remembered
from ptopt.source.index import FunctionNode, own_nodes, walk

_NUMBER = re.compile(
    r"^[A-Z]$|step|size|num|enabled|flag|dim|stride|padding|kernel|^eps|group|mode|dtype|shape|training|device|len",
    re.I,
)
_SIZES = frozenset(
    "shape size stride device dtype dim numel ndim item is_cuda requires_grad needs_input_grad".split()
)


class TensorKeptOnContext(Rule):
    """An autograd function keeps a tensor as an attribute of its context.

    ## What it does
    Finds `ctx.name = tensor` in the `forward` of a `torch.autograd.Function`.

    ## Why it is slow
    What `save_for_backward` keeps is freed as soon as this node's backward has run. An attribute lives until the whole graph is
    dropped, through the backward of all other layers; an attribute that holds an output is a reference cycle besides.

    ## Fix safety
    There is no fix: backward has to read `ctx.saved_tensors`.

    ## Sources
    - [Extending PyTorch: how to save tensors](https://docs.pytorch.org/docs/stable/notes/extending.html)
    """

    id = "PTO580"
    name = "tensor-kept-on-context"
    family = "autograd"
    most_stated = 0.5
    triggers = ("Function",)
    nodes = (ast.Assign,)
    when_wrong = "the tensor is tiny, or something else reads the attribute"

    VALID = (
        """
        class Nearest(torch.autograd.Function):
            @staticmethod
            def forward(ctx, points):
                index = points.argmin(dim=1)
                ctx.mark_non_differentiable(index)
                ctx.index = index
                return index
        """,
        """
        class Scale(torch.autograd.Function):
            @staticmethod
            def forward(ctx, x, factor):
                ctx.save_for_backward(x)
                ctx.factor = factor
                return x * factor
        """,
        """
        class Reshape(torch.autograd.Function):
            @staticmethod
            def forward(ctx, x):
                ctx.shape = x.shape
                return x.flatten()
        """,
        """
        class Layer(nn.Module):
            def forward(self, x):
                self.last = x
                return x.relu()
        """,
    )
    INVALID = (
        Invalid("""
            class Square(torch.autograd.Function):
                @staticmethod
                def forward(ctx, x: torch.Tensor):
                    ctx.squared = x.pow(2)  # !
                    # ~ squared = x.pow(2)
                    # ~ ctx.save_for_backward(squared)
                    return ctx.squared + 1
                    # ~ return squared + 1
        """),
        Invalid("""
            class Softmax(torch.autograd.Function):
                @staticmethod
                def forward(ctx, graph, scores):
                    out = torch.softmax(scores, -1)
                    ctx.cache = (graph, out)  # !
                    return out
        """),
        Invalid("""
            class Mask(torch.autograd.Function):
                @staticmethod
                def forward(ctx, x: torch.Tensor, limit):
                    ctx.mask = x > limit  # !
                    return x.clamp(max=limit)
        """),
    )

    def check(self, node: ast.AST, file: SourceFile) -> Iterator[Problem]:
        function = file.index.function_of(node)
        if not isinstance(node, ast.Assign) or function is None or not _is_forward(function, file):
            return
        context = function.args.args[0].arg
        target = node.targets[0]
        if (
            not isinstance(target, ast.Attribute)
            or not isinstance(target.value, ast.Name)
            or target.value.id != context
        ):
            return
        parts = node.value.elts if isinstance(node.value, (ast.Tuple, ast.List)) else [node.value]
        outputs = _outputs(function)
        inputs = {a.arg for a in function.args.args[1:]}
        held = next((p for p in parts if _is_tensor(p, outputs, file)), None)
        if held is None or _is_marked(held, function):
            return
        output = isinstance(held, ast.Name) and held.id in outputs - inputs
        more = (
            " It is an output, so that graph and tensor refer to each other and only the garbage collector frees them."
            if output
            else ""
        )
        yield Problem(
            node,
            f"{quote(file, node, 50)} keeps a tensor until the whole graph is dropped, where `{context}.save_for_backward(…)` frees it "
            f"as soon as this backward has run.{more} Pass {quote(file, held, 40)} to `{context}.save_for_backward` and read "
            f"`{context}.saved_tensors` in `backward`.",
            0.5 if output else 0.4,
            (Evidence(function.lineno, "`forward` of an autograd function"),),
            cause=function,
            subject=held,
            facts={
                "output": output,
                "input": isinstance(held, ast.Name) and held.id in inputs,
                "tuple": len(parts) > 1,
            },
        )


def _is_forward(function: FunctionNode, file: SourceFile) -> bool:
    cls = file.index.parent(function)
    if (
        not isinstance(cls, ast.ClassDef)
        or function.name not in ("forward", "setup_context")
        or not function.args.args
    ):
        return False
    return any(last_name(base) in ("Function", "InplaceFunction") for base in cls.bases)


@remembered
def _outputs(function: FunctionNode) -> frozenset[str]:
    """The names that the function returns as they are."""
    values = (n.value for n in own_nodes(function) if isinstance(n, ast.Return))
    parts = (p for value in values for p in (value.elts if isinstance(value, ast.Tuple) else [value]))
    return frozenset(p.id for p in parts if isinstance(p, ast.Name))


def _is_marked(held: ast.expr, function: FunctionNode) -> bool:
    """Is it an output without a gradient? It holds no graph, and save_for_backward would gain nothing."""
    return isinstance(held, ast.Name) and any(
        isinstance(node, ast.Call)
        and last_name(node.func) == "mark_non_differentiable"
        and any(isinstance(arg, ast.Name) and arg.id == held.id for arg in node.args)
        for node in own_nodes(function)
    )


def _is_tensor(value: ast.expr, outputs: frozenset[str], file: SourceFile) -> bool:
    if any(isinstance(n, ast.Attribute) and n.attr in _SIZES for n in walk(value)):
        return False
    if isinstance(value, ast.Call) and last_name(value.func).startswith(("is_", "new_empty")):
        return False
    if isinstance(value, ast.Name):
        if _NUMBER.search(value.id):
            return False
        if value.id in outputs:
            return True
    return file.values.is_tensor(value)
