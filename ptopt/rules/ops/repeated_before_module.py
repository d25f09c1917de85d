from __future__ import annotations

import ast
from collections.abc import Iterator

from ptopt.rules.base import Invalid, Problem, Rule, SourceFile
from ptopt.rules.code import beside, quote
from ptopt.rules.ops._calls import int_literal
from ptopt.rules.ops._pure import is_module_call
from ptopt.rules.shared.flow import runs_network, value_of
from ptopt.source.bindings import is_self
from ptopt.source.calls import called_name
from ptopt.source.frequency import Often

_REPEATS = frozenset("repeat repeat_interleave expand tile expand_as".split())


class RepeatedBeforeModule(Rule):
    """A network runs on copies of the same samples.

    ## What it does
    Finds a network or a submodule whose only operand is `x.repeat(...)`, `x.repeat_interleave(...)`, `x.expand(...)` or
    `torch.cat([x, x])`.

    ## Why it is slow
    Equal rows give equal results: with n copies the network does n times the work, and keeps n times the activations.
    The small result can be repeated instead, often as a view.

    ## Fix safety
    No fix is offered: the result may be a structure.

    ## Sources
    - [torch.repeat_interleave](https://docs.pytorch.org/docs/stable/generated/torch.repeat_interleave.html)
    """

    id = "PTO462"
    name = "repeated-before-module"
    family = "ops"
    most_stated = 0.4
    nodes = (ast.Call,)
    requires = ("repeat", "expand", "tile", "cat(")
    when_wrong = "the network draws random numbers, or mixes the samples of a batch"

    VALID = (
        """
        class Grey(nn.Module):
            def __init__(self):
                self.encoder = nn.Conv2d(3, 8, 3)

            def forward(self, x):
                return self.encoder(x.repeat_interleave(3, 1))
        """,
        """
        class Gate(nn.Module):
            def __init__(self):
                self.pooled = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.BatchNorm2d(8))

            def forward(self, x):
                if x.shape[0] == 1:
                    x2 = torch.cat([x, x], dim=0)
                    return self.pooled(x2)[:1]
                return self.pooled(x)
        """,
        """
        class Model(nn.Module):
            def __init__(self):
                self.encoder = nn.Linear(8, 8)

            def forward(self, x):
                return self.encoder(x).repeat_interleave(4, dim=0)
        """,
        """
        class Model(nn.Module):
            def forward(self, x, noise):
                return self.decoder(x.repeat(4, 1), noise)
        """,
        """
        def forward(x):
            return torch.relu(x.repeat(4, 1))
        """,
    )
    INVALID = (
        Invalid("""
            class Model(nn.Module):
                def __init__(self):
                    self.encoder = nn.Linear(8, 8)

                def forward(self, x, beams):
                    return self.encoder(x.repeat_interleave(beams, dim=0))  # !
                    # ~ return self.encoder(x).repeat_interleave(beams, dim=0)
        """),
        Invalid("""
            class Model(nn.Module):
                def __init__(self):
                    self.proj = nn.Linear(8, 8)

                def forward(self, x, n):
                    x = x.unsqueeze(1).expand(-1, n, -1)
                    return self.proj(x)  # !
        """),
        Invalid("""
            class Model(nn.Module):
                def __init__(self):
                    self.text_model = nn.Linear(8, 8)

                def encode(self, tokens):
                    return self.text_model(torch.cat([tokens, tokens]))  # !
        """),
    )

    def check(self, node: ast.AST, file: SourceFile) -> Iterator[Problem]:
        if not isinstance(node, ast.Call) or len(node.args) != 1 or node.keywords:
            return
        copied = value_of(node.args[0], file)
        source = _copied(copied, file)
        if source is None or not (is_module_call(node, file) or runs_network(node, file)):
            return
        if isinstance(source, ast.Attribute) and is_self(source) or called_name(node)[:1].isupper():
            return  # learned queries: one row that stands for itself
        if file.frequencies.of(node).often in (Often.ONCE, Often.RARELY) or _batch_of_one(
            copied, source, file
        ):
            return
        yield Problem(
            node,
            f"{quote(file, node.func, 30)} runs on copies of the same rows ({quote(file, copied, 50)}). Run it on {quote(file, source, 30)} "
            "once, and repeat or `expand` its result.",
            0.4,
            beside(node, copied, "the copies"),
            subject=source,
            facts={
                "module": is_module_call(node, file),
                "cat": called_name(copied) == "cat" if isinstance(copied, ast.Call) else 0,
            },
        )


def _batch_of_one(copied: ast.expr, source: ast.expr, file: SourceFile) -> bool:
    """Is it doubled where its batch is one: batch norm needs more than one value of each channel?"""
    name = file.source(source)
    return any(
        isinstance(around, ast.If)
        and any(name + shape in file.source(around.test) for shape in (".shape[0]", ".size(0)"))
        for around, _ in file.index.ancestors(copied)
    )


def _copied(expr: ast.expr, file: SourceFile) -> ast.expr | None:
    """What the expression holds several copies of, along a dimension that is not the last."""
    if not isinstance(expr, ast.Call) or not isinstance(expr.func, ast.Attribute):
        return None
    name = called_name(expr)
    if name in ("cat", "concat") and file.imports.qualified(expr.func).startswith("torch.") and expr.args:
        axis = [*expr.args[1:], *(k.value for k in expr.keywords if k.arg in ("dim", "axis"))]
        if axis and int_literal(axis[0]) != 0:
            return None
        parts = expr.args[0]
        if isinstance(parts, (ast.List, ast.Tuple)) and len(parts.elts) > 1:
            return parts.elts[0] if len({ast.dump(p) for p in parts.elts}) == 1 else None
        if (
            isinstance(parts, ast.BinOp)
            and isinstance(parts.op, ast.Mult)
            and isinstance(parts.left, ast.List)
        ):
            return parts.left.elts[0] if len(parts.left.elts) == 1 else None
        return None
    if name not in _REPEATS or not expr.args or any(isinstance(a, ast.Starred) for a in expr.args):
        return None
    if name == "repeat_interleave":
        axis = [*expr.args[1:2], *(k.value for k in expr.keywords if k.arg == "dim")]
        if not axis or int_literal(axis[0]) != 0:
            return None  # channels are copied
    if name in ("repeat", "expand", "tile"):
        last = expr.args[-1]
        sizes = [int_literal(a) for a in expr.args]
        if int_literal(last) not in (1, -1) or all(s in (1, -1) for s in sizes):
            return None  # channels are copied, or nothing is
    source: ast.expr = expr.func.value
    while (
        isinstance(source, ast.Call)
        and isinstance(source.func, ast.Attribute)
        and called_name(source)
        in (
            "unsqueeze",
            "view",
            "contiguous",
            "to",
        )
    ):
        source = source.func.value
    return source
