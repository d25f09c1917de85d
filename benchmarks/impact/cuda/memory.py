"""Memory that is written for nothing. What is held is in `memory_held`; the host's side in `transfer`."""

from __future__ import annotations

from benchmarks.impact.cuda.workload import FEW_STEPS, STEPS, TRAINING, Workload

_TOKENS = """
torch.manual_seed(0)
logits = torch.randn(batch, length, vocab, device=device, dtype=torch.bfloat16, requires_grad=True)
labels = torch.randint(vocab, (batch, length), device=device)
"""
_TOKEN_SIZES = {
    "4 x 512 tokens, 8000 classes, bfloat16, forward and backward": {
        "batch": 4,
        "length": 512,
        "vocab": 8000,
    },
    "8 x 1024 tokens, 32,000 classes, bfloat16, forward and backward": {
        "batch": 8,
        "length": 1024,
        "vocab": 32_000,
    },
}
_TOKEN_SMALL = {"batch": 2, "length": 4, "vocab": 7}

WORKLOADS: dict[str, list[Workload]] = {
    "weighted-sum-in-full": [
        Workload(
            setup="""
            torch.manual_seed(0)
            weights = torch.rand(rays, samples, device=device, requires_grad=True)
            rgb = torch.rand(rays, samples, channels, device=device, requires_grad=True)
            up = torch.randn(rays, channels, device=device)
            """,
            before="""
            out = torch.sum(weights.unsqueeze(-1) * rgb, dim=-2)
            result = out.detach(), *torch.autograd.grad(out, (weights, rgb), up)
            """,
            after="""
            out = torch.einsum("...s,...sc->...c", weights, rgb)
            result = out.detach(), *torch.autograd.grad(out, (weights, rgb), up)
            """,
            sizes={
                "4096 rays, 64 samples, 3 channels, forward and backward": {
                    "rays": 4096,
                    "samples": 64,
                    "channels": 3,
                },
                "16,384 rays, 128 samples, 32 channels, forward and backward": {
                    "rays": 16_384,
                    "samples": 128,
                    "channels": 32,
                },
            },
            small={"rays": 3, "samples": 4, "channels": 2},
        ),
    ],
    "shifted-logits-copied": [
        Workload(
            setup=_TOKENS,
            before="""
            shift_logits = logits[..., :-1, :].contiguous()
            shift_labels = labels[..., 1:].contiguous()
            loss = F.cross_entropy(shift_logits.view(-1, vocab), shift_labels.view(-1))
            result = loss.detach(), *torch.autograd.grad(loss, logits)
            """,
            after="""
            shift_labels = F.pad(labels, (0, 1), value=-100)[..., 1:].contiguous()
            loss = F.cross_entropy(logits.view(-1, vocab), shift_labels.view(-1))
            result = loss.detach(), *torch.autograd.grad(loss, logits)
            """,
            sizes=_TOKEN_SIZES,
            small=_TOKEN_SMALL,
            scope="the loss",
            tolerance=0.05,
        ),
    ],
    "softmax-of-upcast": [
        Workload(
            setup="torch.manual_seed(0)\nscores = torch.randn(n, heads, length, length, device=device).bfloat16()",
            before="result = F.softmax(scores.float(), dim=-1).type_as(scores)",
            after="result = F.softmax(scores, dim=-1, dtype=torch.float32).type_as(scores)",
            sizes={"8 x 12 x 1024 x 1024 bfloat16": {"n": 8, "heads": 12, "length": 1024}},
            small={"n": 1, "heads": 2, "length": 4},
            tolerance=0.02,
        ),
    ],
    "norm-by-hand": [
        Workload(
            setup="""
            torch.manual_seed(0)
            x = torch.randn(tokens, width, device=device, dtype=torch.bfloat16, requires_grad=True)
            weight = torch.ones(width, device=device, dtype=torch.bfloat16, requires_grad=True)
            up = torch.randn_like(x)
            """,
            before="""
            out = x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-5) * weight
            result = out.detach(), torch.autograd.grad(out, (x, weight), up)[0]
            """,
            after="""
            out = F.rms_norm(x, (x.shape[-1],), weight, 1e-5)
            result = out.detach(), torch.autograd.grad(out, (x, weight), up)[0]
            """,
            sizes={
                "1024 tokens of 512, bfloat16, forward and backward": {"tokens": 1024, "width": 512},
                "16,384 tokens of 4096, bfloat16, forward and backward": {"tokens": 16_384, "width": 4096},
            },
            small={"tokens": 3, "width": 8},
            tolerance=0.15,
        ),
    ],
    "cache-cleared-every-step": [
        Workload(
            setup=TRAINING,
            before="for _ in range(steps):\n    result = step()\n    torch.cuda.empty_cache()",
            after="for _ in range(steps):\n    result = step()",
            sizes=STEPS,
            small=FEW_STEPS,
            scope="the training step",
        ),
    ],
    "logits-of-unused-positions": [
        Workload(
            setup="""
            torch.manual_seed(0)
            head = nn.Linear(width, vocab, bias=False, device=device, dtype=torch.bfloat16)
            hidden = torch.randn(batch, length, width, device=device, dtype=torch.bfloat16)
            """,
            before="with torch.no_grad():\n    result = head(hidden)[:, -1]",
            after="with torch.no_grad():\n    result = head(hidden[:, -1])",
            sizes={
                "4 x 512 positions of 1024, 32,000 classes, bfloat16": {
                    "batch": 4,
                    "length": 512,
                    "width": 1024,
                    "vocab": 32_000,
                },
            },
            small={"batch": 2, "length": 3, "width": 4, "vocab": 5},
            scope="the head",
            tolerance=0.05,
        ),
    ],
    "cast-to-count": [
        Workload(
            setup="""
            torch.manual_seed(0)
            a = torch.randint(100, (batch, n), device=device)
            b = torch.randint(100, (batch, n), device=device)
            """,
            before="result = (a[:, :, None] == b[:, None]).float().sum(dim=-1).long()",
            after="result = (a[:, :, None] == b[:, None]).sum(dim=-1)",
            sizes={
                "32 x 1024 x 1024 comparisons": {"batch": 32, "n": 1024},
                "4 x 100 x 100 comparisons": {"batch": 4, "n": 100},
            },
            small={"batch": 2, "n": 5},
        ),
    ],
    "filled-tensor-as-operand": [
        Workload(
            setup="""
            torch.manual_seed(0)
            scores = torch.randn(batch, n, n, device=device)
            mask = torch.rand(batch, n, n, device=device) > 0.5
            """,
            before="result = torch.where(mask, scores, torch.full_like(scores, -1e9))",
            after="result = scores.masked_fill(~mask, -1e9)",
            sizes={
                "8 x 128 x 128 float32": {"batch": 8, "n": 128},
                "64 x 1024 x 1024 float32": {"batch": 64, "n": 1024},
            },
            small={"batch": 2, "n": 3},
        ),
    ],
    "factory-then-cast": [
        Workload(
            setup="",
            before="result = torch.triu(torch.ones(n, n, device=device), diagonal=1).bool()",
            after="result = torch.triu(torch.ones(n, n, device=device, dtype=torch.bool), diagonal=1)",
            sizes={"a mask of 512 x 512": {"n": 512}, "a mask of 8192 x 8192": {"n": 8192}},
            small={"n": 4},
        ),
    ],
    "clone-only-read": [
        Workload(
            setup="torch.manual_seed(0)\nx = torch.randn(batch, length, width, device=device)",
            before="result = x.clone().mean(dim=1)",
            after="result = x.mean(dim=1)",
            sizes={
                "32 x 197 x 768 float32": {"batch": 32, "length": 197, "width": 768},
                "64 x 1024 x 1024 float32": {"batch": 64, "length": 1024, "width": 1024},
            },
            small={"batch": 2, "length": 3, "width": 4},
        ),
    ],
    "abs-before-max": [
        Workload(
            setup="torch.manual_seed(0)\nweight = torch.randn(rows, columns, device=device)",
            before="result = weight.abs().amax(dim=1, keepdim=True)",
            after='result = torch.linalg.vector_norm(weight, float("inf"), dim=1, keepdim=True)',
            sizes={
                "1024 x 1024 float32": {"rows": 1024, "columns": 1024},
                "16,384 x 8192 float32": {"rows": 16_384, "columns": 8192},
            },
            small={"rows": 3, "columns": 4},
        ),
    ],
    "pairwise-difference": [
        Workload(
            setup="""
            torch.manual_seed(0)
            x, y = torch.randn(n, width, device=device), torch.randn(m, width, device=device)
            """,
            before="result = (x[:, None] - y[None]).pow(2).sum(-1)",
            after="result = torch.cdist(x, y).square()",
            sizes={
                "256 x 256 vectors of 64": {"n": 256, "m": 256, "width": 64},
                "4096 x 2048 vectors of 64": {"n": 4096, "m": 2048, "width": 64},
            },
            small={"n": 3, "m": 4, "width": 5},
            tolerance=0.01,
        ),
    ],
    "parameter-rebound": [
        Workload(
            setup="""
            torch.manual_seed(0)
            model = nn.Sequential(*(nn.Linear(width, width) for _ in range(depth))).to(device)
            """,
            before="""
            for p in model.parameters():
                p.data = p.data.clamp(-0.01, 0.01)
            result = [p.detach() for p in model.parameters()]
            """,
            after="""
            for p in model.parameters():
                p.data.clamp_(-0.01, 0.01)
            result = [p.detach() for p in model.parameters()]
            """,
            sizes={
                "20 layers of 256": {"depth": 20, "width": 256},
                "8 layers of 2048": {"depth": 8, "width": 2048},
            },
            small={"depth": 2, "width": 4},
            scope="the change of the weights",
        ),
    ],
}
