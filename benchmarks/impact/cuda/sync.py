"""Waits of Python for the GPU."""

from __future__ import annotations

from benchmarks.impact.cuda.workload import FEW_STEPS, STEPS, TRAINING, Workload

WORKLOADS: dict[str, list[Workload]] = {
    "item-every-step": [
        Workload(
            setup=TRAINING,
            before="""
            total = 0.0
            for _ in range(steps):
                total += step().item()
            result = total
            """,
            after="""
            total = torch.zeros((), device=device)
            for _ in range(steps):
                total += step()
            result = total.item()
            """,
            sizes=STEPS,
            small=FEW_STEPS,
            scope="the training step",
        ),
    ],
    "size-read-from-device": [
        Workload(
            setup="""
            torch.manual_seed(0)
            pred = torch.randn(n, device=device, requires_grad=True)
            target = torch.randn(n, device=device)
            valid = torch.rand(n, device=device) > 0.3
            """,
            before="""
            loss = (pred[valid] - target[valid]).abs().mean()
            (grad,) = torch.autograd.grad(loss, pred)
            result = loss.detach(), grad
            """,
            after="""
            error = torch.where(valid, (pred - target).abs(), 0.0)
            loss = error.sum() / valid.sum()
            (grad,) = torch.autograd.grad(loss, pred)
            result = loss.detach(), grad
            """,
            sizes={
                "a masked L1 loss over 10,000 numbers, forward and backward": {"n": 10_000},
                "a masked L1 loss over 10,000,000 numbers, forward and backward": {"n": 10_000_000},
            },
            small={"n": 50},
            scope="the loss",
        ),
    ],
    "branch-on-tensor": [
        Workload(
            setup=TRAINING + "limit = 0.5",
            before="""
            for _ in range(steps):
                loss = F.mse_loss(model(x), y)
                if loss > limit:
                    loss = limit * loss / loss.detach()
                loss.backward()
                optimizer.step()
                optimizer.zero_grad()
            result = loss.detach()
            """,
            after="""
            for _ in range(steps):
                loss = F.mse_loss(model(x), y)
                loss = torch.where(loss > limit, limit * loss / loss.detach(), loss)
                loss.backward()
                optimizer.step()
                optimizer.zero_grad()
            result = loss.detach()
            """,
            sizes=STEPS,
            small=FEW_STEPS,
            scope="the training step",
        ),
    ],
    "host-copy-every-step": [
        Workload(
            setup=TRAINING
            + """
labels = torch.randint(width, (batch,), device=device)

def predict():
    logits = model(x)
    F.cross_entropy(logits, labels).backward()
    optimizer.step()
    optimizer.zero_grad()
    return logits.detach().argmax(1)
""",
            before="""
            predictions = []
            for _ in range(steps):
                predictions.extend(predict().cpu().tolist())
            result = predictions
            """,
            after="""
            predictions = []
            for _ in range(steps):
                predictions.append(predict())
            result = torch.cat(predictions).tolist()
            """,
            sizes=STEPS,
            small=FEW_STEPS,
            scope="the training step",
        ),
    ],
    "tensor-logged-every-step": [
        Workload(
            setup=TRAINING,
            before="""
            lines = []
            for number in range(steps):
                lines.append(f"loss {step()}")
            result = len(lines)
            """,
            after="""
            lines = []
            for number in range(steps):
                loss = step()
                lines.append("" if number % 100 else f"loss {loss.item()}")
            result = len(lines)
            """,
            sizes=STEPS,
            small=FEW_STEPS,
            scope="the training step",
        ),
    ],
    "synchronize-every-step": [
        Workload(
            setup=TRAINING,
            before="""
            for _ in range(steps):
                loss = step()
                torch.cuda.synchronize()
            result = loss
            """,
            after="""
            for _ in range(steps):
                loss = step()
            result = loss
            """,
            sizes=STEPS,
            small=FEW_STEPS,
            scope="the training step",
            needs_cuda="torch.cuda.synchronize needs a GPU",
        ),
    ],
    "tensor-formatted": [
        Workload(
            setup="""
            torch.manual_seed(0)
            weight = torch.randn(width, width, device=device) / width**0.5
            start = torch.randn(batch, width, device=device)

            def check(condition, text):
                if not condition:
                    raise ValueError(text)
            """,
            before="""
            x = start
            for _ in range(layers):
                check(x.dim() == 2, f"unexpected input: {x}")
                x = x @ weight
            result = x
            """,
            after="""
            x = start
            for _ in range(layers):
                check(x.dim() == 2, f"unexpected input of shape {x.shape}")
                x = x @ weight
            result = x
            """,
            sizes={"8 products of 1024 x 1024 with 1024 x 1024": {"width": 1024, "batch": 1024, "layers": 8}},
            small={"width": 4, "batch": 3, "layers": 2},
            scope="the forward pass",
        ),
    ],
    "tensor-as-python-number": [
        Workload(
            setup="""
            torch.manual_seed(0)
            layers = nn.ModuleList(nn.Linear(width, width) for _ in range(depth)).to(device)
            start = torch.randn(batch, length, width, device=device)
            lengths = torch.randint(1, length + 1, (batch,), device=device)
            lengths[0] = length

            def apply(layer, x, size):
                pad = torch.arange(size, device=device) >= lengths.unsqueeze(1)
                return layer(x).masked_fill(pad.unsqueeze(-1), 0.0)
            """,
            before="""
            with torch.no_grad():
                x = start
                for layer in layers:
                    x = apply(layer, x, max(0, lengths.max()))
            result = x
            """,
            after="""
            with torch.no_grad():
                x = start
                for layer in layers:
                    x = apply(layer, x, x.shape[1])
            result = x
            """,
            sizes={
                "8 layers of 256, 16 x 128 tokens": {"depth": 8, "width": 256, "batch": 16, "length": 128},
                "8 layers of 1024, 32 x 512 tokens": {"depth": 8, "width": 1024, "batch": 32, "length": 512},
            },
            small={"depth": 2, "width": 4, "batch": 3, "length": 5},
            scope="the forward pass",
        ),
    ],
    "elements-read-in-loop": [
        Workload(
            setup="""
            torch.manual_seed(0)
            scores = torch.randn(rows, columns, device=device)
            candidates = [f"name {i}" for i in range(columns)]
            limit = columns // 2
            """,
            before="""
            result = []
            for ranking in scores.argsort(1):
                result.append(len([candidates[i] for i in ranking if i < limit]))
            """,
            after="""
            result = []
            for ranking in scores.argsort(1).tolist():
                result.append(len([candidates[i] for i in ranking if i < limit]))
            """,
            sizes={"8 rankings of 64 candidates": {"rows": 8, "columns": 64}},
            small={"rows": 2, "columns": 6},
            scope="the loop",
        ),
    ],
    "invariant-read-in-loop": [
        Workload(
            setup="""
            torch.manual_seed(0)
            layers = nn.Sequential(*(nn.Linear(width, width) for _ in range(depth))).to(device)
            start = torch.randn(batch, width, device=device)
            mask = torch.rand(batch, 77, device=device) > 0.5

            def denoise(x, lengths):
                return layers(x) / max(lengths)
            """,
            before="""
            with torch.no_grad():
                x = start
                for _ in range(steps):
                    x = denoise(x, mask.sum(dim=1).tolist())
            result = x
            """,
            after="""
            with torch.no_grad():
                lengths = mask.sum(dim=1).tolist()
                x = start
                for _ in range(steps):
                    x = denoise(x, lengths)
            result = x
            """,
            sizes={
                "20 steps of 8 layers of 256, batch 64": {"steps": 20, "depth": 8, "width": 256, "batch": 64},
                "20 steps of 8 layers of 2048, batch 256": {
                    "steps": 20,
                    "depth": 8,
                    "width": 2048,
                    "batch": 256,
                },
            },
            small={"steps": 2, "depth": 2, "width": 4, "batch": 3},
            scope="the loop",
        ),
    ],
}
