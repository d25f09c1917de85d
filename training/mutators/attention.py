"""Attention written out, or configured as eager."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from ptopt.findings import Edit
from ptopt.rules.attention.causal_mask_materialised import joins_a_cache
from ptopt.rules.code import add_keyword, has_unpacking, keyword_of
from ptopt.source.file import SourceFile
from training.mutators.base import (
    Mutation,
    alone,
    bracketed,
    indent_of,
    need_import,
    pick,
    remove_keyword,
    replace,
)

_HEAD = "import math\nimport torch\nimport torch.nn.functional as F\nfrom torch import nn\n\n\nclass Net(nn.Module):\n"


def _forward(body: str) -> str:
    return f"{_HEAD}    def forward(self, x, q, k, v):\n" + "".join(
        f"        {line}\n" for line in body.split("\n")
    )


class AttentionByHand:
    """`scaled_dot_product_attention` spelled out."""

    rule = "attention-by-hand"
    examples = (
        (
            _forward("out = F.scaled_dot_product_attention(q, k, v)\nreturn out"),
            _forward(
                "attn = torch.matmul(q, k.transpose(-1, -2)) / math.sqrt(q.size(-1))\n"
                "attn_weights = torch.softmax(attn, dim=-1)\nout = attn_weights @ v\nreturn out"
            ),
        ),
    )

    def mutate(self, source: SourceFile) -> Iterator[Mutation]:
        for call in source.calls_named("scaled_dot_product_attention"):
            statement = source.index.statement_of(call)
            known = {"attn_mask", "dropout_p", "is_causal", "query", "key", "value", "scale"}
            if (
                has_unpacking(call)
                or not {k.arg for k in call.keywords} <= known
                or not alone(source, statement)
            ):
                continue
            if (
                not isinstance(statement, (ast.Assign, ast.Return))
                or getattr(statement, "value", None) is not call
            ):
                continue
            given = dict(
                zip(("query", "key", "value", "attn_mask", "dropout_p", "is_causal"), call.args, strict=False)
            )
            given |= {k.arg: k.value for k in call.keywords if k.arg}
            if not {"query", "key", "value"} <= set(given):
                continue
            parts = {name: " ".join(source.source(value).split()) for name, value in given.items()}
            q, k, v = (" ".join(bracketed(source, given[n]).split()) for n in ("query", "key", "value"))
            place = source.bounds(statement)[0]
            scores = pick(("scores", "attn", "att", "dots"), source, place)
            weights = pick(("weights", "probs", "attn_weights"), source, place + 1)
            scale = parts.get("scale", "None")
            given_scale = "" if scale == "None" else " ".join(bracketed(source, given["scale"]).split())
            divided = f"* {given_scale}" if given_scale else f"/ math.sqrt({q}.size(-1))"
            product = pick(
                (f"{q} @ {k}.transpose(-2, -1)", f"torch.matmul({q}, {k}.transpose(-1, -2))"), source, place
            )
            lines = [f"{scores} = {product} {divided}"]
            if parts.get("attn_mask", "None") != "None":
                continue  # one of bools is applied in another way than one of numbers
            if parts.get("is_causal", "False") != "False":
                causal = (
                    f"torch.ones({q}.size(-2), {k}.size(-2), dtype=torch.bool, device={q}.device).triu(1)"
                )
                masked = f'{scores} = {scores}.masked_fill({causal}, float("-inf"))'
                is_true = parts["is_causal"] == "True"
                lines += [masked] if is_true else [f"if {parts['is_causal']}:", f"    {masked}"]
            lines.append(
                f"{weights} = {pick((f'{scores}.softmax(dim=-1)', f'torch.softmax({scores}, dim=-1)'), source, place)}"
            )
            dropout = parts.get("dropout_p", "0.0")
            if dropout not in ("0.0", "0"):
                lines.append(f"{weights} = torch.nn.functional.dropout({weights}, {dropout})")
            start = (
                "return "
                if isinstance(statement, ast.Return)
                else f"{source.source(statement.targets[0])} = "
            )
            lines.append(f"{start}{weights} @ {v}")
            indent = indent_of(source, statement)
            imports = [
                *need_import(source, "torch", "import torch"),
                *need_import(source, "math", "import math"),
            ]
            joined = Edit(0, 0, "".join(e.replacement for e in imports))
            edits = (joined,) if imports else ()
            yield Mutation((*edits, replace(source, statement, f"\n{indent}".join(lines))))


class CausalMaskMaterialised:
    """`is_causal=True` becomes a mask."""

    rule = "causal-mask-materialised"
    examples = (
        (
            _forward("return F.scaled_dot_product_attention(q, k, v, is_causal=True)"),
            _forward(
                "mask = torch.tril(torch.ones(q.size(-2), q.size(-2), dtype=torch.bool, device=q.device))\n"
                "return F.scaled_dot_product_attention(q, k, v, attn_mask=mask)"
            ),
        ),
    )

    def mutate(self, source: SourceFile) -> Iterator[Mutation]:
        for call in source.calls_named("scaled_dot_product_attention"):
            statement = source.index.statement_of(call)
            causal = next((k for k in call.keywords if k.arg == "is_causal"), None)
            if causal is None or keyword_of(call, "attn_mask") is not None or len(call.args) != 3:
                continue
            if source.source(causal.value) != "True" or joins_a_cache(call, source):
                continue  # nothing is masked, or now and then, or other keys: the mask would be a change
            if not isinstance(call.args[0], (ast.Name, ast.Attribute)) or not alone(source, statement):
                continue
            n = f"{source.source(call.args[0])}.size(-2)"
            device = f"{source.source(call.args[0])}.device"
            mask = f"torch.tril(torch.ones({n}, {n}, dtype=torch.bool, device={device}))"
            indent = indent_of(source, statement)
            at = source.offset(statement.lineno, 0)
            yield Mutation(
                (
                    *need_import(source, "torch", "import torch"),
                    Edit(at, at, f"{indent}mask = {mask}\n"),
                    replace(source, causal, "attn_mask=mask"),
                )
            )


class AttentionWeightsDiscarded:
    """`need_weights=False` taken away."""

    rule = "attention-weights-discarded"
    examples = (
        (
            (
                f"{_HEAD}    def __init__(self):\n        self.attn = nn.MultiheadAttention(64, 4)\n\n"
                "    def forward(self, x):\n        return self.attn(x, x, x, need_weights=False)[0]\n"
            ),
            (
                f"{_HEAD}    def __init__(self):\n        self.attn = nn.MultiheadAttention(64, 4)\n\n"
                "    def forward(self, x):\n        return self.attn(x, x, x)[0]\n"
            ),
        ),
    )

    def mutate(self, source: SourceFile) -> Iterator[Mutation]:
        for call in source.index.of_type(ast.Call):
            value = keyword_of(call, "need_weights")
            if isinstance(value, ast.Constant) and value.value is False:
                edit = remove_keyword(source, call, "need_weights")
                if edit is not None:
                    yield Mutation((edit,))


class TransformersAttentionFlag:
    """`attn_implementation="sdpa"` or a flash kernel turned to eager."""

    rule = "eager-attention"
    examples = (
        (
            'from transformers import AutoModel\n\n\nm = AutoModel.from_pretrained(name, attn_implementation="sdpa")\n',
            'from transformers import AutoModel\n\n\nm = AutoModel.from_pretrained(name, attn_implementation="eager")\n',
        ),
    )

    def mutate(self, source: SourceFile) -> Iterator[Mutation]:
        for call in source.calls_named("from_pretrained"):
            value = keyword_of(call, "attn_implementation")
            if isinstance(value, ast.Constant) and value.value != "eager":
                yield Mutation((replace(source, value, '"eager"'),))


class EagerAttention:
    """A pretrained model configured for eager attention."""

    rule = "eager-attention"
    examples = (
        (
            "from transformers import AutoModel\n\n\nmodel = AutoModel.from_pretrained(name)\n",
            'from transformers import AutoModel\n\n\nmodel = AutoModel.from_pretrained(name, attn_implementation="eager")\n',
        ),
    )

    def mutate(self, source: SourceFile) -> Iterator[Mutation]:
        for call in source.calls_named("from_pretrained"):
            if not _loads_model(source, call):
                continue  # a tokenizer, a processor, a model of another library
            if call.args and keyword_of(call, "attn_implementation") is None and not has_unpacking(call):
                yield Mutation((add_keyword(source, call, 'attn_implementation="eager"'),))


_MODEL = re.compile(r"^transformers\.(?:.+\.)?(?:AutoModel\w*|\w+Model|\w+For[A-Z]\w+)\.from_pretrained$")


def _loads_model(source: SourceFile, call: ast.Call) -> bool:
    return _MODEL.match(source.imports.qualified(call.func)) is not None
