"""Switches that were left on or off."""

from __future__ import annotations

from benchmarks.impact.cuda.workload import FEW_STEPS, STEPS, TRAINING, Workload

WORKLOADS: dict[str, list[Workload]] = {
    "anomaly-detection-on": [
        Workload(
            setup=TRAINING,
            before="with torch.autograd.set_detect_anomaly(True):\n    for _ in range(steps):\n        result = step()",
            after="for _ in range(steps):\n    result = step()",
            sizes=STEPS,
            small=FEW_STEPS,
            scope="the training step",
        ),
    ],
    "cudnn-autotune-off": [
        Workload(
            setup="""
            torch.manual_seed(0)
            convolution = nn.Sequential(*(nn.Conv2d(channels, channels, 3, padding=1) for _ in range(depth))).to(device)
            x = torch.randn(batch, channels, size, size, device=device)

            def run(benchmark):
                torch.backends.cudnn.benchmark = benchmark
                out = convolution(x)
                out.mean().backward()
                grad = convolution[0].weight.grad
                convolution.zero_grad()
                torch.backends.cudnn.benchmark = False
                return out.detach(), grad
            """,
            before="result = run(False)",
            after="result = run(True)",
            sizes={
                "4 convolutions of 64 channels, 32 images of 56 x 56, forward and backward": {
                    "depth": 4,
                    "channels": 64,
                    "batch": 32,
                    "size": 56,
                },
                "4 convolutions of 256 channels, 32 images of 28 x 28, forward and backward": {
                    "depth": 4,
                    "channels": 256,
                    "batch": 32,
                    "size": 28,
                },
            },
            small={"depth": 1, "channels": 2, "batch": 2, "size": 5},
            scope="the convolutions",
            tolerance=0.02,
        ),
    ],
    "deterministic-left-on": [
        Workload(
            setup="""
            torch.manual_seed(0)
            table = torch.randn(rows, width, device=device, requires_grad=True)
            index = torch.randint(rows, (n,), device=device)
            up = torch.randn(n, width, device=device)

            def run(deterministic):
                torch.use_deterministic_algorithms(deterministic)
                out = table.index_select(0, index)
                (grad,) = torch.autograd.grad(out, table, up)
                torch.use_deterministic_algorithms(False)
                return grad
            """,
            before="result = run(True)",
            after="result = run(False)",
            sizes={
                "100,000 rows of 64 picked from 10,000, forward and backward": {
                    "n": 100_000,
                    "rows": 10_000,
                    "width": 64,
                },
            },
            small={"n": 9, "rows": 4, "width": 3},
            scope="the indexing",
        ),
    ],
}
