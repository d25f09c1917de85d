"""Number formats."""

from __future__ import annotations

from benchmarks.impact.cuda.workload import FEW_STEPS, STEPS, TRAINING, Workload

_HALVED = """
torch.manual_seed(0)
layer = nn.TransformerEncoderLayer(width, 8, 4 * width, batch_first=True, dropout=0.0)
full = nn.TransformerEncoder(layer, depth, enable_nested_tensor=False).to(device).eval()
half = nn.TransformerEncoder(layer, depth, enable_nested_tensor=False).to(device, torch.bfloat16).eval()
x = torch.randn(batch, length, width, device=device)
x_half = x.bfloat16()
"""

WORKLOADS: dict[str, list[Workload]] = {
    "full-precision-training": [
        Workload(
            setup=TRAINING,
            before="for _ in range(steps):\n    result = step()",
            after="""
            for _ in range(steps):
                with torch.autocast(device, dtype=torch.bfloat16):
                    loss = F.mse_loss(model(x), y)
                loss.backward()
                optimizer.step()
                optimizer.zero_grad()
            result = loss.detach()
            """,
            sizes=STEPS,
            small=FEW_STEPS,
            scope="the training step",
            tolerance=0.05,
        ),
    ],
    "pretrained-in-full-precision": [
        Workload(
            setup=_HALVED,
            before="with torch.no_grad():\n    result = full(x)",
            after="with torch.no_grad():\n    result = half(x_half).float()",
            sizes={
                "6 transformer layers of 512, 8 x 128 tokens": {
                    "depth": 6,
                    "width": 512,
                    "batch": 8,
                    "length": 128,
                },
                "6 transformer layers of 1024, 8 x 512 tokens": {
                    "depth": 6,
                    "width": 1024,
                    "batch": 8,
                    "length": 512,
                },
            },
            small={"depth": 1, "width": 16, "batch": 2, "length": 3},
            scope="the forward pass",
            tolerance=0.3,
        ),
    ],
    "accidental-float64": [
        Workload(
            setup="""
            import numpy as np
            noise = np.random.default_rng(0).standard_normal((batch, 3, size, size))
            torch.manual_seed(0)
            x = torch.randn(batch, 3, size, size, device=device)
            """,
            before="noisy = x + torch.from_numpy(noise).to(device)\nresult = (noisy * noisy).mean().float()",
            after="noisy = x + torch.from_numpy(noise).float().to(device)\nresult = (noisy * noisy).mean()",
            sizes={
                "noise for 16 images of 224 x 224": {"batch": 16, "size": 224},
                "noise for 8 images of 32 x 32": {"batch": 8, "size": 32},
            },
            small={"batch": 2, "size": 4},
            scope="adding the noise",
        ),
        Workload(
            setup="""
            torch.manual_seed(0)
            pred = torch.randn(n, device=device, requires_grad=True)
            target = torch.randn(n, device=device, dtype=torch.float64)
            """,
            before="""
            loss = (pred - target).square().mean()
            result = loss.detach().float(), *torch.autograd.grad(loss, pred)
            """,
            after="""
            loss = (pred - target.float()).square().mean()
            result = loss.detach(), *torch.autograd.grad(loss, pred)
            """,
            sizes={"10,000,000 numbers, forward and backward": {"n": 10_000_000}},
            small={"n": 20},
            scope="the loss",
        ),
    ],
    "autocast-around-backward": [
        Workload(
            setup=TRAINING,
            before="""
            for _ in range(steps):
                with torch.autocast(device, dtype=torch.bfloat16):
                    loss = F.mse_loss(model(x), y)
                    loss.backward()
                    optimizer.step()
                optimizer.zero_grad()
            result = loss.detach()
            """,
            after="""
            for _ in range(steps):
                with torch.autocast(device, dtype=torch.bfloat16):
                    loss = F.mse_loss(model(x), y)
                loss.backward()
                optimizer.step()
                optimizer.zero_grad()
            result = loss.detach()
            """,
            sizes=STEPS,
            small=FEW_STEPS,
            scope="the training step",
            tolerance=0.05,
        ),
    ],
    "scaler-with-bfloat16": [
        Workload(
            setup=TRAINING
            + """
def train(scaler):
    for _ in range(steps):
        with torch.autocast(device, dtype=torch.bfloat16):
            loss = F.mse_loss(model(x), y)
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad()
    return loss.detach()

on, off = torch.amp.GradScaler(device, init_scale=1.0), torch.amp.GradScaler(device, enabled=False)
""",
            before="result = train(on)",
            after="result = train(off)",
            sizes=STEPS,
            small=FEW_STEPS,
            scope="the training step",
            tolerance=0.05,
        ),
    ],
}
