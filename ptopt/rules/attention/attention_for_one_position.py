from __future__ import annotations

import ast
from bisect import bisect_right
from collections.abc import Iterator

from ptopt.rules.base import Evidence, Invalid, Problem, Rule, SourceFile
from ptopt.rules.code import keyword_of, quote
from ptopt.rules.ops._calls import int_literal, same_code
from ptopt.rules.shared.flow import entries_of


class AttentionForOnePosition(Rule):
    """Self-attention runs for every position although one of its outputs is used.

    ## What it does
    Finds `nn.MultiheadAttention` and `F.multi_head_attention_forward` called with the same query and key, where the function
    returns or uses only one position of the output.

    ## Why it is slow
    Scores, weights and the output projection are computed for all queries, and all but one are thrown away: the work is as
    many times too large as there are positions.

    ## Fix safety
    No fix: the layout of the sequence decides what to slice.

    ## Sources
    - [CLIP: the pooled token is the only query](https://github.com/openai/CLIP/blob/main/clip/model.py)
    """

    id = "PTO483"
    name = "attention-for-one-position"
    family = "attention"
    most_stated = 0.6
    nodes = (ast.Assign,)
    triggers = ("ttention", "attn", "multi_head_attention_forward")
    when_wrong = "the other positions are used elsewhere"

    VALID = (
        """
        def forward(self, x):
            x, _ = self.attn(x, x, x)
            return x
        """,
        """
        def forward(self, x):
            x, _ = self.attn(x[:1], x, x)
            return x[0]
        """,
        """
        def forward(self, x):
            y, _ = self.attn(x, x, x)
            return y[0], y.mean(0)
        """,
    )
    INVALID = (
        Invalid("""
            def forward(self, x):
                x, _ = F.multi_head_attention_forward(query=x, key=x, value=x, num_heads=8)  # !
                # ~ x, _ = F.multi_head_attention_forward(query=x[:1], key=x, value=x, num_heads=8)
                return x[0]
        """),
        Invalid("""
            class Pool(nn.Module):
                def __init__(self):
                    super().__init__()
                    self.attn = nn.MultiheadAttention(8, 2)

                def forward(self, x):
                    out, _ = self.attn(x, x, x)  # !
                    return self.proj(out[0])
        """),
        Invalid("""
            class Pool(nn.Module):
                def __init__(self):
                    super().__init__()
                    self.attn = nn.MultiheadAttention(8, 2, batch_first=True)

                def forward(self, x):
                    out = self.attn(x, x, x)[0]  # !
                    return out[:, 0]
        """),
    )

    def candidates(self, file: SourceFile) -> list[ast.AST]:
        values = (ast.Call, ast.Subscript)
        return [node for node in file.index.of_type(ast.Assign) if node.value.__class__ in values]

    def check(self, node: ast.AST, file: SourceFile) -> Iterator[Problem]:
        if not isinstance(node, ast.Assign) or len(node.targets) != 1:
            return
        value = node.value
        if isinstance(value, ast.Subscript) and int_literal(value.slice) == 0:
            value = value.value
        target = node.targets[0]
        name = target.elts[0] if isinstance(target, ast.Tuple) and target.elts else target
        if (
            not isinstance(value, ast.Call)
            or not isinstance(name, ast.Name)
            or not _attends_to_itself(value, file)
        ):
            return
        scope = file.index.function_of(node)
        if scope is None:
            return
        loads = file.uses.loads(scope, name.id)
        reads = loads[bisect_right(loads, node.end_lineno or 0, key=lambda n: n.lineno) :]
        again = [b for b in file.bindings.of(scope, name.id) if b.line > node.lineno]
        picks = {_position(read, file) for read in reads}
        if not reads or again or len(picks) != 1 or "" in picks:
            return
        pick = picks.pop()
        yield Problem(
            node,
            f"Of the output of {quote(file, value.func)} only `[{pick}]` is used, yet all positions are queries. Pass the "
            f"one position as query and keep keys and values.",
            0.6,
            (Evidence(reads[0].lineno, "uses one position"),),
            subject=value,
        )


def _attends_to_itself(call: ast.Call, file: SourceFile) -> bool:
    """Is it multi-head attention with the same expression as query and key?"""
    if len(call.args) + len(call.keywords) < 2:
        return False
    if file.imports.qualified(call.func).endswith("multi_head_attention_forward"):
        query, key = keyword_of(call, "query"), keyword_of(call, "key")
    else:
        if not isinstance(call.func, ast.Attribute):
            return False
        cls = file.index.class_of(call)
        if cls is None:
            return False
        made = file.bindings.attribute(cls, call.func.attr)
        if (
            not isinstance(made, ast.Call)
            or file.imports.qualified(made.func) != "torch.nn.MultiheadAttention"
        ):
            return False
        query, key = keyword_of(call, "query"), keyword_of(call, "key")
    args = call.args
    query = query if query is not None else args[0] if args else None
    key = key if key is not None else args[1] if len(args) > 1 else None
    return query is not None and key is not None and same_code(query, key)


def _position(read: ast.Name, file: SourceFile) -> str:
    """The index of the one position that the read picks; "" when it takes more."""
    parent = file.index.parent(read)
    if not isinstance(parent, ast.Subscript) or parent.value is not read:
        return ""
    parts = entries_of(parent)
    whole = [isinstance(p, ast.Slice) and not (p.lower or p.upper or p.step) for p in parts]
    places = [p for p, full in zip(parts, whole, strict=True) if not full]
    return file.source(parent.slice) if len(places) == 1 and int_literal(places[0]) in (0, -1) else ""
