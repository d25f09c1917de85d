from __future__ import annotations

import re

from ptopt.rules.base import Invalid, Severity
from ptopt.rules.regressions._base import Regression


class FusedAttentionRemoved(Regression):
    """A change replaces a fused attention kernel by one written out."""

    id = "PTO954"
    name = "fused-attention-removed"
    severity = Severity.HIGH
    most_stated = 0.5
    triggers = ("softmax", "attn_implementation", "einsum")
    measure = re.compile(
        r"scaled_dot_product_attention|flash_attn\w*|memory_efficient_attention|attn_implementation\s*=\s*[\"'](sdpa|flash\w*)|F\.sdpa"
    )
    work = re.compile(r"softmax\(|attn_implementation\s*=\s*[\"']eager|torch\.bmm|einsum")
    work_says_all = True
    prior = 0.5
    message = (
        "The scores of all pairs are then written to memory and read back three times. Keep "
        "`F.scaled_dot_product_attention`, which also takes masks and dropout."
    )
    why = (
        "A fused kernel never writes the matrix of scores; written out, its size and its traffic grow with the square "
        "of the length."
    )
    source = (
        "[PyTorch documentation: scaled_dot_product_attention](https://docs.pytorch.org/docs/stable/generated/torch.n "
        "n.functional.scaled_dot_product_attention.html)"
    )
    when_wrong = "the attention weights themselves are used now"

    VALID = (
        """
        out = F.scaled_dot_product_attention(q, k, v, attn_mask=mask)
        """,
        """
        def attend(q, k, v, mask):
            # - return flash_attn_func(q, k, v)
            return F.scaled_dot_product_attention(q, k, v, attn_mask=mask)
        """,
        """
        def attend(x):
            # - return F.scaled_dot_product_attention(x, x, x)
            return x
        """,
    )
    INVALID = (
        Invalid("""
            def attend(q, k, v, scale):
                # - return F.scaled_dot_product_attention(q, k, v)
                weights = (q @ k.transpose(-2, -1) * scale).softmax(dim=-1)  # !
                return weights @ v
        """),
        Invalid("""
            def attend(q, k, v):
                # - return xformers.ops.memory_efficient_attention(q, k, v)
                weights = torch.softmax(torch.einsum("bqd,bkd->bqk", q, k), dim=-1)  # !
                return weights @ v
        """),
        Invalid("""
            def load(name):
                # - return AutoModel.from_pretrained(name, attn_implementation="sdpa")
                return AutoModel.from_pretrained(name, attn_implementation="eager")  # !
        """),
    )
