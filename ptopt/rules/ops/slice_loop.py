from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from typing import ClassVar

from ptopt.rules.base import Evidence, Invalid, Problem, Rule, SourceFile, Span
from ptopt.rules.code import quote
from ptopt.rules.ops._calls import FEW, names_in
from ptopt.rules.ops._slices import Slices, slices_of, stacked
from ptopt.rules.ops.element_loop import ElementLoop
from ptopt.rules.ops.element_test_loop import ElementTestLoop
from ptopt.rules.ops.pairwise_loop import PairwiseLoop
from ptopt.rules.ops.row_loop import RowLoop
from ptopt.source.calls import called_name
from ptopt.source.index import FUNCTIONS

_NARROWER = (ElementLoop(), RowLoop(), PairwiseLoop(), ElementTestLoop())
_MEMORY = re.compile(r"memory|low_?vram|chunk|tiled|split_(input|batch)", re.I)
_TRIVIAL = 4  # iterations that are not worth a word


class SliceLoop(Rule):
    """A Python loop runs the same kernels on one slice of a tensor after the other.

    ## What it does
    Finds loops and list comprehensions that take `x[i]`, `x[:, i]` or a row of a tensor, and run tensor operations or a
    network on it, where no iteration needs the one before.

    ## Why it is slow
    Every iteration starts its own small kernels, and Python sets up each of them. The same operations on the whole tensor are
    a few large kernels.

    ## Example
    ```python
    return torch.stack([F.softmax(x[i], dim=1) for i in range(x.size(0))], 0)
    ```

    ## Use instead
    ```python
    return F.softmax(x, dim=2)
    ```

    ## Fix safety
    None: the batched form differs from case to case.

    ## Sources
    - [torch.vmap](https://docs.pytorch.org/docs/stable/generated/torch.vmap.html)
    """

    id = "PTO440"
    name = "slice-loop"
    family = "ops"
    most_stated = 0.45
    triggers = ("for ",)
    partly: ClassVar[frozenset[str]] = frozenset({"torch.vmap"})
    nodes = (ast.For, ast.ListComp, ast.GeneratorExp)
    when_wrong = "the dimension is short, or the loop keeps the whole result from having to fit into memory"

    VALID = (
        """
        def smooth(x: torch.Tensor, decay):
            total = 0
            for t in range(x.size(0)):
                total = total + torch.tanh(x[t] * total)
            return total
        """,
        """
        def smooth(x: torch.Tensor, decay):
            state = x[0]
            for t in range(x.size(0)):
                state = decay * state + torch.tanh(x[t])
            return state
        """,
        """
        def euler(model, x: torch.Tensor, steps):
            times = torch.linspace(1, 0, steps + 1)
            x_next = x
            for now, then in zip(times[:-1], times[1:]):
                x_cur = x_next
                x_next = x_cur + (then - now) * model(x_cur, now)
            return x_next
        """,
        """
        class Alignment:
            def __call__(self, ours, theirs):
                total = 0.0
                for a, b in zip(ours, theirs):
                    total += -(F.normalize(a, dim=-1) * F.normalize(b, dim=-1)).sum(dim=-1).mean()
                return total / len(ours)
        """,
        """
        def film(frames: torch.Tensor, features):
            shown = []
            for frame, feature in zip(frames, features):
                colors = torch.from_numpy(colored(feature))
                frame = frame.permute(1, 2, 0).cpu()
                shown.append(torch.cat((frame, colors), dim=1).mul_(255).byte())
            return torch.stack(shown)
        """,
        """
        def lengths(x: torch.Tensor, n):
            return [torch.softmax(x[i, : n[i]], 0) for i in range(x.size(0))]
        """,
        """
        class Attractor(nn.Module):
            def forward(self, points: torch.Tensor, centers: torch.Tensor):
                if self.memory_efficient:
                    delta = 0
                    for i in range(points.shape[1]):
                        delta = delta + torch.tanh(points[:, i, ...].unsqueeze(1) - centers)
                    return delta
                return torch.tanh(points.unsqueeze(2) - centers.unsqueeze(1)).sum(1)
        """,
        """
        class Pyramid(nn.Module):
            def forward(self, levels: torch.Tensor):
                kept = []
                for i in range(levels.shape[0]):
                    kept.append(levels[i].clone())
                return kept
        """,
        """
        class Warp(nn.Module):
            def __init__(self):
                self.project = Projection()

            def forward(self, features: torch.Tensor, points: torch.Tensor, poses: torch.Tensor):
                out = []
                for i in range(features.shape[1]):
                    grid = self.project(points, poses[:, i])
                    out.append(F.grid_sample(features[:, i], grid))
                return torch.stack(out, 1)
        """,
        """
        def heads(self, x: torch.Tensor):
            return torch.stack([self.heads[i](x[:, i]) for i in range(x.size(1))])
        """,
    )
    INVALID = (
        Invalid("""
            class DistortionLoss(nn.Module):
                def forward(self, weights, z_vals):
                    total = 0
                    for i in range(weights.shape[0]):  # !
                        w, z = weights[i], z_vals[i]
                        gap = (z[:, None] - z[None, :]).abs()
                        inter = (w[:, None] * w[None, :] * gap).sum()
                        total = total + inter + (w**2 * z).sum() / 3
                    return total / weights.shape[0]
        """),
        Invalid("""
            class Alignment:
                def __call__(self, ours, theirs):
                    total = 0.0
                    batch = ours[0].shape[0]
                    for i, (mine, other) in enumerate(zip(ours, theirs)):
                        for j, (a, b) in enumerate(zip(mine, other)):  # !
                            a = F.normalize(a, dim=-1)
                            b = F.normalize(b, dim=-1)
                            total += -(a * b).sum(dim=-1).mean()
                    return total / batch
        """),
        Invalid("""
            def forward(self, x):
                return torch.stack([F.softmax(x[i], dim=1) for i in range(x.size(0))], 0)  # !
        """),
        Invalid("""
            class Temporal(nn.Module):
                def __init__(self):
                    self.conv = nn.Conv1d(8, 8, 3)

                def forward(self, x):
                    outputs = []
                    for t in range(x.shape[3]):  # !
                        outputs.append(self.conv(x[:, :, :, t]).unsqueeze(-1))
                    return torch.cat(outputs, dim=-1)
        """),
        Invalid("""
            def scaled(x: torch.Tensor, w: torch.Tensor):
                out = torch.empty_like(x)
                for row, weight in zip(x, w):  # !
                    keep(torch.softmax(row * weight, dim=-1))
        """),
    )

    def check(self, node: ast.AST, file: SourceFile) -> Iterator[Problem]:
        found = file.once(reported).get(node)
        if found is None or not isinstance(node, (ast.For, ast.ListComp, ast.GeneratorExp)):
            return
        if _for_memory(node, file) or all(
            isinstance(op, ast.Call) and called_name(op) == "clone" for op in _calls(found)
        ):
            return
        if any(len(call.args) > 1 or call.keywords for call in found.modules):
            return  # other arguments differ from slice to slice, or do not: it takes more than one reshaped tensor
        work = _work(found)
        source = found.sources[0]
        joined = stacked(found)
        while isinstance(source, ast.Subscript) and names_in(source.slice) & found.index:
            source = source.value  # `loss` of `loss[i][mask[i] == 1]`
        whole = quote(file, source, 40)
        taken = quote(file, found.first or source, 40)
        if found.modules:
            message = (
                f"{quote(file, found.modules[0].func, 40)} runs once for each slice {taken} of {whole}, with a fraction of the work "
                "that fills a GPU. Make the dimension part of the batch, call it once on all slices "
                f"(`{_short(found.modules[0].func, file)}({_short(source, file)}.flatten(0, 1))`), and `unflatten` the result."
            )
        else:
            message = (
                f"Each iteration takes {taken} and starts kernels of its own for it ({quote(file, work, 50)} on line "
                f"{work.lineno}). Apply the operation to all of {whole} at once, with `dim` counted in the whole tensor"
                + (
                    "; `torch.vmap` does so for a function that is written for one slice."
                    if file.facts.has("torch.vmap")
                    else "."
                )
            )
        yield Problem(
            node,
            message,
            0.45 if (found.modules or found.ops) and (joined or found.stores) else 0.35,
            (Evidence(work.lineno, "the work of one iteration"),),
            cause=node,
            span=Span(node.lineno, max(node.lineno, node.body[0].lineno - 1))
            if isinstance(node, ast.For)
            else None,
            subject=found.sources[0],
            at=work,
            facts={
                "trip_count": found.trips,
                "ops": len(found.ops),
                "module_calls": len(found.modules),
                "unknown_calls": len(found.unknown),
                "stores": found.stores,
                "looked_up": found.looked_up,
                "joined": joined,
                "comprehension": not isinstance(node, ast.For),
                "few_by_name": bool(FEW.search(file.source(found.limit))) if found.limit is not None else 0,
            },
        )


def _for_memory(node: ast.AST, file: SourceFile) -> bool:
    """Is it the branch, or the function, that is there to need less memory at once?"""
    for around, _ in file.index.ancestors(node):
        if isinstance(around, ast.If) and _MEMORY.search(file.source(around.test)):
            return True
        if isinstance(around, FUNCTIONS):
            return bool(_MEMORY.search(getattr(around, "name", "")))
    return False


def _calls(found: Slices) -> list[ast.expr]:
    """All that an iteration starts."""
    return [*found.ops, *found.modules, *found.unknown]


def reported(file: SourceFile) -> dict[ast.AST, Slices]:
    """The outermost loops that take slices and work on them."""
    chosen: dict[ast.AST, Slices] = {}
    for node in sorted(
        file.index.of_type(ast.For, ast.ListComp, ast.GeneratorExp), key=lambda n: (n.lineno, n.col_offset)
    ):
        if any(ancestor in chosen for ancestor, _ in file.index.ancestors(node)):
            continue
        found = slices_of(node, file)
        if (
            found is None
            or found.ragged
            or 0 < found.trips < _TRIVIAL
            or not (
                found.ops
                or found.modules
                or (found.unknown and not isinstance(node, ast.For) and stacked(found))
            )
        ):
            continue
        if any(True for rule in _NARROWER for _ in rule.check(node, file)):
            continue
        chosen[node] = found
    return chosen


def _work(found: Slices) -> ast.expr:
    """What stands for the work of an iteration: a network, a kernel, a store."""
    plain = [op for op in found.ops if not isinstance(op, ast.Subscript)]
    return ([*found.modules, *plain, *found.ops, *found.unknown])[0]


def _short(node: ast.expr, file: SourceFile) -> str:
    return quote(file, node, 40).strip("`")
