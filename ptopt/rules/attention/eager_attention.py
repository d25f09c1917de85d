from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping
from typing import ClassVar

from ptopt.rules.base import Edit, Fix, Invalid, Problem, Rule, Safety, SourceFile
from ptopt.rules.code import keyword_of

_NEEDS_EAGER = re.compile(
    r"output_attentions|attentions\b|soft_?cap|gemma|attention_?map|heatmap|rollout|interpret|onnx|torch\.export|\.export\("
    r"|jit\.trace|bertviz|inseq|head_mask|openvino|coreml|tflite|flex|create_graph|vmap|jvp|hook",
    re.I,
)


class EagerAttention(Rule):
    """A pretrained model is loaded with `attn_implementation="eager"`.

    ## What it does
    Finds `from_pretrained(..., attn_implementation="eager")` in files that read no attention weights.

    ## Why it is slow
    Eager attention builds the whole matrix of weights in each layer. transformers picks
    `scaled_dot_product_attention` by itself for the models that support it; the argument switches that off.

    ## When this is wrong
    When attention weights are read, or when the model needs eager attention for correct results (soft-capped scores).

    ## Fix safety
    Unsafe: results agree up to rounding, and no attention weights are asked for.

    ## Sources
    - [transformers: attention backends](https://huggingface.co/docs/transformers/attention_interface)
    """

    id = "PTO603"
    name = "eager-attention"
    family = "attention"
    libraries = ("transformers",)
    triggers = ('attn_implementation="eager"', "attn_implementation='eager'", "attn_implementation =")
    requires = ("from_pretrained",)
    nodes = (ast.Call,)
    calls = frozenset({"from_pretrained"})
    since: ClassVar[Mapping[str, str]] = {"transformers": "4.36"}
    when_wrong = "attention weights are read, or the model is only right with eager attention"

    VALID = (
        """
        from transformers import AutoModel
        model = AutoModel.from_pretrained(name, attn_implementation="sdpa")
        """,
        """
        from transformers import AutoModel
        model = AutoModel.from_pretrained(name, attn_implementation="eager")
        weights = model(**inputs, output_attentions=True).attentions
        """,
        """
        from transformers import AutoModelForCausalLM
        model = AutoModelForCausalLM.from_pretrained("google/gemma-2-2b", attn_implementation="eager")
        """,
    )
    INVALID = (
        Invalid("""
            from transformers import AutoModel
            model = AutoModel.from_pretrained(name, attn_implementation="eager")  # !
            # + model = AutoModel.from_pretrained(name)
        """),
        Invalid("""
            from transformers import AutoModelForCausalLM
            model = AutoModelForCausalLM.from_pretrained(  # !
                "meta-llama/Llama-3.2-1B",
                attn_implementation="eager",
                # +
                torch_dtype="bfloat16",
            )
        """),
        Invalid("""
            import transformers
            bert = transformers.BertModel.from_pretrained("bert-base-uncased", attn_implementation='eager', num_labels=2)  # !
            # + bert = transformers.BertModel.from_pretrained("bert-base-uncased", num_labels=2)
        """),
    )

    def check(self, node: ast.AST, file: SourceFile) -> Iterator[Problem]:
        if not (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Attribute)
            and node.func.attr == "from_pretrained"
        ):
            return
        given = keyword_of(node, "attn_implementation")
        if not (isinstance(given, ast.Constant) and given.value == "eager") or file.search(_NEEDS_EAGER):
            return
        yield Problem(
            node,
            '`attn_implementation="eager"` makes each layer build its whole matrix of attention weights, and nothing '
            "here reads them. Drop it: transformers then uses the fused attention where the model supports it.",
            0.65,
            fix=_fix(node, file),
        )


def _fix(call: ast.Call, file: SourceFile) -> Fix | None:
    """Drop the argument with the comma and the space that belong to it."""
    keyword = next(k for k in call.keywords if k.arg == "attn_implementation")
    start, end = file.bounds(keyword)
    bounds = sorted(file.bounds(a) for a in [*call.args, *call.keywords])
    later = [b for b in bounds if b[0] > end]
    earlier = [b for b in bounds if b[1] <= start]
    if not earlier:
        return None
    begin, stop = (start, later[0][0]) if later else (earlier[-1][1], end)
    if b"#" in file.data[begin:stop]:
        return None
    return Fix(
        Safety.UNSAFE,
        (Edit(begin, stop, ""),),
        "no attention weights are read, and the model is right with fused attention",
    )
