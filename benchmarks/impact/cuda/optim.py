"""Optimizers, gradients and averages of weights."""

from __future__ import annotations

from benchmarks.impact.cuda.workload import FEW_STEPS, STEPS, TRAINING, Workload

# The 150 tensors of a small transformer, or of a large one, with gradients.
_PARAMETERS = """
torch.manual_seed(0)
shapes = [(width, width), (width,), (4 * width, width)] * (tensors // 3)
parameters = [nn.Parameter(torch.randn(shape, device=device)) for shape in shapes]
for p in parameters:
    p.grad = torch.randn_like(p)
"""
_SIZES = {
    "150 tensors, 5 million numbers in all, float32": {"tensors": 150, "width": 144},
    "150 tensors, 66 million numbers in all, float32": {"tensors": 150, "width": 512},
}
_SMALL = {"tensors": 6, "width": 4}
_AVERAGES = """
torch.manual_seed(0)
shapes = [(width, width), (width,), (4 * width, width)] * (tensors // 3)
student = [torch.randn(shape, device=device) for shape in shapes]
teacher = [p.clone() for p in student]
m = 0.5
"""


def _adam(before: str, after: str) -> Workload:
    """Both with a learning rate of 0, so that the weights stay."""
    make = "torch.optim.AdamW(parameters, lr=0.0, weight_decay=0.0{})"
    return Workload(
        setup=f"{_PARAMETERS}\nslow = {make.format(before)}\nfast = {make.format(after)}",
        before="slow.step()\nresult = parameters[0].detach()",
        after="fast.step()\nresult = parameters[0].detach()",
        sizes=_SIZES,
        small=_SMALL,
        scope="the optimizer step",
    )


WORKLOADS: dict[str, list[Workload]] = {
    "optimizer-not-fused": [
        _adam("", ", fused=True"),
        Workload(
            setup=TRAINING
            + """
fused = torch.optim.AdamW(model.parameters(), lr=0.0, weight_decay=0.0, fused=True)

def train(optimizer):
    for _ in range(steps):
        loss = F.mse_loss(model(x), y)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    return loss.detach()
""",
            before="result = train(optimizer)",
            after="result = train(fused)",
            sizes=STEPS,
            small=FEW_STEPS,
            scope="the training step",
        ),
    ],
    "fused-or-foreach-disabled": [_adam(", foreach=False", "")],
    "kernel-per-parameter": [
        Workload(
            setup=_AVERAGES,
            before="""
            for q, p in zip(teacher, student):
                q.lerp_(p, 1 - m)
            result = teacher[0]
            """,
            after="torch._foreach_lerp_(teacher, student, 1 - m)\nresult = teacher[0]",
            sizes=_SIZES,
            small=_SMALL,
            scope="the update of the average",
        ),
    ],
    "ema-update-allocates": [
        Workload(
            setup=_AVERAGES,
            before="""
            for p, q in zip(teacher, student):
                p.data = p.data * m + q.data * (1 - m)
            result = teacher[0]
            """,
            after="""
            for p, q in zip(teacher, student):
                p.data.mul_(m).add_(q.data, alpha=1 - m)
            result = teacher[0]
            """,
            sizes=_SIZES,
            small=_SMALL,
            scope="the update of the average",
        ),
    ],
    "gradients-zeroed-by-hand": [
        Workload(
            setup=TRAINING,
            before="""
            for _ in range(steps):
                loss = F.mse_loss(model(x), y)
                loss.backward()
                optimizer.step()
                for p in model.parameters():
                    if p.grad is not None:
                        p.grad.zero_()
            result = loss.detach()
            """,
            after="""
            for _ in range(steps):
                loss = F.mse_loss(model(x), y)
                loss.backward()
                optimizer.step()
                for p in model.parameters():
                    p.grad = None
            result = loss.detach()
            """,
            sizes=STEPS,
            small=FEW_STEPS,
            scope="the training step",
        ),
    ],
    "zero-grad-keeps-tensors": [
        Workload(
            setup=TRAINING,
            before="""
            for _ in range(steps):
                loss = F.mse_loss(model(x), y)
                loss.backward()
                optimizer.step()
                optimizer.zero_grad(set_to_none=False)
            result = loss.detach()
            """,
            after="""
            for _ in range(steps):
                loss = F.mse_loss(model(x), y)
                loss.backward()
                optimizer.step()
                optimizer.zero_grad(set_to_none=True)
            result = loss.detach()
            """,
            sizes=STEPS,
            small=FEW_STEPS,
            scope="the training step",
        ),
    ],
    "optimizer-built-in-loop": [
        Workload(
            setup=TRAINING,
            before="""
            for _ in range(steps):
                optimizer = torch.optim.AdamW(model.parameters(), lr=0.0, weight_decay=0.0)
                loss = F.mse_loss(model(x), y)
                loss.backward()
                optimizer.step()
                optimizer.zero_grad()
            result = loss.detach()
            """,
            after="for _ in range(steps):\n    result = step()",
            sizes=STEPS,
            small=FEW_STEPS,
            scope="the training step",
        ),
    ],
}
