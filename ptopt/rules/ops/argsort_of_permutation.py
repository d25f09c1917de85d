from __future__ import annotations

import ast
from collections.abc import Iterator

from ptopt.rules.base import Benchmark, Evidence, Invalid, Problem, Rule, Severity, SourceFile
from ptopt.rules.code import keyword_of
from ptopt.rules.ops._calls import Op, is_hot, torch_op
from ptopt.source.bindings import Binding
from ptopt.source.file import remembered
from ptopt.source.index import FunctionNode


class ArgsortOfPermutation(Rule):
    """A permutation is inverted by sorting it.

    ## What it does
    Finds `perm.argsort()` where `perm` comes from `sort`, `argsort` or `randperm` along one dimension.

    ## Why it is slow
    Sorting takes several passes over the data. The inverse of a permutation is one scatter:
    `inverse[perm] = torch.arange(n)`; and where the inverse only serves to undo the order, `out[perm] = x`
    needs no inverse at all.

    ## Fix safety
    None: the scatter is a statement of its own.

    ## Sources
    - [torch.argsort](https://docs.pytorch.org/docs/stable/generated/torch.argsort.html)
    """

    id = "PTO411"
    name = "argsort-of-permutation"
    family = "ops"
    severity = Severity.LOW
    nodes = (ast.Call,)
    calls = frozenset({"argsort", "sort"})
    when_wrong = "the permutation is short"

    VALID = (
        """
        order = lengths.argsort(descending=True)
        """,
        """
        ids_shuffle = torch.argsort(noise, dim=1)
        ids_restore = torch.argsort(ids_shuffle, dim=1)
        """,
        """
        values, order = scores.sort()
        again = values.argsort()
        """,
        """
        def score(distances: torch.Tensor, match):
            for d in distances:
                order = torch.argsort(d)
                rank = torch.argsort(order)
                rank[~match] = 9
        """,
        """
        def reorder(self, frequencies):
            order = torch.argsort(frequencies, descending=True)
            self.weight.data = self.weight[order]
            self.index.data.copy_(torch.argsort(order))
        """,
    )
    INVALID = (
        Invalid("""
            class Pool(nn.Module):
                def forward(self, x, batch):
                    batch, indices = batch.sort(stable=True)
                    return encode(x[indices])[indices.argsort()]  # !
                    # ~ inverse = torch.empty_like(indices)
                    # ~ inverse[indices] = torch.arange(len(indices), device=indices.device)
                    # ~ return encode(x[indices])[inverse]
        """),
        Invalid("""
            for x in loader:
                perm = torch.randperm(x.shape[0])
                inverse = torch.argsort(perm)  # !
        """),
        Invalid("""
            class Encoder(nn.Module):
                def forward(self, x, lengths):
                    _, order = torch.sort(lengths, descending=True)
                    _, restore = torch.sort(order)  # !
                    return self.encode(x.index_select(0, order), lengths[order]).index_select(0, restore)
        """),
    )
    BENCHMARK = Benchmark(
        setup="import torch\np = torch.randperm(300000)",
        before="result = p.argsort()",
        after="result = torch.empty_like(p)\nresult[p] = torch.arange(len(p))",
        sizes="300,000 int64",
    )

    def check(self, node: ast.AST, file: SourceFile) -> Iterator[Problem]:
        op = torch_op(node, file, "argsort", "sort")
        if op is None or not isinstance(op.operand, ast.Name) or _dimension(op):
            return
        if (
            keyword_of(op.call, "descending") is not None
            or op.name == "sort"
            and not _takes_indices(op, file)
        ):
            return
        binding = file.bindings.last_before(op.operand)
        source = _permutation(binding, file) if binding is not None else None
        if source is None or binding is None or binding.line > op.call.lineno:
            return
        perm = op.operand.id
        if source.name != "randperm" and not _one_dimensional(perm, file.index.function_of(node), file):
            return
        yield Problem(
            node,
            f"`{perm}` is a permutation (from `{source.name}`, line {source.call.lineno}): sorting it to invert it "
            f"costs more than one scatter, `inverse[{perm}] = torch.arange(len({perm}), device={perm}.device)` (or "
            f"`out[{perm}] = x` where the inverse only undoes the order).",
            0.5 if _short(source, file) or not is_hot(node, file) else 0.65,
            (Evidence(source.call.lineno, "makes the permutation"),),
        )


def _permutation(binding: Binding, file: SourceFile) -> Op | None:
    """The call that makes a one-dimensional permutation of what is bound, if one does."""
    if binding.kind == "unpack" and binding.path == (1,):
        op = torch_op(binding.value, file, "sort")
    elif binding.kind == "assign":
        op = torch_op(binding.value, file, "argsort", "randperm")
        if op is None and isinstance(binding.value, ast.Attribute) and binding.value.attr == "indices":
            op = torch_op(binding.value.value, file, "sort")
    else:
        return None
    return op if op is not None and not _dimension(op) else None


@remembered
def _one_dimensional(perm: str, function: FunctionNode | None, file: SourceFile) -> bool:
    """Does it index something on its own, or make an `index_select`? A permutation of each row would not."""
    for use in file.uses.loads(function, perm):
        parent = file.index.parent(use)
        if isinstance(parent, ast.Subscript) and parent.slice is use:
            return True
        if torch_op(parent, file, "index_select") is not None:
            return True
    return False


def _short(op: Op, file: SourceFile) -> bool:
    """A shuffle of the items of a batch, or of a literal number of things."""
    text = file.source(op.operand)
    return op.name == "randperm" and ("batch" in text or text.isdigit() or "bs" in text.split("_"))


def _dimension(op: Op) -> bool:
    """Is a dimension named? Then there are several, and each row is a short permutation of its own."""
    return op.name != "randperm" and op.argument(0, "dim", "axis") is not None


def _takes_indices(op: Op, file: SourceFile) -> bool:
    """`_, restore = perm.sort()` wants only the indices."""
    parent = file.index.parent(op.call)
    if not isinstance(parent, ast.Assign) or not isinstance(parent.targets[0], ast.Tuple):
        return False
    first = parent.targets[0].elts[0]
    return isinstance(first, ast.Name) and first.id == "_"
