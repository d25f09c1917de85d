"""Kernels that are too many, or do too much."""

from __future__ import annotations

from benchmarks.impact.cuda.workload import Workload

_GRAD = "\nresult = out.detach(), *torch.autograd.grad(out, x, up)"
_X = """
torch.manual_seed(0)
x = torch.randn(rows, columns, device=device, requires_grad=True)
up = torch.randn_like(x)
"""
_X_SIZES = {
    "256 x 1024 float32, forward and backward": {"rows": 256, "columns": 1024},
    "16,384 x 4096 float32, forward and backward": {"rows": 16_384, "columns": 4096},
}
_X_SMALL = {"rows": 3, "columns": 4}
_LOGITS = {
    "256 x 1000 logits": {"rows": 256, "columns": 1000},
    "8192 x 32,000 logits": {"rows": 8192, "columns": 32_000},
}

WORKLOADS: dict[str, list[Workload]] = {
    "activation-by-hand": [
        Workload(
            setup=_X,
            before="out = x * torch.sigmoid(x)" + _GRAD,
            after="out = F.silu(x)" + _GRAD,
            sizes=_X_SIZES,
            small=_X_SMALL,
        ),
    ],
    "log-of-softmax": [
        Workload(
            setup="""
            torch.manual_seed(0)
            logits = torch.randn(rows, columns, device=device, requires_grad=True)
            target = torch.randint(columns, (rows,), device=device)
            """,
            before="""
            loss = F.nll_loss(torch.log(F.softmax(logits, dim=1)), target)
            result = loss.detach(), *torch.autograd.grad(loss, logits)
            """,
            after="""
            loss = F.cross_entropy(logits, target)
            result = loss.detach(), *torch.autograd.grad(loss, logits)
            """,
            sizes={f"{words}, forward and backward": size for words, size in _LOGITS.items()},
            small=_X_SMALL,
            scope="the loss",
        ),
    ],
    "logsumexp-by-hand": [
        Workload(
            setup="torch.manual_seed(0)\nscores = torch.randn(rows, columns, device=device)",
            before="result = torch.log(torch.sum(torch.exp(scores), dim=1))",
            after="result = torch.logsumexp(scores, dim=1)",
            sizes=_LOGITS,
            small=_X_SMALL,
        ),
    ],
    "repeated-expression": [
        Workload(
            setup="torch.manual_seed(0)\nx, mu, theta = (torch.rand(n, device=device) for _ in range(3))",
            before="result = x * torch.log(mu + 1e-6) - theta * torch.log(mu + 1e-6)",
            after="log_mu = torch.log(mu + 1e-6)\nresult = x * log_mu - theta * log_mu",
            sizes={"10,000 numbers": {"n": 10_000}, "10,000,000 numbers": {"n": 10_000_000}},
            small={"n": 4},
        ),
    ],
    "product-then-sum": [
        Workload(
            setup="""
            torch.manual_seed(0)
            x = torch.randn(rows, columns, device=device)
            att = torch.randn(1, columns, device=device) / columns**0.5
            """,
            before="result = (x * att).sum(dim=-1)",
            after="result = x @ att.view(-1)",
            sizes={
                "5000 x 64 float32": {"rows": 5000, "columns": 64},
                "500,000 x 256 float32": {"rows": 500_000, "columns": 256},
            },
            small={"rows": 3, "columns": 4},
        ),
    ],
    "repeat-for-broadcast": [
        Workload(
            setup="""
            torch.manual_seed(0)
            points = torch.randn(n, width, device=device)
            others = torch.randn(n, n, width, device=device)
            """,
            before="result = points.unsqueeze(1).repeat(1, n, 1) - others",
            after="result = points.unsqueeze(1).expand(-1, n, -1) - others",
            sizes={
                "100 x 100 x 3 float32": {"n": 100, "width": 3},
                "1024 x 1024 x 64 float32": {"n": 1024, "width": 64},
            },
            small={"n": 3, "width": 2},
        ),
    ],
    "repeat-passed-on": [
        Workload(
            setup="""
            torch.manual_seed(0)
            embed = torch.randn(queries, width, device=device)
            memory = torch.randn(queries, batch, width, device=device)
            """,
            before="result = embed.unsqueeze(1).repeat(1, batch, 1) + memory",
            after="result = embed.unsqueeze(1).expand(-1, batch, -1) + memory",
            sizes={
                "100 queries of 256, batch 8": {"queries": 100, "width": 256, "batch": 8},
                "900 queries of 1024, batch 64": {"queries": 900, "width": 1024, "batch": 64},
            },
            small={"queries": 3, "width": 2, "batch": 2},
        ),
    ],
    "bias-added-apart": [
        Workload(
            setup="""
            torch.manual_seed(0)
            x = torch.randn(n, width, device=device, dtype=torch.bfloat16)
            weight = torch.randn(width, width, device=device, dtype=torch.bfloat16) / width**0.5
            bias = torch.randn(width, device=device, dtype=torch.bfloat16)
            """,
            before="result = torch.mm(x, weight) + bias",
            after="result = torch.addmm(bias, x, weight)",
            sizes={
                "256 x 512 with 512 x 512, bfloat16": {"n": 256, "width": 512},
                "16,384 x 2048 with 2048 x 2048, bfloat16": {"n": 16_384, "width": 2048},
            },
            small={"n": 3, "width": 4},
            tolerance=0.05,
        ),
    ],
    "linear-bias-before-batchnorm": [
        Workload(
            setup="""
            torch.manual_seed(0)
            x = torch.randn(batch, channels, size, size, device=device)
            a = nn.Sequential(nn.Conv2d(channels, channels, 3), nn.BatchNorm2d(channels)).to(device)
            b = nn.Sequential(nn.Conv2d(channels, channels, 3, bias=False), nn.BatchNorm2d(channels)).to(device)
            b[0].weight = a[0].weight

            def run(block):
                out = block(x)
                out.square().mean().backward()
                block.zero_grad()
                return out.detach()
            """,
            before="result = run(a)",
            after="result = run(b)",
            sizes={
                "32 x 64 x 56 x 56 float32, forward and backward": {"batch": 32, "channels": 64, "size": 56}
            },
            small={"batch": 2, "channels": 2, "size": 5},
            scope="the two layers",
            tolerance=0.02,
        ),
    ],
    "product-and-its-transpose": [
        Workload(
            setup="""
            torch.manual_seed(0)
            image = F.normalize(torch.randn(n, width, device=device))
            text = F.normalize(torch.randn(n, width, device=device))
            """,
            before="result = 10 * image @ text.t(), 10 * text @ image.t()",
            after="logits = 10 * image @ text.t()\nresult = logits, logits.t()",
            sizes={
                "256 x 512 float32": {"n": 256, "width": 512},
                "4096 x 768 float32": {"n": 4096, "width": 768},
            },
            small={"n": 3, "width": 2},
        ),
    ],
    "inverse-then-multiply": [
        Workload(
            setup="""
            torch.manual_seed(0)
            a = torch.randn(batch, n, n, device=device) + 4 * n**0.5 * torch.eye(n, device=device)
            b = torch.randn(batch, n, 8, device=device)
            """,
            before="result = torch.linalg.inv(a) @ b",
            after="result = torch.linalg.solve(a, b)",
            sizes={
                "64 x 64 x 64 float32, 8 right-hand sides": {"batch": 64, "n": 64},
                "1024 x 1024 float32, 8 right-hand sides": {"batch": 1, "n": 1024},
            },
            small={"batch": 2, "n": 3},
        ),
    ],
    "decomposition-in-full": [
        Workload(
            setup="torch.manual_seed(0)\nweight = torch.randn(n, n, device=device)",
            before="_, s, _ = torch.linalg.svd(weight)\nresult = s",
            after="result = torch.linalg.svdvals(weight)",
            sizes={"128 x 128 float32": {"n": 128}},
            small={"n": 4},
            tolerance=0.01,
        ),
    ],
    "dense-matrix-for-scaling": [
        Workload(
            setup="torch.manual_seed(0)\nscale = torch.rand(n, device=device)\nx = torch.randn(n, width, device=device)",
            before="result = torch.diag(scale) @ x",
            after="result = scale[:, None] * x",
            sizes={
                "256 x 256 float32": {"n": 256, "width": 256},
                "8192 x 512 float32": {"n": 8192, "width": 512},
            },
            small={"n": 3, "width": 2},
        ),
    ],
    "computed-then-sliced": [
        Workload(
            setup="""
            torch.manual_seed(0)
            head = nn.Sequential(nn.LayerNorm(width), nn.Linear(width, width)).to(device)
            hidden = torch.randn(batch, length, width, device=device)
            """,
            before="with torch.no_grad():\n    result = head(hidden)[:, 0]",
            after="with torch.no_grad():\n    result = head(hidden[:, 0])",
            sizes={
                "8 x 64 positions of 256": {"batch": 8, "length": 64, "width": 256},
                "64 x 197 positions of 1024": {"batch": 64, "length": 197, "width": 1024},
            },
            small={"batch": 2, "length": 3, "width": 4},
            scope="the head",
        ),
    ],
    "repeated-before-module": [
        Workload(
            setup="""
            torch.manual_seed(0)
            layers = [layer for _ in range(4) for layer in (nn.Linear(width, width), nn.GELU())]
            encoder = nn.Sequential(*layers).to(device)
            images = torch.randn(batch, length, width, device=device)
            """,
            before="with torch.no_grad():\n    result = encoder(images.repeat_interleave(4, dim=0))",
            after="with torch.no_grad():\n    result = encoder(images).repeat_interleave(4, dim=0)",
            sizes={
                "4 layers of 256, 4 x 50 positions, 4 beams": {"width": 256, "batch": 4, "length": 50},
                "4 layers of 1024, 16 x 197 positions, 4 beams": {"width": 1024, "batch": 16, "length": 197},
            },
            small={"width": 4, "batch": 2, "length": 3},
            scope="the encoder",
        ),
    ],
    "module-built-in-forward": [
        Workload(
            setup="""
            torch.manual_seed(0)
            x = torch.randn(batch, width, device=device)
            norm = nn.LayerNorm(width).to(device)
            """,
            before="result = nn.LayerNorm(x.size(-1)).to(device)(x).detach()",
            after="result = norm(x).detach()",
            sizes={
                "a layer norm of 64 x 512": {"batch": 64, "width": 512},
                "a layer norm of 16,384 x 4096": {"batch": 16_384, "width": 4096},
            },
            small={"batch": 2, "width": 4},
            scope="the layer",
        ),
    ],
    "table-rebuilt-every-call": [
        Workload(
            setup="""
            torch.manual_seed(0)
            x = torch.randn(batch, length, width, device=device)
            def angles():
                rates = 10_000 ** (-torch.arange(0, width, 2, device=device) / width)
                at = torch.arange(length, device=device)[:, None] * rates
                return torch.cat([at.sin(), at.cos()], dim=-1)
            table = angles()
            """,
            before="result = x + angles()",
            after="result = x + table",
            sizes={
                "positions for 4 x 128 x 256": {"batch": 4, "length": 128, "width": 256},
                "positions for 16 x 2048 x 1024": {"batch": 16, "length": 2048, "width": 1024},
            },
            small={"batch": 2, "length": 3, "width": 4},
            scope="adding the positions",
        ),
    ],
    "argument-reworked-by-each-call": [
        Workload(
            setup="""
            torch.manual_seed(0)
            q, k = (torch.randn(batch, heads, length, 64, device=device) for _ in range(2))
            pos = torch.rand(length, 64, device=device)

            def half(t):
                a, b = t.chunk(2, dim=-1)
                return torch.cat([-b, a], dim=-1)

            def slow(t):
                return t * pos.cos() + half(t) * pos.sin()

            def fast(t, cos, sin):
                return t * cos + half(t) * sin
            """,
            before="result = slow(q), slow(k)",
            after="cos, sin = pos.cos(), pos.sin()\nresult = fast(q, cos, sin), fast(k, cos, sin)",
            sizes={
                "2 x 8 heads, 128 positions": {"batch": 2, "heads": 8, "length": 128},
                "8 x 16 heads, 1024 positions": {"batch": 8, "heads": 16, "length": 1024},
            },
            small={"batch": 1, "heads": 2, "length": 3},
            scope="the rotation",
        ),
    ],
}
