from __future__ import annotations

import ast
from collections.abc import Iterator

from ptopt.rules.base import Benchmark, Edit, Fix, Invalid, Problem, Rule, Safety, SourceFile
from ptopt.rules.code import method_call, quote
from ptopt.rules.ops._calls import Op, torch_op
from ptopt.rules.shared.flow import reads

_CASTS = ("float", "to", "type", "type_as", "half", "bfloat16", "double")


class OneHotMatmul(Rule):
    """A one-hot matrix is multiplied only to pick rows of another.

    ## What it does
    Finds `F.one_hot(i, n).float() @ w` (also `torch.matmul`, `torch.mm`, `F.linear`),
    directly or through a name that serves nothing else.

    ## Why it is slow
    The product reads all n rows of `w` for each index and multiplies all but one of them by zero, and the one-hot
    matrix itself takes n numbers per index. `F.embedding(i, w)` reads one row per index.

    ## Fix safety
    Unsafe: `weight` must be a matrix that has one row per class, and the indices must be in range.

    ## Sources
    - [torch.nn.functional.embedding](https://docs.pytorch.org/docs/stable/generated/torch.nn.functional.embedding.html)
    """

    id = "PTO405"
    name = "one-hot-matmul"
    family = "ops"
    triggers = ("one_hot(",)
    nodes = (ast.Call,)
    calls = frozenset({"one_hot"})
    when_wrong = "the code runs on an accelerator without a fast gather, such as a TPU"

    VALID = (
        """
        target = F.one_hot(labels, classes).float()
        loss = F.mse_loss(logits.softmax(-1), target)
        """,
        """
        mask = F.one_hot(expert_index, num_experts)
        load = mask.sum(dim=0)
        out = mask.float() @ expert_out
        """,
        """
        smooth = F.one_hot(labels, classes).float() * 0.9 + 0.1 / classes
        prior = smooth @ prototypes
        """,
        """
        sums = F.one_hot(labels, classes).float().t() @ features
        """,
    )
    INVALID = (
        Invalid("""
            x = F.one_hot(tokens, vocab).float() @ weight  # !
            # + x = F.embedding(tokens, weight)
        """),
        Invalid("""
            scale = F.linear(F.one_hot(batch, n).float(), self.scales)  # !
        """),
        Invalid("""
            def codes(indices, codebook):
                encodings = F.one_hot(indices, len(codebook)).type_as(codebook)  # !
                return encodings @ codebook
        """),
    )
    BENCHMARK = Benchmark(
        setup=(
            "import torch\nimport torch.nn.functional as F\n"
            "i = torch.randint(0, 1000, (4096,))\nw = torch.randn(1000, 64)"
        ),
        before="result = F.one_hot(i, 1000).float() @ w",
        after="result = F.embedding(i, w)",
        sizes="4096 indices into 1000 x 64 float32, forward",
    )

    def check(self, node: ast.AST, file: SourceFile) -> Iterator[Problem]:
        one_hot = torch_op(node, file, "one_hot")
        if one_hot is None or one_hot.is_method and file.imports.qualified(one_hot.call.func):
            return
        matrix, cast = _through_casts(one_hot.call, file)
        uses = reads(matrix, file)
        named = uses != [matrix]
        picks = [pick for use in uses if (pick := _pick(use, file)) is not None]
        if one_hot.is_method or not picks or len(picks) != len(uses):
            return
        product, weight, how = picks[0]
        index, source = file.source(one_hot.operand), file.source(weight)
        if how == "rows":
            if not cast:
                return  # integers cannot be multiplied with floats
            better = f"`F.embedding({index}, {source})` reads one row per index"
        else:
            better = f"`{source}[:, {index}]`, transposed, reads one column per index"
        yield Problem(
            node,
            f"A one-hot matrix is built and multiplied on line {product.lineno} only to pick {how} of {quote(file, weight, 40)}. "
            f"{better} and skips the multiplications by zero.",
            0.8 if how == "rows" and len(picks) == 1 else 0.45,
            fix=None if named or how != "rows" else _fix(one_hot, product, weight, file),
            subject=weight,
            facts={"rows": how == "rows", "uses": len(picks)},
        )


def _through_casts(call: ast.expr, file: SourceFile) -> tuple[ast.expr, bool]:
    """The expression that the casts around `call` give, and whether there is one: integers cannot be multiplied."""
    cast = False
    while True:
        attribute = file.index.parent(call)
        outer = file.index.parent(attribute) if attribute is not None else None
        if not isinstance(outer, ast.Call) or method_call(outer, *_CASTS) is not call:
            return call, cast
        call, cast = outer, True


def _pick(matrix: ast.expr, file: SourceFile) -> tuple[ast.expr, ast.expr, str] | None:
    """The product that picks rows or columns of something by the one-hot matrix, and that something."""
    parent = file.index.parent(matrix)
    if isinstance(parent, ast.BinOp) and isinstance(parent.op, ast.MatMult) and parent.left is matrix:
        return parent, parent.right, "rows"
    op = torch_op(parent, file, "matmul", "mm", "linear")
    if op is not None and op.operand is matrix and len(op.rest) == 1:
        return op.call, op.rest[0], "columns" if op.name == "linear" else "rows"
    return None


def _fix(one_hot: Op, product: ast.expr, weight: ast.expr, file: SourceFile) -> Fix | None:
    func = one_hot.call.func
    if not isinstance(func, ast.Attribute):
        return None
    module = file.source(func.value)
    text = f"{module}.embedding({file.source(one_hot.operand)}, {file.source(weight)})"
    assumption = f"`{file.source(weight)}` is a matrix with one row per class"
    return Fix(Safety.UNSAFE, (Edit(*file.bounds(product), text),), assumption)
