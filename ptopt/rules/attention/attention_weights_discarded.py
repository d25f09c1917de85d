from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping
from typing import ClassVar

from ptopt.rules.base import Benchmark, Evidence, Fix, Invalid, Problem, Rule, Safety, SourceFile
from ptopt.rules.code import add_keyword, has_unpacking, keyword_of, quote
from ptopt.rules.shared.uses import names_read_in

_UNUSUAL = re.compile(r"forward_hook\(|create_graph|jvp")
_NEED_WEIGHTS_POSITION = 4  # query, key, value, key_padding_mask, need_weights


class AttentionWeightsDiscarded(Rule):
    """`nn.MultiheadAttention` computes averaged weights that nobody reads.

    ## What it does
    Finds calls of an `nn.MultiheadAttention` whose second result is dropped, by `[0]` or by a name that is never
    read, without `need_weights=False`.

    ## Why it is slow
    By default the module returns the attention weights, averaged over the heads. For that it must build the whole
    matrix, and cannot use the fused attention kernel; with `need_weights=False` it does.

    ## Fix safety
    Safe: the first result is the same up to rounding; the second one, which is dropped, becomes `None`. Dropout
    inside the attention draws other random numbers.

    ## Sources
    - [torch.nn.MultiheadAttention: set need_weights=False to use the optimized scaled_dot_product_attention](https://docs.pytorch.org/docs/stable/generated/torch.nn.MultiheadAttention.html)
    """

    id = "PTO602"
    name = "attention-weights-discarded"
    family = "attention"
    triggers = ("MultiheadAttention",)
    nodes = (ast.Call,)
    since: ClassVar[Mapping[str, str]] = {"torch": "2.0"}
    when_wrong = "a forward hook reads the weights, or gradients of gradients are taken"

    VALID = (
        """
        class Block(nn.Module):
            def __init__(self):
                super().__init__()
                self.attn = nn.MultiheadAttention(64, 4)

            def forward(self, x):
                return self.attn(x, x, x, need_weights=False)[0]
        """,
        """
        class Block(nn.Module):
            def __init__(self):
                super().__init__()
                self.attn = nn.MultiheadAttention(64, 4)

            def forward(self, x):
                x, weights = self.attn(x, x, x)
                return x, weights
        """,
        """
        class Block(nn.Module):
            def __init__(self):
                super().__init__()
                self.attn = OwnAttention(64, 4)
                self.other = nn.MultiheadAttention(64, 4)

            def forward(self, x):
                return self.attn(x, x, x)[0] + self.other(x, x, x, None, False)[0]
        """,
    )
    INVALID = (
        Invalid("""
            class Block(nn.Module):
                def __init__(self):
                    super().__init__()
                    self.attn = nn.MultiheadAttention(64, 4)

                def forward(self, x):
                    return x + self.attn(x, x, x)[0]  # !
                    # + return x + self.attn(x, x, x, need_weights=False)[0]
        """),
        Invalid("""
            class Block(nn.Module):
                def __init__(self):
                    super().__init__()
                    self.attn = nn.MultiheadAttention(64, 4)

                def forward(self, x):
                    out, weights = self.attn(  # !
                        x,
                        x,
                        x,
                        # + x,
                        # + need_weights=False,
                    )
                    return out
        """),
    )
    BENCHMARK = Benchmark(
        setup="""
            attn = nn.MultiheadAttention(256, 8, batch_first=True).train()
            x = torch.randn(4, 256, 256)
            """,
        before="result = attn(x, x, x)[0]",
        after="result = attn(x, x, x, need_weights=False)[0]",
        scope="the attention layer",
        sizes="8 heads of 32, batch of 4, 256 positions, fp32, autograd on",
    )

    def check(self, node: ast.AST, file: SourceFile) -> Iterator[Problem]:
        if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
            return
        func = node.func
        if (
            not (isinstance(func.value, ast.Name) and func.value.id == "self")
            or len(node.args) > _NEED_WEIGHTS_POSITION
        ):
            return
        cls = file.index.class_of(node)
        made = file.bindings.attribute(cls, func.attr) if cls is not None else None
        if (
            not isinstance(made, ast.Call)
            or file.imports.qualified(made.func) != "torch.nn.MultiheadAttention"
        ):
            return
        if (
            has_unpacking(node)
            or keyword_of(node, "need_weights") is not None
            or not _drops_weights(node, file)
        ):
            return
        yield Problem(
            node,
            f"Nobody reads the weights of {quote(file, node, 50)}, but computing them keeps `nn.MultiheadAttention` off "
            "the fused kernel. Pass `need_weights=False`.",
            0.5 if file.search(_UNUSUAL) else 0.9,
            (Evidence(made.lineno, "an `nn.MultiheadAttention`"),),
            Fix(Safety.SAFE, (add_keyword(file, node, "need_weights=False"),)),
        )


def _drops_weights(call: ast.Call, file: SourceFile) -> bool:
    parent = file.index.parent(call)
    if isinstance(parent, ast.Subscript) and parent.value is call:
        return isinstance(parent.slice, ast.Constant) and parent.slice.value == 0
    if not isinstance(parent, ast.Assign) or len(parent.targets) != 1:
        return False
    target = parent.targets[0]
    if not (isinstance(target, ast.Tuple) and len(target.elts) == 2 and isinstance(target.elts[1], ast.Name)):
        return False
    name = target.elts[1].id
    function = file.index.function_of(call)
    # Any reader of the name counts, also one of another binding: `_` may be read nowhere, too.
    return function is not None and name not in names_read_in(function)
