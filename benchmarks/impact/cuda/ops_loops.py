"""Python loops over what is one kernel, or one call of a network."""

from __future__ import annotations

from benchmarks.impact.cuda.workload import Workload

_NET = """
torch.manual_seed(0)
layers = [layer for _ in range(depth) for layer in (nn.Linear(width, width), nn.GELU())]
model = nn.Sequential(*layers).to(device).eval()
"""
_NET_SIZES = {
    "32 samples, 8 layers of 256": {"n": 32, "depth": 8, "width": 256},
    "64 samples, 8 layers of 2048": {"n": 64, "depth": 8, "width": 2048},
}
_NET_SMALL = {"n": 3, "depth": 1, "width": 4}

WORKLOADS: dict[str, list[Workload]] = {
    "cat-in-loop": [
        Workload(
            setup="torch.manual_seed(0)\nbatches = [torch.randn(n, width, device=device) for _ in range(count)]",
            before="""
            preds = torch.empty(0, width, device=device)
            for x in batches:
                preds = torch.cat([preds, x])
            result = preds
            """,
            after="""
            preds = []
            for x in batches:
                preds.append(x)
            result = torch.cat(preds)
            """,
            sizes={
                "100 batches of 64 x 10": {"count": 100, "n": 64, "width": 10},
                "100 batches of 256 x 1000": {"count": 100, "n": 256, "width": 1000},
            },
            small={"count": 3, "n": 2, "width": 2},
            scope="the loop",
        ),
    ],
    "tensor-grown-across-calls": [
        Workload(
            setup="torch.manual_seed(0)\nupdates = [torch.randn(n, device=device) for _ in range(count)]",
            before="""
            state = torch.empty(0, device=device)
            for update in updates:
                state = torch.cat([state, update])
            result = state.mean()
            """,
            after="""
            state = []
            for update in updates:
                state.append(update)
            result = torch.cat(state).mean()
            """,
            sizes={"200 updates of 4096 numbers": {"count": 200, "n": 4096}},
            small={"count": 3, "n": 2},
            scope="the updates and the result",
        ),
    ],
    "item-per-element": [
        Workload(
            setup="torch.manual_seed(0)\nids = torch.randint(50_000, (n,), device=device)",
            before="result = [t.item() for t in ids]",
            after="result = ids.tolist()",
            sizes={"16 token ids": {"n": 16}, "1024 token ids": {"n": 1024}},
            small={"n": 5},
        ),
    ],
    "element-loop": [
        Workload(
            setup="torch.manual_seed(0)\nx = torch.randn(n, device=device)",
            before="""
            result = torch.zeros_like(x)
            for i in range(len(x)):
                result[i] = torch.sigmoid(x[i]) * 2 - 1
            """,
            after="result = torch.sigmoid(x) * 2 - 1",
            sizes={"32 numbers": {"n": 32}, "512 numbers": {"n": 512}},
            small={"n": 5},
            scope="the loop",
        ),
    ],
    "element-test-loop": [
        Workload(
            setup="""
            torch.manual_seed(0)
            mask = torch.rand(rows, columns, device=device)
            mask[:, 0] = 1
            values = torch.randn(rows, columns, device=device)
            """,
            before="""
            last = []
            for i in range(mask.size(0)):
                for t in reversed(range(mask.size(1))):
                    if mask[i][t] > 0.9:
                        last.append(values[i][t])
                        break
            result = torch.stack(last)
            """,
            after="""
            steps = torch.arange(mask.size(1), device=device)
            at = torch.where(mask > 0.9, steps, 0).argmax(dim=1, keepdim=True)
            result = values.gather(1, at).squeeze(1)
            """,
            sizes={"32 sequences of 128": {"rows": 32, "columns": 128}},
            small={"rows": 3, "columns": 5},
            scope="the loop",
        ),
    ],
    "row-loop": [
        Workload(
            setup="torch.manual_seed(0)\nscores = torch.randn(rows, columns, device=device)",
            before="""
            tags = []
            for row in scores:
                tags.append(F.softmax(row, dim=0).argmax().item())
            result = tags
            """,
            after="result = F.softmax(scores, dim=-1).argmax(dim=-1).tolist()",
            sizes={
                "16 rows of 50": {"rows": 16, "columns": 50},
                "512 rows of 1000": {"rows": 512, "columns": 1000},
            },
            small={"rows": 3, "columns": 4},
            scope="the loop",
        ),
    ],
    "slice-loop": [
        Workload(
            setup="torch.manual_seed(0)\nx = torch.randn(n, rows, columns, device=device)",
            before="result = torch.stack([F.softmax(x[i], dim=1) for i in range(x.size(0))], 0)",
            after="result = F.softmax(x, dim=2)",
            sizes={
                "32 slices of 64 x 64": {"n": 32, "rows": 64, "columns": 64},
                "32 slices of 2048 x 1024": {"n": 32, "rows": 2048, "columns": 1024},
            },
            small={"n": 3, "rows": 2, "columns": 4},
            scope="the loop",
        ),
    ],
    "per-sample-loop": [
        Workload(
            setup="""
            torch.manual_seed(0)
            x = torch.randn(batch, length, width, device=device)
            lengths = torch.randint(1, length + 1, (batch,), device=device)
            """,
            before="result = torch.stack([x[i, : lengths[i]].mean(0) for i in range(x.size(0))])",
            after="""
            mask = torch.arange(x.size(1), device=device) < lengths[:, None]
            result = (x * mask[..., None]).sum(1) / lengths[:, None]
            """,
            sizes={
                "16 samples of up to 64 x 256": {"batch": 16, "length": 64, "width": 256},
                "128 samples of up to 512 x 768": {"batch": 128, "length": 512, "width": 768},
            },
            small={"batch": 3, "length": 4, "width": 2},
            scope="the loop",
        ),
    ],
    "mask-filled-per-sample": [
        Workload(
            setup="""
            torch.manual_seed(0)
            lengths = torch.randint(1, length + 1, (batch,), device=device)
            counts = lengths.tolist()
            """,
            before="""
            mask = torch.zeros(batch, length, dtype=torch.bool, device=device)
            for i, n in enumerate(counts):
                mask[i, :n] = 1
            result = mask
            """,
            after="result = torch.arange(length, device=device) < lengths[:, None]",
            sizes={
                "16 samples of up to 512": {"batch": 16, "length": 512},
                "256 samples of up to 512": {"batch": 256, "length": 512},
            },
            small={"batch": 3, "length": 4},
            scope="the mask",
        ),
    ],
    "pairwise-loop": [
        Workload(
            setup="torch.manual_seed(0)\nx, y = torch.randn(n, 64, device=device), torch.randn(n, 64, device=device)",
            before="""
            d = torch.zeros(len(x), len(y), device=device)
            for i in range(len(x)):
                for j in range(len(y)):
                    d[i, j] = torch.norm(x[i] - y[j])
            result = d
            """,
            after="result = torch.cdist(x, y)",
            sizes={"16 x 16 vectors of 64": {"n": 16}},
            small={"n": 3},
            scope="the loops",
            tolerance=0.01,
        ),
    ],
    "python-reduction-over-tensor": [
        Workload(
            setup="torch.manual_seed(0)\nlengths = torch.randint(1, 500, (n,), device=device)",
            before="result = int(max(lengths))",
            after="result = int(lengths.max())",
            sizes={"16 lengths": {"n": 16}, "512 lengths": {"n": 512}},
            small={"n": 4},
        ),
    ],
    "selection-per-value": [
        Workload(
            setup="torch.manual_seed(0)\nlabels = torch.randint(classes, (n,), device=device)",
            before="""
            counts = torch.zeros(classes, device=device, dtype=torch.long)
            for c in range(classes):
                counts[c] = (labels == c).sum()
            result = counts
            """,
            after="result = torch.bincount(labels, minlength=classes)",
            sizes={
                "10 classes, 10,000 labels": {"classes": 10, "n": 10_000},
                "150 classes, 2,000,000 labels": {"classes": 150, "n": 2_000_000},
            },
            small={"classes": 3, "n": 10},
            scope="the loop",
        ),
    ],
    "counted-one-by-one": [
        Workload(
            setup="""
            torch.manual_seed(0)
            labels = torch.randint(classes, (n,), device=device)
            preds = torch.randint(classes, (n,), device=device)
            """,
            before="""
            matrix = torch.zeros(classes, classes, dtype=torch.long, device=device)
            for t, p in zip(labels.view(-1), preds.view(-1)):
                matrix[t, p] += 1
            result = matrix
            """,
            after="""
            flat = labels.view(-1) * classes + preds.view(-1)
            result = torch.bincount(flat, minlength=classes * classes).view(classes, classes)
            """,
            sizes={"256 labels of 10 classes": {"classes": 10, "n": 256}},
            small={"classes": 3, "n": 6},
            scope="the loop",
        ),
    ],
    "copy-per-row": [
        Workload(
            setup="torch.manual_seed(0)\nscores = torch.randn(rows, columns, device=device)",
            before="result = [scores[i].cpu().numpy() for i in range(len(scores))]",
            after="host = scores.cpu().numpy()\nresult = [host[i] for i in range(len(host))]",
            sizes={"64 rows of 1000": {"rows": 64, "columns": 1000}},
            small={"rows": 3, "columns": 2},
            scope="the copies",
        ),
    ],
    "batch-of-one": [
        Workload(
            setup=_NET + "images = torch.randn(n, width, device=device)",
            before="with torch.no_grad():\n    result = torch.cat([model(image.unsqueeze(0)) for image in images])",
            after="with torch.no_grad():\n    result = model(images)",
            sizes=_NET_SIZES,
            small=_NET_SMALL,
            scope="the passes",
        ),
    ],
    "invariant-compute-in-loop": [
        Workload(
            setup=_NET
            + "prompt, start = torch.randn(n, width, device=device), torch.randn(n, width, device=device)",
            before="""
            with torch.no_grad():
                x = start
                for _ in range(10):
                    x = x + model(prompt)
            result = x
            """,
            after="""
            with torch.no_grad():
                cond = model(prompt)
                x = start
                for _ in range(10):
                    x = x + cond
            result = x
            """,
            sizes=_NET_SIZES,
            small=_NET_SMALL,
            scope="the loop",
        ),
    ],
    "computed-for-report": [
        Workload(
            setup=_NET
            + """
optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
x = torch.randn(n, width, device=device)
labels = torch.randint(width, (n,), device=device)

def step():
    logits = model(x)
    F.cross_entropy(logits, labels).backward()
    optimizer.step()
    optimizer.zero_grad()
    return logits.detach()
""",
            before="""
            for number in range(10):
                logits = step()
                accuracy = (logits.softmax(-1).argmax(-1) == labels).float().mean()
                if number % 10 == 0:
                    result = accuracy
            """,
            after="""
            for number in range(10):
                logits = step()
                if number % 10 == 0:
                    result = (logits.softmax(-1).argmax(-1) == labels).float().mean()
            """,
            sizes=_NET_SIZES,
            small=_NET_SMALL,
            scope="the training step",
        ),
    ],
}
