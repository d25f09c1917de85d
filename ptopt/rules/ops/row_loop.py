from __future__ import annotations

import ast
from collections.abc import Iterator

from ptopt.rules.base import Benchmark, Evidence, Invalid, Problem, Rule, SourceFile, Span
from ptopt.rules.code import method_call, quote
from ptopt.rules.ops._calls import Op, is_range, names_in, torch_op
from ptopt.source.index import own_nodes, walk

_ROWWISE = (
    "softmax",
    "log_softmax",
    "max",
    "min",
    "argmax",
    "argmin",
    "sum",
    "mean",
    "topk",
    "sort",
    "norm",
    "std",
)


class RowLoop(Rule):
    """Each row of a tensor is reduced on its own and read with `.item()`.

    ## What it does
    Finds `for row in scores:` whose body reduces `row` (`softmax`, `max`, `argmax`, `sum`, …) and reads numbers with
    `.item()`, and holds no other loop.

    ## Why it is slow
    Each row gets kernels of its own, and each `.item()` makes Python wait for the GPU. The same reduction along the last
    dimension of the whole tensor is one kernel, and one `.tolist()` reads all results.

    ## Example
    ```python
    for row in scores[:length]:
        probs = F.softmax(row, dim=0)
        tags.append(probs.argmax().item())
    ```

    ## Use instead
    ```python
    tags = F.softmax(scores[:length], dim=-1).argmax(dim=-1).tolist()
    ```

    ## Fix safety
    None: the body changes as a whole.

    ## Sources
    - [PyTorch performance tuning guide: avoid unnecessary CPU-GPU synchronization](https://docs.pytorch.org/tutorials/recipes/recipes/tuning_guide.html)
    """

    id = "PTO417"
    name = "row-loop"
    family = "ops"
    triggers = (".item()",)
    requires = tuple(f"{name}(" for name in _ROWWISE)
    nodes = (ast.For,)
    when_wrong = "the rows differ in length, so that they never were one tensor"

    VALID = (
        """
        net = nn.Sequential(*blocks)
        feats, logits = net(torch.randn(2, 3, 32, 32))
        for feat in feats:
            print(feat.min().item())
        """,
        """
        for x in loader:
            total += x.sum().item()
        """,
        """
        def gather(rows: list, names):
            for row in rows:
                print(row.max().item())
        """,
        """
        def report(scores: torch.Tensor):
            for row in scores:
                keep(row.max())
        """,
        """
        def fill(confidence: torch.Tensor, threshold, n):
            for b in range(len(confidence)):
                high = confidence[b] > threshold
                _, picked = torch.topk(confidence[b], k=n)
                if high.sum().item() < n:
                    keep(b, picked)
        """,
        """
        for p in model.parameters():
            norm += p.grad.norm().item() ** 2
        """,
    )
    INVALID = (
        Invalid("""
            def decode(scores, length):
                tags = []
                for row in scores[:length]:  # !
                    probs = F.softmax(row, dim=0)
                    _, best = torch.max(row, 0)
                    tags.append((best.item(), probs[best].item()))
                return tags
        """),
        Invalid("""
            def peaks(scores: torch.Tensor):
                found = []
                for row in scores:  # !
                    found.append(row.max().item())
                return found
        """),
        Invalid("""
            def correct(scores: torch.Tensor, labels):
                count = 0
                for i in range(len(scores)):  # !
                    if scores[i].argmax().item() == labels[i]:
                        count += 1
                return count
        """),
        Invalid("""
            probs = torch.softmax(logits, dim=-1)
            for p in probs:  # !
                best = torch.argmax(p)
                names.append(labels[best.item()])
        """),
    )
    BENCHMARK = Benchmark(
        setup="import torch\nx = torch.randn(4000, 64)",
        before="result = []\nfor row in x:\n    result.append(row.argmax().item())",
        after="result = x.argmax(dim=-1).tolist()",
        scope="the loop",
        sizes="4000 x 64 float32 on the CPU",
    )

    def check(self, node: ast.AST, file: SourceFile) -> Iterator[Problem]:
        if not isinstance(node, ast.For) or not isinstance(node.target, ast.Name):
            return
        if not isinstance(node.iter, (ast.Name, ast.Subscript)) and not is_range(node.iter):
            return
        last = node.end_lineno or 0
        if not any(node.lineno <= call.lineno <= last for call in file.calls_named("item")):
            return  # as most
        reductions: list[Op] = []
        reads: list[ast.Call] = []
        for inner in own_nodes(node):
            if isinstance(inner, (ast.Break, ast.Return, ast.For, ast.While)):
                return
            op = torch_op(inner, file, *_ROWWISE)
            if op is not None and _rows(op.operand, node) is not None:
                reductions.append(op)
            elif isinstance(inner, ast.Call) and method_call(inner, "item") is not None and not inner.args:
                reads.append(inner)
        rows = _rows(reductions[0].operand, node) if reductions else None
        reads = _reading(reads, reductions, file)
        if rows is None or not reads:
            return
        if _is_unpacked(rows, file):
            return  # `feats, logits = net(x)`: perhaps a list of maps of several sizes
        proven = file.values.is_tensor(rows)
        # A slice of something whose items go into torch functions: a tensor, or a list cut in two.
        likely = isinstance(rows, ast.Subscript) and isinstance(rows.slice, ast.Slice)
        if not proven and not (likely and any(not op.is_method for op in reductions)):
            return
        first, read = reductions[0], reads[0]
        yield Problem(
            node,
            f"Each row of {quote(file, rows)} gets kernels of its own here, and line {read.lineno} waits for "
            f"each with `.item()`. Run `{first.name}` once along the last dimension of the whole tensor and read the "
            "results with one `.tolist()`.",
            0.75 if proven else 0.65,
            (
                Evidence(first.call.lineno, "the reduction of one row"),
                Evidence(read.lineno, "the read of one number"),
            ),
            span=Span(node.lineno, node.lineno),
        )


def _rows(operand: ast.expr, loop: ast.For) -> ast.expr | None:
    """The tensor of which `operand` is the row of this iteration: `row` in a loop over it, or `x[i]` over a range."""
    target = loop.target.id if isinstance(loop.target, ast.Name) else ""
    if isinstance(operand, ast.Name) and operand.id == target:
        return None if is_range(loop.iter) else loop.iter
    if (
        isinstance(operand, ast.Subscript)
        and isinstance(operand.slice, ast.Name)
        and operand.slice.id == target
    ):
        return operand.value if is_range(loop.iter) else None
    return None


def _reading(reads: list[ast.Call], reductions: list[Op], file: SourceFile) -> list[ast.Call]:
    """The `.item()` calls that read what a reduction gave, at once or through a name."""
    calls = {op.call for op in reductions}
    statements = (file.index.statement_of(call) for call in calls)
    targets = (t for s in statements if isinstance(s, ast.Assign) for t in s.targets)
    names = frozenset[str]().union(*map(names_in, targets))
    return [read for read in reads if names_in(read) & names or any(n in calls for n in walk(read))]


def _is_unpacked(rows: ast.expr, file: SourceFile) -> bool:
    binding = file.bindings.last_before(rows) if isinstance(rows, ast.Name) else None
    return (
        binding is not None
        and binding.kind == "unpack"
        and isinstance(binding.value, ast.Call)
        and file.values.is_a(binding.value.func, "module")
    )
