from __future__ import annotations

import ast
from collections.abc import Iterator

from ptopt.rules.base import TEXTBOOK, Fix, Invalid, Problem, Rule, Safety, SourceFile
from ptopt.rules.code import quote, replace_node
from ptopt.rules.ops._pure import cost
from ptopt.rules.ops._wasted import works_in
from ptopt.source.calls import called_name
from ptopt.source.frequency import Often
from ptopt.source.index import children_of
from ptopt.source.torch_names import TENSOR_FACTORIES

_READ_AS = frozenset({"int", "float", "bool"})


class DefaultComputedEagerly(Rule):
    """A default value is computed on every call, also where it is not needed.

    ## What it does
    Finds `d.get(key, default)`, `getattr(x, "name", default)` and `default(x, default)` in code that runs for each batch, where
    the default is read from the device, or computed by a network or an operation on tensors.

    ## Why it is slow
    Python computes the arguments before the call. Where the value is there, the default is computed and thrown away, and where it
    is a number that is read from the device, Python waits for the GPU.

    ## Fix safety
    Unsafe: the receiver must be a dictionary, or what is computed must not have an effect that is wanted in any case.

    ## Sources
    - [Python documentation: calls](https://docs.python.org/3/reference/expressions.html#calls)
    """

    id = "PTO491"
    name = "default-computed-eagerly"
    family = "ops"
    nodes = (ast.Call,)
    calls = frozenset({"get", "getattr", "default"})
    when_wrong = "the value is hardly ever there"

    VALID = (
        """
        def forward(self, batch, counts: torch.Tensor):
            total = batch.get("total", 0)
            return batch.get("other", counts), total
        """,
        """
        def forward(self, x, mask=None):
            return x * default(mask, lambda: torch.ones_like(x))
        """,
        """
        class Model(nn.Module):
            def __init__(self, config, weights: torch.Tensor):
                super().__init__()
                self.total = config.get("total", int(weights.sum()))
        """,
    )
    INVALID = (
        Invalid("""
            class Model(nn.Module):
                def forward(self, batch, counts: torch.Tensor):
                    total = batch.get("total", int(counts.sum()))  # !
                    # + total = batch["total"] if "total" in batch else int(counts.sum())
                    return self.layer(counts, total)
        """),
        Invalid("""
            class Loss(nn.Module):
                def forward(self, latent, image=None):
                    image = default(image, self.decoder(latent))  # !
                    # + image = image if image is not None else self.decoder(latent)
                    return self.lpips(image)
        """),
        Invalid("""
            class Attention(nn.Module):
                def forward(self, x, options):
                    scale = getattr(options, "scale", torch.matmul(x, x).softmax(-1))  # !
                    # + scale = options.scale if hasattr(options, "scale") else torch.matmul(x, x).softmax(-1)
                    return x * scale
        """),
    )

    def check(self, node: ast.AST, file: SourceFile) -> Iterator[Problem]:
        if not isinstance(node, ast.Call) or node.keywords or len(node.args) not in (2, 3):
            return
        default = _default_of(node)
        if default is None or isinstance(default, (ast.Constant, ast.Name, ast.Attribute, ast.Lambda)):
            return
        found = _costs(default, file)
        if found is None:
            return
        frequency = file.frequencies.of(node)
        if frequency.often < Often.EVALUATION:
            return
        what, part, prior = found
        yield Problem(
            node,
            f"{quote(file, part)} {what} {frequency.reason}, also where the default is not needed: Python computes the arguments "
            "before the call. Compute it only where the value is missing.",
            prior,
            fix=_fix(node, default, file),
            subject=default,
            facts={"waits": what.startswith("waits"), "network": what == "runs"},
        )


def _default_of(call: ast.Call) -> ast.expr | None:
    name = called_name(call)
    if isinstance(call.func, ast.Attribute):
        return call.args[1] if name == "get" and len(call.args) == 2 else None
    if name == "getattr":
        return call.args[2] if len(call.args) == 3 else None
    return call.args[1] if name == "default" and len(call.args) == 2 else None


def _costs(default: ast.expr, file: SourceFile) -> tuple[str, ast.Call, float] | None:
    """What the default does, which part of it does so, and how sure it is that this is worth a comment."""
    calls = [n for n in _evaluated(default) if isinstance(n, ast.Call)]
    for call in calls:
        read = call.args[0] if called_name(call) in _READ_AS and len(call.args) == 1 else call
        on_host = file.values.of(read).device == "cpu" if read is not call else False
        if not on_host and file.waits.is_wait(call):
            return "waits for the device", call, 0.75
    works = [work for work in works_in(default, file) if work.kind != "host"]
    if works:
        return "runs", works[0].call, TEXTBOOK
    for call in calls:
        if cost(call, file) > 1:
            return "is computed", call, 0.5
    for call in calls:
        made = file.imports.qualified(call.func)
        if made.startswith("torch.") and called_name(call) in TENSOR_FACTORIES and _is_sized(call):
            return "is made", call, 0.4
    return None


def _is_sized(call: ast.Call) -> bool:
    """Is it a tensor of a size that the code computes, not `torch.tensor(0)` or `torch.empty(0)`?"""
    if called_name(call) in ("tensor", "as_tensor", "Tensor", "scalar_tensor"):
        return False
    return not all(isinstance(argument, (ast.Constant, ast.List)) for argument in call.args)


def _evaluated(expr: ast.AST) -> Iterator[ast.AST]:
    """The nodes that are evaluated with the expression: not those in a lambda."""
    if not isinstance(expr, ast.Lambda):
        yield expr
        for child in children_of(expr):
            yield from _evaluated(child)


def _fix(call: ast.Call, default: ast.expr, file: SourceFile) -> Fix | None:
    """The conditional expression that asks first; None where a part of it would be evaluated twice."""
    subject = call.func.value if isinstance(call.func, ast.Attribute) else call.args[0]
    if not isinstance(subject, (ast.Name, ast.Attribute)) or isinstance(default, (ast.IfExp, ast.Starred)):
        return None
    of, other = file.source(subject), file.source(default)
    key = call.args[0] if isinstance(call.func, ast.Attribute) else call.args[1]
    name = called_name(call)
    if name == "default":
        text = f"{of} if {of} is not None else {other}"
    elif not isinstance(key, ast.Constant) or not isinstance(key.value, str):
        return None
    elif name == "getattr":
        text = f"{of}.{key.value} if hasattr({of}, {file.source(key)}) else {other}"
    else:
        text = f"{of}[{file.source(key)}] if {file.source(key)} in {of} else {other}"
    bare = isinstance(file.index.parent(call), (ast.Assign, ast.AnnAssign, ast.Return, ast.keyword))
    text = text if bare else f"({text})"
    return Fix(
        Safety.UNSAFE,
        (replace_node(file, call, text),),
        "what is asked is a dictionary or an object without defaults of its own",
    )
