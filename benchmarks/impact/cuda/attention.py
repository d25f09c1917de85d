"""Attention by hand, and what surrounds it."""

from __future__ import annotations

from benchmarks.impact.cuda.workload import Workload

_QKV = """
torch.manual_seed(0)
q, k, v = (torch.randn(batch, heads, length, 64, device=device, dtype=torch.bfloat16) for _ in range(3))
up = torch.randn_like(q)
for t in (q, k, v):
    t.requires_grad_()
"""
_BACKWARD = "\nresult = out.detach(), *torch.autograd.grad(out, (q, k, v), up)"
_SIZES = {
    "8 x 12 heads of 64, 512 positions, bfloat16, forward and backward": {
        "batch": 8,
        "heads": 12,
        "length": 512,
    },
    "4 x 16 heads of 64, 2048 positions, bfloat16, forward and backward": {
        "batch": 4,
        "heads": 16,
        "length": 2048,
    },
}
_SMALL = {"batch": 1, "heads": 2, "length": 8}

WORKLOADS: dict[str, list[Workload]] = {
    "attention-by-hand": [
        Workload(
            setup=_QKV + "mask = torch.tril(torch.ones(length, length, device=device))",
            before="""
            att = (q @ k.transpose(-2, -1)) / k.size(-1) ** 0.5
            att = att.masked_fill(mask == 0, float("-inf"))
            out = F.softmax(att, dim=-1) @ v
            """.replace("\n            ", "\n")
            + _BACKWARD,
            after="out = F.scaled_dot_product_attention(q, k, v, is_causal=True)" + _BACKWARD,
            sizes=_SIZES,
            small=_SMALL,
            tolerance=0.2,
        ),
    ],
    "attention-in-steps": [
        Workload(
            setup=_QKV + "bias = torch.randn(1, heads, length, length, device=device, dtype=torch.bfloat16)",
            before="""
scores = torch.matmul(q, k.transpose(-1, -2)) / 8
out = torch.matmul((scores + bias).softmax(dim=-1), v)
"""
            + _BACKWARD,
            after="out = F.scaled_dot_product_attention(q, k, v, attn_mask=bias)" + _BACKWARD,
            sizes=_SIZES,
            small=_SMALL,
            tolerance=0.2,
        ),
    ],
    "causal-mask-materialised": [
        Workload(
            setup=_QKV,
            before="""
mask = torch.tril(torch.ones(length, length, dtype=torch.bool, device=device))
out = F.scaled_dot_product_attention(q, k, v, attn_mask=mask)
"""
            + _BACKWARD,
            after="out = F.scaled_dot_product_attention(q, k, v, is_causal=True)" + _BACKWARD,
            sizes=_SIZES,
            small=_SMALL,
            tolerance=0.2,
        ),
    ],
    "key-value-repeated": [
        Workload(
            setup="""
torch.manual_seed(0)
q = torch.randn(batch, heads, length, 64, device=device, dtype=torch.bfloat16)
k, v = (torch.randn(batch, heads // 4, length, 64, device=device, dtype=torch.bfloat16) for _ in range(2))
""",
            before="""
            keys, values = k.repeat_interleave(4, dim=1), v.repeat_interleave(4, dim=1)
            result = F.scaled_dot_product_attention(q, keys, values, is_causal=True)
            """,
            after="result = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)",
            sizes={
                "4 x 32 query heads on 8 key heads of 64, 1024 positions, bfloat16, forward": {
                    "batch": 4,
                    "heads": 32,
                    "length": 1024,
                },
            },
            small={"batch": 1, "heads": 8, "length": 8},
            tolerance=0.05,
        ),
    ],
    "attention-weights-discarded": [
        Workload(
            setup="""
            torch.manual_seed(0)
            attn = nn.MultiheadAttention(width, 8, batch_first=True, device=device, dtype=torch.bfloat16)
            x = torch.randn(batch, length, width, device=device, dtype=torch.bfloat16)
            """,
            before="result = attn(x, x, x)[0].detach()",
            after="result = attn(x, x, x, need_weights=False)[0].detach()",
            sizes={
                "8 heads of 64, 8 x 256 positions, bfloat16, autograd on": {
                    "batch": 8,
                    "length": 256,
                    "width": 512,
                },
                "8 heads of 128, 8 x 1024 positions, bfloat16, autograd on": {
                    "batch": 8,
                    "length": 1024,
                    "width": 1024,
                },
            },
            small={"batch": 1, "length": 4, "width": 16},
            scope="the attention layer",
            tolerance=0.05,
        ),
    ],
    "attention-for-one-position": [
        Workload(
            setup="""
            torch.manual_seed(0)
            attn = nn.MultiheadAttention(width, 8, device=device)
            x = torch.randn(length, batch, width, device=device)
            """,
            before="result = attn(x, x, x)[0][0].detach()",
            after="result = attn(x[:1], x, x)[0].squeeze(0).detach()",
            sizes={
                "50 positions of 1024, batch 32, float32": {"length": 50, "batch": 32, "width": 1024},
                "197 positions of 768, batch 64, float32": {"length": 197, "batch": 64, "width": 768},
            },
            small={"length": 4, "batch": 2, "width": 16},
            scope="the attention layer",
        ),
    ],
}
