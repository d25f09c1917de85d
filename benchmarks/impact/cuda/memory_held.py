"""Memory that is held longer, or is more, than needed: the gain is memory, and may cost time."""

from __future__ import annotations

from benchmarks.impact.cuda.workload import FEW_STEPS, Workload

_LAYERS = """
torch.manual_seed(0)
model = nn.Sequential(*(nn.Linear(width, width) for _ in range(depth))).to(device)
batches = [torch.randn(batch, width, device=device) for _ in range(steps)]
"""
_PASSES = {
    "16 batches of 4096 x 1024, 4 layers, no autograd": {
        "steps": 16,
        "depth": 4,
        "width": 1024,
        "batch": 4096,
    },
}

WORKLOADS: dict[str, list[Workload]] = {
    "matrix-only-reduced": [
        Workload(
            setup="""
            torch.manual_seed(0)
            queries, points = torch.randn(n, 3, device=device), torch.randn(m, 3, device=device)
            """,
            before="result = torch.cdist(queries, points).amin(dim=1)",
            after="result = torch.cat([torch.cdist(part, points).amin(dim=1) for part in queries.split(4096)])",
            sizes={"16,384 against 16,384 points in space": {"n": 16_384, "m": 16_384}},
            small={"n": 5, "m": 6},
            gain="memory",
            tolerance=0.02,
        ),
    ],
    "held-until-reduced": [
        Workload(
            setup=_LAYERS,
            before="with torch.no_grad():\n    result = sum([model(x) for x in batches]) / steps",
            after="with torch.no_grad():\n    result = sum(model(x) for x in batches) / steps",
            sizes=_PASSES,
            small=FEW_STEPS,
            scope="the passes",
            gain="memory",
        ),
    ],
    "results-kept-on-device": [
        Workload(
            setup=_LAYERS,
            before="with torch.no_grad():\n    result = torch.cat([model(x) for x in batches]).cpu()",
            after="with torch.no_grad():\n    result = torch.cat([model(x).cpu() for x in batches])",
            sizes=_PASSES,
            small=FEW_STEPS,
            scope="the passes",
            gain="memory",
        ),
    ],
    "results-pile-up": [
        Workload(
            setup=_LAYERS,
            before="with torch.no_grad():\n    result = [model(x) for x in batches]\nresult = [r.cpu() for r in result]",
            after="with torch.no_grad():\n    result = [model(x).cpu() for x in batches]",
            sizes=_PASSES,
            small=FEW_STEPS,
            scope="the passes",
            gain="memory",
        ),
    ],
    "hidden-states-unused": [
        Workload(
            setup=_LAYERS
            + """
def encoder(x, output_hidden_states=False):
    hidden = [x]
    for layer in model:
        x = layer(x)
        if output_hidden_states:
            hidden.append(x)
    return hidden if output_hidden_states else [x]
""",
            before="with torch.no_grad():\n    result = encoder(batches[0], output_hidden_states=True)[-1]",
            after="with torch.no_grad():\n    result = encoder(batches[0])[-1]",
            sizes={
                "24 layers of 1024, 16,384 tokens": {"steps": 1, "depth": 24, "width": 1024, "batch": 16_384}
            },
            small={"steps": 1, "depth": 3, "width": 4, "batch": 2},
            scope="the forward pass",
            gain="memory",
        ),
    ],
    "moved-before-halving": [
        Workload(
            setup="""
            import copy
            torch.manual_seed(0)
            model = nn.Sequential(*(nn.Linear(width, width) for _ in range(depth)))
            """,
            before="result = copy.deepcopy(model).to(device).half()[-1].weight.detach()",
            after="result = copy.deepcopy(model).to(device, torch.float16)[-1].weight.detach()",
            sizes={"8 layers of 1024": {"depth": 8, "width": 1024}},
            small={"depth": 2, "width": 4},
            scope="the move to the device",
            gain="memory",
        ),
    ],
    "checkpoint-loaded-on-gpu": [
        Workload(
            setup="""
            import io
            torch.manual_seed(0)
            model = nn.Sequential(*(nn.Linear(width, width) for _ in range(depth))).to(device)
            file = io.BytesIO()
            torch.save(model.state_dict(), file)
            """,
            before="""
            file.seek(0)
            model.load_state_dict(torch.load(file, map_location=device))
            result = model[-1].weight.detach()
            """,
            after="""
            file.seek(0)
            model.load_state_dict(torch.load(file, map_location="cpu"))
            result = model[-1].weight.detach()
            """,
            sizes={"8 layers of 1024": {"depth": 8, "width": 1024}},
            small={"depth": 2, "width": 4},
            scope="loading the weights",
            gain="memory",
        ),
    ],
    "weights-copied-on-device": [
        Workload(
            setup="""
            import copy
            torch.manual_seed(0)
            model = nn.Sequential(*(nn.Linear(width, width) for _ in range(depth))).to(device)
            """,
            before="best = copy.deepcopy(model.state_dict())\nresult = best['0.weight'][0].cpu()",
            after="best = {k: v.detach().cpu().clone() for k, v in model.state_dict().items()}\nresult = best['0.weight'][0]",
            sizes={"8 layers of 1024": {"depth": 8, "width": 1024}},
            small={"depth": 2, "width": 4},
            scope="the snapshot",
            gain="memory",
        ),
    ],
}
