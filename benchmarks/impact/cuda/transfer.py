"""Copies between host and GPU."""

from __future__ import annotations

from benchmarks.impact.cuda.workload import TRAINING, Workload

_BATCHES = (
    TRAINING
    + """
batches = [{"x": torch.randn(batch, width), "y": torch.randn(batch, width)} for _ in range(steps)]
"""
)
_PINNED = (
    _BATCHES
    + """
batches = [{name: pinned(value) for name, value in b.items()} for b in batches]
"""
)
_LOOP = """
for b in batches:
    b = {{name: value.to(device{0}) for name, value in b.items()}}
    loss = step(b["x"] + b["y"])
result = loss
"""
_SIZES = {
    "8 steps of 8 layers of 256, two tensors of 1 MB a batch": {
        "steps": 8,
        "depth": 8,
        "width": 256,
        "batch": 1024,
    },
    "5 steps of 12 layers of 2048, two tensors of 8 MB a batch": {
        "steps": 5,
        "depth": 12,
        "width": 2048,
        "batch": 1024,
    },
}
_SMALL = {"steps": 2, "depth": 2, "width": 8, "batch": 4}
_NET = """
torch.manual_seed(0)
layers = nn.Sequential(*(nn.Linear(width, width) for _ in range(depth))).to(device)
start = torch.randn(batch, length, width, device=device)
"""
_NET_SIZES = {
    "10 calls of 4 layers of 256, 8 x 128 tokens": {
        "calls": 10,
        "depth": 4,
        "width": 256,
        "batch": 8,
        "length": 128,
    },
    "10 calls of 4 layers of 1024, 16 x 512 tokens": {
        "calls": 10,
        "depth": 4,
        "width": 1024,
        "batch": 16,
        "length": 512,
    },
}
_NET_SMALL = {"calls": 2, "depth": 1, "width": 4, "batch": 2, "length": 3}


def _in_forward(setup: str, before: str, after: str) -> Workload:
    """`before` and `after` give `extra`, which is added to the input of a network, in each of several calls."""
    body = """
with torch.no_grad():
    for _ in range(calls):
        {}
        result = layers(start + extra)
"""
    return Workload(
        setup=_NET + setup,
        before=body.format(before),
        after=body.format(after),
        sizes=_NET_SIZES,
        small=_NET_SMALL,
        scope="the forward pass",
    )


WORKLOADS: dict[str, list[Workload]] = {
    "batch-copy-waits": [
        Workload(
            setup=_BATCHES + "pages = batches\n" + _PINNED.removeprefix(_BATCHES),
            before=_LOOP.format("").replace("in batches", "in pages"),
            after=_LOOP.format(", non_blocking=True"),
            sizes=_SIZES,
            small=_SMALL,
            scope="the training step",
        ),
    ],
    "blocking-copy-from-pinned-loader": [
        Workload(
            setup=_PINNED,
            before=_LOOP.format(""),
            after=_LOOP.format(", non_blocking=True"),
            sizes=_SIZES,
            small=_SMALL,
            scope="the training step",
        ),
    ],
    "batch-mover-blocks": [
        Workload(
            setup=_PINNED
            + """
def blocking(batch):
    return {name: value.to(device) for name, value in batch.items()}

def overlapping(batch):
    return {name: value.to(device, non_blocking=True) for name, value in batch.items()}
""",
            before="""
            for b in batches:
                b = blocking(b)
                loss = step(b["x"] + b["y"])
            result = loss
            """,
            after="""
            for b in batches:
                b = overlapping(b)
                loss = step(b["x"] + b["y"])
            result = loss
            """,
            sizes=_SIZES,
            small=_SMALL,
            scope="the training step",
        ),
    ],
    "factory-then-move": [
        _in_forward(
            "",
            "extra = torch.arange(length).to(device).float()[None, :, None]",
            "extra = torch.arange(length, device=device).float()[None, :, None]",
        ),
    ],
    "built-on-host-then-moved": [
        _in_forward(
            "",
            "extra = (torch.linspace(-1, 1, length)[:, None] * torch.linspace(-1, 1, width)).to(device)",
            "extra = torch.linspace(-1, 1, length, device=device)[:, None]"
            " * torch.linspace(-1, 1, width, device=device)",
        ),
    ],
    "constant-rebuilt-every-step": [
        _in_forward(
            "guidance = torch.tensor([3.5], device=device)",
            "extra = torch.tensor([3.5], device=device)",
            "extra = guidance",
        ),
    ],
    "python-data-sent": [
        _in_forward(
            "",
            "extra = torch.tensor(start.shape[1], device=device)",
            "extra = torch.full((), start.shape[1], device=device)",
        ),
    ],
    "tensor-from-python-then-move": [
        _in_forward(
            "numbers = [float(i) for i in range(width)]",
            "extra = torch.Tensor(numbers).to(device)",
            "extra = torch.tensor(numbers, dtype=torch.float32, device=device)",
        ),
    ],
    "table-copied-every-call": [
        _in_forward(
            "table = torch.linspace(0, 1, length * width).view(length, width)\non_device = table.to(device)",
            "extra = table.to(device)",
            "extra = on_device",
        ),
    ],
    "legacy-tensor-type": [
        _in_forward(
            "",
            "extra = (start > 0).type(torch.FloatTensor).to(device)",
            "extra = (start > 0).to(torch.float32)",
        ),
    ],
    "host-index": [
        Workload(
            setup="""
            torch.manual_seed(0)
            logits = torch.randn(batch, classes, device=device)
            labels = torch.randint(classes, (batch,), device=device)
            """,
            before="""
            for _ in range(calls):
                result = -logits.log_softmax(1)[torch.arange(len(labels)), labels].mean()
            """,
            after="""
            for _ in range(calls):
                rows = torch.arange(len(labels), device=logits.device)
                result = -logits.log_softmax(1)[rows, labels].mean()
            """,
            sizes={
                "10 calls, 256 x 1000 logits": {"calls": 10, "batch": 256, "classes": 1000},
                "10 calls, 8192 x 32,000 logits": {"calls": 10, "batch": 8192, "classes": 32_000},
            },
            small={"calls": 2, "batch": 3, "classes": 5},
            scope="the loss",
        ),
    ],
    "host-round-trip": [
        Workload(
            setup="torch.manual_seed(0)\nwavs = [torch.randn(n, device=device) for _ in range(batch)]",
            before="""
            out = [(w - w.mean()) / w.std() for w in (wav.cpu().numpy() for wav in wavs)]
            result = [torch.from_numpy(w).to(device) for w in out]
            """,
            after="result = [(w - w.mean()) / w.std(unbiased=False) for w in wavs]",
            sizes={
                "16 waves of 160,000 samples": {"batch": 16, "n": 160_000},
                "4 waves of 4000 samples": {"batch": 4, "n": 4000},
            },
            small={"batch": 2, "n": 30},
        ),
    ],
    "widened-before-copy": [
        Workload(
            setup="""
            torch.manual_seed(0)
            images = pinned(torch.randint(0, 256, (batch, 3, size, size), dtype=torch.uint8))
            """,
            before="result = images.float().to(device) / 255",
            after="result = images.to(device).float() / 255",
            sizes={
                "32 images of 224 x 224 in pinned memory": {"batch": 32, "size": 224},
                "128 images of 224 x 224 in pinned memory": {"batch": 128, "size": 224},
            },
            small={"batch": 2, "size": 4},
            scope="the copy of the batch",
        ),
    ],
    "cast-after-upload": [
        Workload(
            setup="import numpy as np\nvalues = np.random.default_rng(0).standard_normal(n)",
            before="result = torch.as_tensor(values, device=device).float()",
            after="result = torch.as_tensor(values, dtype=torch.float32, device=device)",
            sizes={
                "20,000 float64 numbers": {"n": 20_000},
                "4,000,000 float64 numbers": {"n": 4_000_000},
            },
            small={"n": 20},
            scope="the copy",
        ),
    ],
    "tensor-from-range": [
        Workload(
            setup="",
            before="result = torch.tensor(range(n), device=device)",
            after="result = torch.arange(n, device=device)",
            sizes={"1000 numbers": {"n": 1000}, "100,000 numbers": {"n": 100_000}},
            small={"n": 10},
        ),
    ],
    "tensor-through-list": [
        Workload(
            setup="""
            import numpy as np
            rng = np.random.default_rng(0)
            states = [rng.standard_normal(width).astype(np.float32) for _ in range(batch)]
            """,
            before="result = torch.tensor([state.tolist() for state in states]).to(device)",
            after="result = torch.from_numpy(np.stack(states)).to(device)",
            sizes={"256 states of 64 numbers": {"batch": 256, "width": 64}},
            small={"batch": 3, "width": 4},
        ),
    ],
    "clone-of-copy": [
        Workload(
            setup="torch.manual_seed(0)\nvalues = [torch.randn(width, width, device=device) for _ in range(count)]",
            before='result = [value.detach().clone().to("cpu") for value in values]',
            after='result = [value.detach().to("cpu", copy=True) for value in values]',
            sizes={"50 tensors of 512 x 512": {"count": 50, "width": 512}},
            small={"count": 2, "width": 3},
            scope="the copies",
        ),
    ],
}
