from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping
from typing import ClassVar

from ptopt.rules.base import Benchmark, Edit, Evidence, Fix, Invalid, Problem, Rule, Safety, SourceFile
from ptopt.rules.code import has_unpacking, is_literal, keyword_of
from ptopt.source.calls import last_name
from ptopt.source.file import remembered
from ptopt.source.index import FunctionNode

_CACHE = re.compile(r"cache|past_|\bpast\b|\bmems?\b|memor", re.I)
_SIZE = r"(?P<n>[\w.()\[\]-]+),(?P=n)"
_EXTRA = r"(,[a-z]+=[\w.()\[\]\"']+)*"
_INF = r"(-?float\(['\"]-?inf['\"]\)|-?(torch|math|np)\.inf|torch\.finfo\([\w.]+\)\.min)"
# Square causal masks, white space taken out. A lower triangle is boolean; an upper one is -inf above the diagonal.
_CAUSAL = re.compile(
    rf"torch\.tril\(torch\.ones\(\(?{_SIZE}\)?(,[a-z]+=[\w.()\[\]\"']+)*,dtype=torch\.bool{_EXTRA}\){_EXTRA}\)"
    rf"|torch\.ones\(\(?(?P<a>[\w.()\[\]-]+),(?P=a)\)?(,[a-z]+=[\w.()\[\]\"']+)*,dtype=torch\.bool{_EXTRA}\)\.tril\((diagonal=0)?\)"
    rf"|torch\.tril\(torch\.ones\(\(?(?P<b>[\w.()\[\]-]+),(?P=b)\)?{_EXTRA}\){_EXTRA}\)\.(bool\(\)|to\(torch\.bool\)|to\(dtype=torch\.bool\))"
    rf"|torch\.triu\(torch\.full\(\(?(?P<c>[\w.()\[\]-]+),(?P=c)\)?,(fill_value=)?{_INF}{_EXTRA}\),(diagonal=)?1\)"
    rf"|torch\.triu\(torch\.ones\(\(?(?P<d>[\w.()\[\]-]+),(?P=d)\)?{_EXTRA}\)\*{_INF},(diagonal=)?1\)"
    r"|(torch\.)?nn\.Transformer\.generate_square_subsequent_mask\([^,()]+(\([^()]*\))?(,device=[\w.]+)?\)"
)


class CausalMaskMaterialised(Rule):
    """A causal mask is built and passed to `scaled_dot_product_attention`.

    ## What it does
    Finds `attn_mask=` that is nothing but a square lower triangle built in the same function.

    ## Why it is slow
    A mask tensor keeps the call off the FlashAttention kernel, is read for every head, and hides that half of the
    scores need not be computed at all. `is_causal=True` tells the kernel all of that.

    ## When this is wrong
    When queries and keys differ in length, or the mask is changed after it was built.

    ## Fix safety
    Unsafe: queries and keys must have the same length; another kernel rounds differently.

    ## Sources
    - [torch.nn.functional.scaled_dot_product_attention](https://docs.pytorch.org/docs/stable/generated/torch.nn.functional.scaled_dot_product_attention.html)
    """

    id = "PTO604"
    name = "causal-mask-materialised"
    family = "attention"
    triggers = ("scaled_dot_product_attention",)
    requires = ("tril", "triu", "generate_square_subsequent_mask")
    nodes = (ast.Call,)
    since: ClassVar[Mapping[str, str]] = {"torch": "2.0"}
    when_wrong = "queries and keys differ in length"

    VALID = (
        """
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        """,
        """
        def forward(q, k, v, padding, T):
            mask = torch.tril(torch.ones(T, T, dtype=torch.bool))
            mask = mask & padding
            return F.scaled_dot_product_attention(q, k, v, attn_mask=mask)
        """,
        """
        def forward(q, k, v, window, T):
            mask = torch.tril(torch.ones(T, T, dtype=torch.bool))
            mask.triu_(-window)
            return F.scaled_dot_product_attention(q, k, v, attn_mask=mask)
        """,
        """
        def forward(q, k, v, cache, T):
            k = torch.cat((cache[0], k), dim=-2)
            v = torch.cat((cache[1], v), dim=-2)
            mask = torch.tril(torch.ones(T, T, dtype=torch.bool))
            return F.scaled_dot_product_attention(q, k, v, attn_mask=mask)
        """,
        """
        def forward(q, k, v, T, S):
            mask = torch.tril(torch.ones(T, S, dtype=torch.bool))
            return F.scaled_dot_product_attention(q, k, v, attn_mask=mask)
        """,
    )
    INVALID = (
        Invalid("""
            def forward(q, k, v, T):
                mask = torch.tril(torch.ones(T, T, dtype=torch.bool, device=q.device))
                # +
                return F.scaled_dot_product_attention(q, k, v, attn_mask=mask)  # !
                # + return F.scaled_dot_product_attention(q, k, v, is_causal=True)
        """),
        Invalid(
            """
            def forward(q, k, v):
                n = q.size(-2)
                mask = torch.triu(torch.full((n, n), float("-inf"), device=q.device), diagonal=1)
                out = F.scaled_dot_product_attention(q, k, v, attn_mask=mask, dropout_p=0.1)  # !
                return out
            """,
            """
            def forward(q, k, v):
                out = F.scaled_dot_product_attention(q, k, v, is_causal=True, dropout_p=0.1)
                return out
            """,
        ),
        Invalid("""
            def forward(q, k, v):
                T = q.size(2)
                # +
                return F.scaled_dot_product_attention(q, k, v, attn_mask=torch.ones(T, T, dtype=torch.bool).tril())  # !
                # + return F.scaled_dot_product_attention(q, k, v, is_causal=True)
        """),
    )
    BENCHMARK = Benchmark(
        setup="""
            q, k, v = (torch.randn(1, 8, 512, 64) for _ in range(3))
            mask = torch.tril(torch.ones(512, 512, dtype=torch.bool))
            """,
        before="result = F.scaled_dot_product_attention(q, k, v, attn_mask=mask)",
        after="result = F.scaled_dot_product_attention(q, k, v, is_causal=True)",
        sizes="8 heads of 64, 512 positions, fp32",
    )

    def check(self, node: ast.AST, file: SourceFile) -> Iterator[Problem]:
        if not isinstance(node, ast.Call) or not node.keywords or has_unpacking(node):
            return
        func = node.func
        name = last_name(func)
        keyword = next((k for k in node.keywords if k.arg == "attn_mask"), None)
        if name != "scaled_dot_product_attention" or keyword is None:
            return
        causal = keyword_of(node, "is_causal")
        if causal is not None and not is_literal(causal, False):
            return
        built = _built(keyword.value, file)
        if (
            built is None
            or len(file.source(built)) > 300
            or not _CAUSAL.fullmatch("".join(file.source(built).split()))
        ):
            return
        if joins_a_cache(node, file):
            return  # fewer queries than keys: `is_causal` would let the first query see the first key alone
        text = file.source(keyword.value) if isinstance(keyword.value, ast.Name) else "the mask"
        label = f"`{text}` (line {built.lineno})" if isinstance(keyword.value, ast.Name) else text
        yield Problem(
            node,
            f"{label} is a plain causal mask: as a tensor it keeps the call off the FlashAttention kernel and has every "
            "score computed. Pass `is_causal=True` instead of `attn_mask`.",
            0.85,
            (Evidence(built.lineno, "the mask"),),
            Fix(
                Safety.UNSAFE,
                (Edit(*file.bounds(keyword), "is_causal=True"),),
                "queries and keys have the same length",
            )
            if causal is None
            else None,
        )


def joins_a_cache(call: ast.Call, file: SourceFile) -> bool:
    """Are earlier keys put before those of the call, so that there are more keys than queries?"""
    function = file.index.function_of(call)
    text = file.source(function) if function is not None else ""
    return bool(_CACHE.search(text)) and bool(re.search(r"\b(cat|concat|pack|update)\w*\(", text))


def _built(mask: ast.expr, file: SourceFile) -> ast.expr | None:
    """The expression that makes the mask, when it stays as it was made."""
    if not isinstance(mask, ast.Name):
        return mask
    function = file.index.function_of(mask)
    bindings = file.bindings.of(function, mask.id)
    if len(bindings) != 1 or bindings[0].kind != "assign" or bindings[0].value is None:
        return None
    changed = mask.id in _changed_in_place(function, file) or mask.id in file.once(_stored_by_index)
    return None if changed else bindings[0].value


@remembered
def _changed_in_place(function: FunctionNode | None, file: SourceFile) -> frozenset[str]:
    """`mask.triu_(...)`"""
    return frozenset(
        call.func.value.id
        for call in file.calls.calls_in(function)
        if isinstance(call.func, ast.Attribute)
        and call.func.attr.endswith("_")
        and isinstance(call.func.value, ast.Name)
    )


def _stored_by_index(file: SourceFile) -> frozenset[str]:
    """`mask[:, :n] = ...`"""
    return frozenset(
        node.value.id
        for node in file.index.of_type(ast.Subscript)
        if isinstance(node.ctx, ast.Store) and isinstance(node.value, ast.Name)
    )
