"""Graphs that nobody needs."""

from __future__ import annotations

from benchmarks.impact.cuda.workload import FEW_STEPS, STEPS, TRAINING, Workload

_MODEL = """
torch.manual_seed(0)
layers = [layer for _ in range(depth) for layer in (nn.Linear(width, width), nn.GELU())]
model = nn.Sequential(*layers).to(device)
x = torch.randn(batch, width, device=device)
"""
_SIZES = {
    "16 layers of 256, batch 64": {"depth": 16, "width": 256, "batch": 64},
    "16 layers of 1024, batch 8192": {"depth": 16, "width": 1024, "batch": 8192},
}
_SMALL = {"depth": 2, "width": 4, "batch": 3}

WORKLOADS: dict[str, list[Workload]] = {
    "evaluation-records-graph": [
        Workload(
            setup=_MODEL,
            before="result = model(x).argmax(1).sum()",
            after="with torch.no_grad():\n    result = model(x).argmax(1).sum()",
            sizes=_SIZES,
            small=_SMALL,
            scope="the forward pass",
        ),
    ],
    "frozen-forward-records-graph": [
        Workload(
            setup=_MODEL
            + """
student = nn.Linear(width, width).to(device)

def distil(teacher_logits):
    loss = F.kl_div(student(x).log_softmax(-1), teacher_logits.softmax(-1), reduction="batchmean")
    student.zero_grad()
    loss.backward()
    return loss.detach()
""",
            before="result = distil(model(x).detach())",
            after="with torch.no_grad():\n    logits = model(x)\nresult = distil(logits)",
            sizes=_SIZES,
            small=_SMALL,
            scope="the training step",
        ),
    ],
    "requires-grad-toggled": [
        Workload(
            setup=_MODEL,
            before="""
            for p in model.parameters():
                p.requires_grad = False
            result = model(x)
            for p in model.parameters():
                p.requires_grad = True
            """,
            after="with torch.no_grad():\n    result = model(x)",
            sizes=_SIZES,
            small=_SMALL,
            scope="the forward pass",
        ),
    ],
    "graph-retained": [
        Workload(
            setup=TRAINING,
            before="""
            for _ in range(steps):
                loss = F.mse_loss(model(x), y)
                loss.backward(retain_graph=True)
                optimizer.step()
                optimizer.zero_grad()
            result = loss.detach()
            """,
            after="for _ in range(steps):\n    result = step()",
            sizes=STEPS,
            small=FEW_STEPS,
            scope="the training step",
            gain="memory",
        ),
    ],
    "metric-keeps-graph": [
        Workload(
            setup=TRAINING,
            before="""
            total = 0.0
            for _ in range(steps):
                loss = F.mse_loss(model(x), y)
                loss.backward()
                optimizer.step()
                optimizer.zero_grad()
                total += loss
            result = total.detach()
            """,
            after="""
            total = 0.0
            for _ in range(steps):
                total += step()
            result = total
            """,
            sizes=STEPS,
            small=FEW_STEPS,
            scope="the training step",
            gain="memory",
        ),
    ],
    "result-stored-with-graph": [
        Workload(
            setup=_MODEL + "count = 4",
            before="""
            recordings = []
            for _ in range(count):
                recordings.append(model(x).mean().cpu())
            result = torch.stack(recordings).detach()
            """,
            after="""
            recordings = []
            for _ in range(count):
                recordings.append(model(x).mean().detach().cpu())
            result = torch.stack(recordings)
            """,
            sizes=_SIZES,
            small=_SMALL,
            scope="the passes",
            gain="memory",
        ),
    ],
}
