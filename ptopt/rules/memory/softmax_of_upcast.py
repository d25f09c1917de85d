from __future__ import annotations

import ast
from collections.abc import Iterator

from ptopt.rules.base import Fix, Invalid, Problem, Rule, Safety, SourceFile
from ptopt.rules.code import add_keyword, keyword_of, quote, replace_node
from ptopt.rules.ops._calls import torch_op
from ptopt.rules.shared.flow import outer_call


class SoftmaxOfUpcast(Rule):
    """A tensor is copied to float32 before a softmax that can convert by itself.

    ## What it does
    Finds `F.softmax(x.float(), dim=-1)`, `x.float().log_softmax(-1)` and `x.to(torch.float32).softmax(-1)`.

    ## Why it is slow
    `x.float()` writes the whole input once more, in twice its size, and the softmax reads it back. With `dtype=torch.float32`
    the softmax is computed in float32 too; for float16 on the GPU the conversion happens while it reads.

    ## When this is wrong
    When the input is float32 already: then neither form copies.

    ## Fix safety
    Safe: `dtype` casts the input before the operation, so the values are the same.

    ## Sources
    - [torch.nn.functional.softmax: dtype](https://docs.pytorch.org/docs/stable/generated/torch.nn.functional.softmax.html)
    """

    id = "PTO812"
    name = "softmax-of-upcast"
    family = "memory"
    most_stated = 0.5
    nodes = (ast.Call,)
    calls = frozenset({"softmax", "log_softmax"})
    when_wrong = "the input is float32 already"

    VALID = (
        """
        weights = F.softmax(scores, dim=-1, dtype=torch.float32)
        """,
        """
        weights = F.softmax(scores.float() / 8, dim=-1)
        """,
        """
        weights = F.softmax(scores.half(), dim=-1)
        """,
    )
    INVALID = (
        Invalid("""
            weights = F.softmax(scores.float(), dim=-1).type_as(scores)  # !
            # + weights = F.softmax(scores, dim=-1, dtype=torch.float32).type_as(scores)
        """),
        Invalid("""
            logp = torch.log_softmax(logits.to(torch.float32), dim=-1)  # !
            # + logp = torch.log_softmax(logits, dim=-1, dtype=torch.float32)
        """),
        Invalid("""
            probs = router_logits.float().softmax(dim=-1)  # !
            # + probs = router_logits.softmax(dim=-1, dtype=torch.float32)
        """),
    )

    def check(self, node: ast.AST, file: SourceFile) -> Iterator[Problem]:
        op = torch_op(node, file, "softmax", "log_softmax")
        if op is None or keyword_of(op.call, "dtype") is not None or len(op.rest) > 1:
            return
        cast = op.operand
        if not isinstance(cast, ast.Call) or not isinstance(cast.func, ast.Attribute):
            return
        explicit = cast.func.attr == "to" and [file.imports.qualified(a) for a in cast.args] == [
            "torch.float32"
        ]
        if cast.keywords or not explicit and (cast.func.attr != "float" or cast.args):
            return
        source = cast.func.value
        if file.values.of(source).kind in ("array", "scalar", "list"):
            return
        text = file.source(source)
        fix = None
        if (
            isinstance(source, (ast.Name, ast.Attribute, ast.Call, ast.Subscript))
            and "torch" in file.imports.local_names()
        ):
            edits = (replace_node(file, cast, text), add_keyword(file, op.call, "dtype=torch.float32"))
            fix = Fix(Safety.SAFE, edits) if "#" not in file.source(op.call) else None
        back = outer_call(op.call, file)
        yield Problem(
            node,
            f"{quote(file, cast, 40)} writes a float32 copy of the whole input only for the `{op.name}` to read it. With "
            f"`dtype=torch.float32`, `{op.name}` computes in float32 by itself: for float16 on the GPU it converts "
            "while it reads.",
            0.5,
            fix=fix,
            subject=source,
            facts={
                "cast_back": back is not None
                and file.source(back.func).endswith((".type_as", ".to", ".half")),
                "half": "float16" in file.text or ".half()" in file.text,
            },
        )
