from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from typing import ClassVar

from ptopt.rules.base import Evidence, Invalid, Problem, Rule, Severity, SourceFile
from ptopt.rules.code import has_unpacking, is_literal, keyword_of
from ptopt.rules.shared.flow import assigned
from ptopt.source.calls import last_name

_HEADS = ("1", "-3")


class KeyValueRepeated(Rule):
    """Key and value heads are copied before `scaled_dot_product_attention`.

    ## What it does
    Finds `repeat_interleave` over the heads (or `repeat_kv`) of both keys and values right before a call of
    `scaled_dot_product_attention` without a mask.

    ## Why it is slow
    Grouped-query attention saves memory traffic because several query heads read one key and value head. The copies
    give that back: they are written, read, and kept for backward. Since torch 2.5 `enable_gqa=True` does it in the
    kernel.

    ## When this is wrong
    When the model is exported, or runs where only the math kernel takes grouped heads: on CUDA that is so for
    float32, where the copies are the better choice. The rule is off by default for that reason.

    ## Fix safety
    No fix: whether the repeated tensors are used elsewhere, and which kernel takes over, is for a person to see.

    ## Sources
    - [torch.nn.functional.scaled_dot_product_attention: enable_gqa](https://docs.pytorch.org/docs/stable/generated/torch.nn.functional.scaled_dot_product_attention.html)
    """

    id = "PTO605"
    name = "key-value-repeated"
    family = "attention"
    severity = Severity.LOW
    most_stated = 0.62
    triggers = ("scaled_dot_product_attention",)
    requires = ("repeat_interleave", "repeat_kv")
    nodes = (ast.Call,)
    default = False  # whether a fused kernel takes grouped heads depends on dtype and hardware
    since: ClassVar[Mapping[str, str]] = {"torch": "2.5"}
    when_wrong = "the model is exported, or only the math kernel takes grouped heads (float32 on CUDA)"

    VALID = (
        """
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
        """,
        """
        def forward(q, k, v, groups, mask):
            k = k.repeat_interleave(groups, dim=1)
            v = v.repeat_interleave(groups, dim=1)
            return F.scaled_dot_product_attention(q, k, v, attn_mask=mask)
        """,
        """
        def forward(q, k, v, beams):
            k = k.repeat_interleave(beams, dim=0)
            v = v.repeat_interleave(beams, dim=0)
            return F.scaled_dot_product_attention(q, k, v, is_causal=True)
        """,
    )
    INVALID = (
        Invalid("""
            def forward(q, k, v, groups):
                k = k.repeat_interleave(groups, dim=1)
                v = v.repeat_interleave(groups, dim=1)
                return F.scaled_dot_product_attention(q, k, v, is_causal=True)  # !
        """),
        Invalid("""
            def forward(self, q, k, v):
                keys = repeat_kv(k, self.n_rep)
                values = repeat_kv(v, self.n_rep)
                return F.scaled_dot_product_attention(q, keys, values, dropout_p=0.0, is_causal=True)  # !
        """),
        Invalid("""
            def forward(q, k, v, rep):
                k = torch.repeat_interleave(k, rep, dim=-3)
                v = torch.repeat_interleave(v, rep, dim=-3)
                out = F.scaled_dot_product_attention(q, k, v)  # !
                return out
        """),
    )

    def check(self, node: ast.AST, file: SourceFile) -> Iterator[Problem]:
        if not isinstance(node, ast.Call) or len(node.args) != 3 or has_unpacking(node):
            return
        func = node.func
        name = last_name(func)
        if name != "scaled_dot_product_attention":
            return
        mask = keyword_of(node, "attn_mask")
        if (mask is not None and not is_literal(mask, None)) or keyword_of(node, "enable_gqa") is not None:
            return  # with a mask, grouped heads fall back to the math kernel
        key, value = (_repeated(arg, file) for arg in node.args[1:])
        if key is None or value is None or "enable_gqa" in file.text or "onnx" in file.text:
            return
        yield Problem(
            node,
            f"Lines {key.lineno} and {value.lineno} write a copy of every key and value head for each query group. "
            "Pass the heads as they are and `enable_gqa=True`: the kernel reads each of them once.",
            0.62,
            (Evidence(key.lineno, "keys are copied"), Evidence(value.lineno, "values are copied")),
        )


def _repeated(arg: ast.expr, file: SourceFile) -> ast.Call | None:
    """The call that repeated the heads that `arg` names."""
    made = assigned(arg, file) if isinstance(arg, ast.Name) else arg
    if not isinstance(made, ast.Call):
        return None
    func = made.func
    name = last_name(func)
    if name == "repeat_kv":
        return made if len(made.args) == 2 else None
    if name != "repeat_interleave":
        return None
    plain = file.imports.qualified(func) == "torch.repeat_interleave"
    dim = keyword_of(made, "dim") or (made.args[1 + plain] if len(made.args) > 1 + plain else None)
    return made if dim is not None and ast.unparse(dim) in _HEADS else None
