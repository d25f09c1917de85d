"""Masks, indices, sorting and counting."""

from __future__ import annotations

from benchmarks.impact.cuda.workload import Workload

_NUMBERS = {"10,000 numbers": {"n": 10_000}, "10,000,000 numbers": {"n": 10_000_000}}
_SMALL = {"n": 20}
_BOXES = "torch.manual_seed(0)\nboxes = torch.rand(n, 4, device=device)"
_ROWS = """
torch.manual_seed(0)
weight = torch.randn(rows, width, device=device, requires_grad=True)
index = torch.randint(rows, (n,), device=device)
up = torch.randn(n, width, device=device)
"""

WORKLOADS: dict[str, list[Workload]] = {
    "index-by-python-list": [
        Workload(
            setup=_BOXES,
            before="result = boxes[:, [0, 1]] + boxes[:, [2, 3]]",
            after="result = boxes[:, 0:2] + boxes[:, 2:4]",
            sizes={"1000 boxes": {"n": 1000}, "1,000,000 boxes": {"n": 1_000_000}},
            small={"n": 3},
        ),
    ],
    "masked-update-by-index": [
        Workload(
            setup="torch.manual_seed(0)\nx = torch.randn(n, device=device)",
            before="""
            mask = x.abs() > 1
            out = x.clone()
            out[mask] = (2 - 1 / x[mask].abs()) * x[mask]
            result = out
            """,
            after="mask = x.abs() > 1\nresult = torch.where(mask, (2 - 1 / x.abs()) * x, x)",
            sizes=_NUMBERS,
            small=_SMALL,
        ),
    ],
    "masked-arithmetic": [
        Workload(
            setup="torch.manual_seed(0)\nx, a, b = (torch.randn(n, device=device) for _ in range(3))",
            before="mask = (x > 0).float()\nresult = a * mask + b * (1 - mask)",
            after="result = torch.where(x > 0, a, b)",
            sizes=_NUMBERS,
            small=_SMALL,
        ),
    ],
    "constant-operand-filled": [
        Workload(
            setup="torch.manual_seed(0)\nx = torch.randn(n, device=device)\nmask = x > 0",
            before="result = torch.where(mask, x, torch.zeros_like(x))",
            after="result = torch.where(mask, x, 0)",
            sizes=_NUMBERS,
            small=_SMALL,
        ),
    ],
    "masked-select-expanded": [
        Workload(
            setup="""
            torch.manual_seed(0)
            x = torch.randn(n, width, device=device)
            mask = torch.rand(n, device=device) > 0.3
            """,
            before="result = x.masked_select(mask.unsqueeze(-1)).view(-1, x.size(-1))",
            after="result = x[mask]",
            sizes={
                "1000 rows of 64": {"n": 1000, "width": 64},
                "65,536 rows of 1024": {"n": 65_536, "width": 1024},
            },
            small={"n": 6, "width": 2},
        ),
    ],
    "count-to-test-any": [
        Workload(
            setup="torch.manual_seed(0)\nmask = torch.rand(n, device=device) > 0.5",
            before="result = len(torch.nonzero(mask)) > 0",
            after="result = bool(mask.any())",
            sizes=_NUMBERS,
            small=_SMALL,
        ),
    ],
    "argsort-of-permutation": [
        Workload(
            setup="torch.manual_seed(0)\np = torch.randperm(n, device=device)",
            before="result = p.argsort()",
            after="result = torch.empty_like(p)\nresult[p] = torch.arange(len(p), device=device)",
            sizes={"64 int64": {"n": 64}, "1,000,000 int64": {"n": 1_000_000}},
            small={"n": 5},
        ),
    ],
    "sort-for-top-k": [
        Workload(
            setup="torch.manual_seed(0)\nscores = torch.rand(rows, columns, device=device)",
            before="result = scores.sort(dim=-1, descending=True).values[:, :k]",
            after="result = scores.topk(k, dim=-1).values",
            sizes={
                "64 x 1000, the best 10": {"rows": 64, "columns": 1000, "k": 10},
                "1024 x 32,000, the best 50": {"rows": 1024, "columns": 32_000, "k": 50},
            },
            small={"rows": 2, "columns": 6, "k": 3},
        ),
    ],
    "activation-before-argmax": [
        Workload(
            setup="torch.manual_seed(0)\nlogits = torch.randn(rows, classes, device=device)",
            before="result = F.softmax(logits, dim=1).argmax(dim=1)",
            after="result = logits.argmax(dim=1)",
            sizes={
                "256 x 1000 logits": {"rows": 256, "classes": 1000},
                "8192 x 32,000 logits": {"rows": 8192, "classes": 32_000},
            },
            small={"rows": 3, "classes": 4},
        ),
    ],
    "sigmoid-before-threshold": [
        Workload(
            setup="torch.manual_seed(0)\nlogits = torch.randn(n, device=device)",
            before="result = (logits.sigmoid() > 0.5).sum()",
            after="result = (logits > 0).sum()",
            sizes=_NUMBERS,
            small=_SMALL,
        ),
    ],
    "sync-in-repeat-interleave": [
        Workload(
            setup="""
            torch.manual_seed(0)
            counts = torch.randint(1, 10, (groups,), device=device)
            peak = torch.randn(groups, width, device=device)
            src = torch.randn(int(counts.sum()), width, device=device)
            """,
            before="result = (src - peak.repeat_interleave(counts, dim=0)).exp()",
            after="result = (src - peak.repeat_interleave(counts, dim=0, output_size=src.size(0))).exp()",
            sizes={
                "1000 groups, 8 columns": {"groups": 1000, "width": 8},
                "100,000 groups, 64 columns": {"groups": 100_000, "width": 64},
            },
            small={"groups": 3, "width": 2},
        ),
    ],
    "weight-rows-by-index": [
        Workload(
            setup=_ROWS,
            before="""
            picked = weight[index]
            result = picked.detach(), *torch.autograd.grad(picked, weight, up)
            """,
            after="""
            picked = weight.index_select(0, index)
            result = picked.detach(), *torch.autograd.grad(picked, weight, up)
            """,
            sizes={
                "5000 of 20 rows of 64, forward and backward": {"n": 5000, "rows": 20, "width": 64},
                "200,000 of 100 rows of 128, forward and backward": {"n": 200_000, "rows": 100, "width": 128},
            },
            small={"n": 7, "rows": 3, "width": 2},
            tolerance=0.01,
        ),
    ],
    "one-hot-matmul": [
        Workload(
            setup="""
            torch.manual_seed(0)
            tokens = torch.randint(vocab, (n,), device=device)
            weight = torch.randn(vocab, width, device=device)
            """,
            before="result = F.one_hot(tokens, vocab).float() @ weight",
            after="result = F.embedding(tokens, weight)",
            sizes={
                "1024 indices into 1000 x 64, forward": {"n": 1024, "vocab": 1000, "width": 64},
                "4096 indices into 10,000 x 512, forward": {"n": 4096, "vocab": 10_000, "width": 512},
            },
            small={"n": 3, "vocab": 4, "width": 2},
        ),
    ],
    "one-hot-in-full": [
        Workload(
            setup="""
            torch.manual_seed(0)
            q_values = torch.randn(batch, actions, device=device)
            action = torch.randint(actions, (batch,), device=device)
            """,
            before="result = (F.one_hot(action, actions) * q_values).sum(-1)",
            after="result = q_values.gather(-1, action.unsqueeze(-1)).squeeze(-1)",
            sizes={
                "256 x 18 actions": {"batch": 256, "actions": 18},
                "65,536 x 512 actions": {"batch": 65_536, "actions": 512},
            },
            small={"batch": 3, "actions": 4},
        ),
        Workload(
            setup="torch.manual_seed(0)\nlabels = torch.randint(n, (b, size, size), device=device)",
            before="result = F.one_hot(labels, n).permute(0, 3, 1, 2).float()",
            after="result = torch.zeros(b, n, size, size, device=device).scatter_(1, labels.unsqueeze(1), 1)",
            sizes={"8 label maps of 512 x 512, 21 classes": {"b": 8, "size": 512, "n": 21}},
            small={"b": 2, "size": 3, "n": 4},
        ),
    ],
}
