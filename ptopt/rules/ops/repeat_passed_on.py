from __future__ import annotations

import ast
from collections.abc import Iterator

from ptopt.rules.base import Invalid, Problem, SourceFile
from ptopt.rules.code import quote
from ptopt.rules.ops._calls import int_literal, runs_once
from ptopt.rules.ops.repeat_for_broadcast import RepeatForBroadcast
from ptopt.rules.shared.calls import CallRule, ResolvedCall
from ptopt.rules.shared.flow import added_dimension
from ptopt.source.frequency import Often

_OWN = RepeatForBroadcast()
_WRITES = frozenset({"append", "copy_", "Parameter", "cat", "numpy", "view", "save"})


class RepeatPassedOn(CallRule):
    """A tensor of size 1 in a dimension is copied once per batch entry and passed on.

    ## What it does
    Finds `x.unsqueeze(1).repeat(1, n, 1)`, `self.query[None].repeat(n, 1, 1)` and `self.token.repeat(n, 1, 1)` of a parameter with a leading
    dimension of 1, that is an argument of a call or given to a name that nothing writes to.

    ## Why it is slow
    `repeat` writes n copies of the same values to memory, and they are read back. `expand` is a view with stride 0 that every operation
    which only reads takes as well.

    ## Fix safety
    There is no fix: what the callee does with the copies must be seen.

    ## Sources
    - [torch.Tensor.expand](https://docs.pytorch.org/docs/stable/generated/torch.Tensor.expand.html)
    """

    id = "PTO486"
    name = "repeat-passed-on"
    family = "ops"
    most_stated = 0.4
    methods = frozenset({"repeat"})
    at_least = Often.EVALUATION
    when_wrong = "the copies are written to, or viewed across the repeated dimension"

    VALID = (
        """
        def forward(self, x, embedding: torch.Tensor, n):
            embedding = embedding.unsqueeze(2).repeat(1, 1, n, 1)
            embedding = embedding.flatten(1, 2)
            return self.norm(x + embedding)
        """,
        """
        def forward(self, x):
            return self.body(x, self.query.expand(x.size(0), -1, -1))
        """,
        """
        def tiled(x: torch.Tensor):
            return x.repeat(1, 3, 1, 1)
        """,
        """
        def forward(self, x):
            y = x.unsqueeze(1).repeat(1, 4, 1)
            y[:, 0] = 0
            return y
        """,
    )
    INVALID = (
        Invalid("""
            class Decoder(nn.Module):
                def forward(self, x, batch):
                    queries = self.query.weight.unsqueeze(1).repeat(1, batch, 1)  # !
                    # ~ queries = self.query.weight.unsqueeze(1).expand(-1, batch, -1)
                    return self.transformer(x, queries)
        """),
        Invalid("""
            class Head(nn.Module):
                def forward(self, x):
                    return self.attend(x, self.prompt.unsqueeze(0).repeat(x.size(0), 1, 1))  # !
        """),
        Invalid("""
            class Net(nn.Module):
                def forward(self, x: torch.Tensor, text: torch.Tensor):
                    words = text[:, None].repeat(1, x.shape[1], 1)  # !
                    return self.fuse(x, words)
        """),
    )

    def check_call(self, call: ResolvedCall) -> Iterator[Problem]:
        node, file = call.node, call.file
        if (
            not isinstance(node.func, ast.Attribute)
            or node.keywords
            or len(node.args) < 2
            or runs_once(node, file)
        ):
            return
        factors = [int_literal(arg) for arg in node.args]
        repeated = [i for i, factor in enumerate(factors) if factor != 1]
        added = added_dimension(node.func.value, file)
        if len(repeated) != 1 or added is None:
            return
        added = added + len(factors) if added < 0 else added
        if added != repeated[0] or next(_OWN.check(node, file), None) is not None:
            return
        if not _only_passed(node, file):
            return
        sizes = ", ".join(file.source(a) if i == repeated[0] else "-1" for i, a in enumerate(node.args))
        yield Problem(
            node,
            f"{quote(file, node, 50)} writes {quote(file, node.args[repeated[0]], 20)} copies of the same values to memory. "
            f"`.expand({sizes})` is a view of the one copy, which whatever only reads it can take.",
            0.4,
            call.evidence,
            cause=file.index.statement_of(node),
            subject=node.func.value,
            facts={
                "literal": factors[repeated[0]] is not None,
                "argument": isinstance(file.index.parent(node), ast.Call),
            },
        )


def _only_passed(node: ast.Call, file: SourceFile) -> bool:
    """Is it an argument of a call, or a name that is not written to?"""
    parent = file.index.parent(node)
    if isinstance(parent, ast.Call):
        name = parent.func.attr if isinstance(parent.func, ast.Attribute) else getattr(parent.func, "id", "")
        return node in parent.args and name not in _WRITES
    if not isinstance(parent, ast.Assign) or not isinstance(parent.targets[0], ast.Name):
        return False
    name = parent.targets[0].id
    function = file.index.function_of(node)
    loads = file.uses.loads(function, name)
    if not loads or any(b.kind == "augment" for b in file.bindings.of(function, name)):
        return False
    for load in loads:
        above = file.index.parent(load)
        if isinstance(above, ast.Subscript) and not isinstance(above.ctx, ast.Load):
            return False
        if isinstance(above, ast.Attribute) and (
            above.attr.endswith("_")
            or above.attr in ("view", "data", "numpy", "flatten", "reshape", "contiguous")
        ):
            return False
    return True
