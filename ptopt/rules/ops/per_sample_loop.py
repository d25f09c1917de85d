from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from typing import ClassVar

from ptopt.rules.base import Evidence, Invalid, Problem, Rule, SourceFile, Span
from ptopt.rules.code import quote
from ptopt.rules.ops._slices import Slices, slices_of, stacked
from ptopt.rules.ops.selection_per_value import SelectionPerValue
from ptopt.rules.ops.slice_loop import reported
from ptopt.source.calls import called_name
from ptopt.source.frequency import Often
from ptopt.source.index import own_nodes

_BY_VALUE = SelectionPerValue()
_REDUCES = frozenset(
    "sum mean max min amax amin std var norm logsumexp any all count_nonzero prod median".split()
)
_MATCHES = re.compile(r"assign|match|nms|lsa|hungarian|linear_sum", re.I)


class PerSampleLoop(Rule):
    """The samples of a batch are worked on one after the other, each with a length or a mask of its own.

    ## What it does
    Finds loops that take one row of a tensor after the other and run tensor operations on a part of it that the data choose
    (`x[i, : lengths[i]]`, `x[i][mask[i]]`), or hand the row to another function.

    ## Why it is slow
    Each iteration starts its own small kernels, and a selection by a mask waits for the device to learn its size. The time
    grows with the batch while the GPU idles.

    ## When this is wrong
    When the samples need different work, such as a matching on the host.

    ## Fix safety
    No fix is offered: the masked form depends on what is computed.

    ## Sources
    - [PyTorch: nested tensors](https://docs.pytorch.org/docs/stable/nested.html)
    """

    id = "PTO461"
    name = "per-sample-loop"
    family = "ops"
    most_stated = 0.4
    triggers = ("for ",)
    partly: ClassVar[frozenset[str]] = frozenset({"torch.vmap"})
    nodes = (ast.For, ast.ListComp, ast.GeneratorExp)
    when_wrong = "the samples need different work"

    VALID = (
        """
        def forward(self, x):
            return x.softmax(-1)
        """,
        """
        def run(x):
            for i in range(3):
                x = torch.relu(x)
        """,
        """
        for name in names:
            print(name)
        """,
        """
        def pad(images: list[torch.Tensor], height, width):
            padded = torch.zeros(len(images), 3, height, width)
            for image, row in zip(images, padded):
                row[:, : image.shape[1], : image.shape[2]].copy_(image)
            return padded
        """,
    )
    INVALID = (
        Invalid(
            """
            class Pool(nn.Module):
                def forward(self, x, lengths):
                    pooled = []
                    for i in range(x.size(0)):  # !
                        pooled.append(x[i, : lengths[i]].mean(0))
                    return torch.stack(pooled)
            """,
            instead="""
            class Pool(nn.Module):
                def forward(self, x, lengths):
                    mask = torch.arange(x.size(1), device=x.device) < lengths[:, None]
                    return (x * mask[..., None]).sum(1) / lengths[:, None]
            """,
        ),
        Invalid("""
            class Loss(nn.Module):
                def forward(self, logits, lengths):
                    total = []
                    for i in range(logits.size(0)):  # !
                        size = lengths[i]
                        total.append(logits[i, :size].sum())
                    return torch.stack(total)
        """),
        Invalid("""
            def forward(scores: torch.Tensor, lengths):
                return torch.stack([scores[i, : lengths[i]].max() for i in range(scores.size(0))])  # !
        """),
    )

    def check(self, node: ast.AST, file: SourceFile) -> Iterator[Problem]:
        if not isinstance(node, (ast.For, ast.ListComp, ast.GeneratorExp)):
            return
        outer = file.index.enclosing(node, (ast.For, ast.ListComp, ast.GeneratorExp))
        if outer is not None and (outer in file.once(reported) or outer in file.once(_candidates)):
            return
        found = file.once(_candidates).get(node)
        if found is None:
            return
        work = [*found.ops, *found.modules, *found.unknown][0]
        source = found.sources[0]
        reduces = _reduces(node, found)
        if reduces and not found.ragged:
            text = "Apply it to the whole batch, and reduce along the last dimension once."
        elif reduces:
            size = _length_of(found)
            text = (
                "Use a mask over the whole batch instead of a slice for each sample "
                f"(`torch.arange({size}) < lengths[:, None]`), and reduce once along its dimension."
            )
        elif found.ragged:
            text = "Work on all rows at once and select afterwards, or pad and mask; `scatter` and `index_add_` write back rows of unequal length."
        else:
            mapped = ", or map it with `torch.vmap`" if file.facts.has("torch.vmap") else ""
            text = f"Let the function take the whole batch{mapped}."
        yield Problem(
            node,
            f"Each iteration takes {quote(file, found.first or source, 40)} and starts kernels of its own for one sample "
            f"({quote(file, work, 50)} on line {work.lineno}). {text}",
            0.4 if reduces else 0.35,
            (Evidence(work.lineno, "the work of one iteration"),),
            cause=node,
            span=Span(node.lineno, max(node.lineno, node.body[0].lineno - 1))
            if isinstance(node, ast.For)
            else None,
            subject=source,
            at=work,
            facts={
                "reduces": reduces,
                "ragged": found.ragged,
                "ops": len(found.ops),
                "unknown_calls": len(found.unknown),
                "module_calls": len(found.modules),
                "joined": stacked(found),
                "stores": found.stores,
            },
        )


def _length_of(found: Slices) -> str:
    """How long the longest sample is: the second dimension of what is cut, where a name holds all samples."""
    cut = found.cut_of
    whole = isinstance(cut, ast.Attribute) or (isinstance(cut, ast.Name) and cut.id not in found.taken)
    return f"{quote(found.file, cut, 40).strip('`')}.size(1)" if whole and cut is not None else "longest"


def _reduces(node: ast.AST, found: Slices) -> bool:
    return any(
        isinstance(n, ast.Call) and called_name(n) in _REDUCES and n in found.ops for n in own_nodes(node)
    )


def _pads(found: Slices) -> bool:
    """Does each iteration only copy what has a size of its own into a slice, which is what padding is?"""
    copies = all(
        isinstance(op, ast.Subscript) or (isinstance(op, ast.Call) and called_name(op) == "copy_")
        for op in found.ops
    )
    return copies and bool(found.others) and not (found.modules or found.unknown)


def _candidates(file: SourceFile) -> dict[ast.AST, Slices]:
    """Loops that take slices, that no narrower rule reports."""
    chosen: dict[ast.AST, Slices] = {}
    others = file.once(reported)
    for node in file.index.of_type(ast.For, ast.ListComp, ast.GeneratorExp):
        if node in others:
            continue
        found = slices_of(node, file)
        if found is None or 0 < found.trips < 4 or not (found.ops or found.modules or found.unknown):
            continue
        if not (found.ops or found.modules) and (isinstance(node, ast.For) or not stacked(found)):
            continue
        often = file.frequencies.of(node).often
        if _pads(found) or (found.ragged and not found.cut and _reduces(node, found)):
            continue  # a ranking, or unique values, of each row: no mask over the batch gives that
        if any(file.values.of(source).device == "cpu" for source in found.sources):
            continue
        if any(True for _ in _BY_VALUE.check(node, file)):
            continue
        if often < Often.EVALUATION or _MATCHES.search(ast.unparse(node)):
            continue
        chosen[node] = found
    return chosen
