from __future__ import annotations

import ast
from collections.abc import Iterator

from ptopt.rules.base import (
    Benchmark,
    Edit,
    Fix,
    Invalid,
    Problem,
    Rule,
    Safety,
    Severity,
    SourceFile,
    method_call,
)
from ptopt.rules.ops._calls import Op, torch_op
from ptopt.source.index import walk

_CASTS = ("float", "to", "type", "type_as", "half", "bfloat16", "double")


class OneHotMatmul(Rule):
    """A one-hot matrix is multiplied only to pick rows of another.

    ## What it does
    Finds `F.one_hot(i, n).float() @ w` (also `torch.matmul`, `torch.mm`), directly or through a name that serves
    nothing else.

    ## Why it is slow
    The product reads all n rows of `w` for each index and multiplies all but one of them by zero, and the one-hot
    matrix itself takes n numbers per index. `F.embedding(i, w)` reads one row per index.

    ## When this is wrong
    When the code runs on an accelerator without a fast gather, such as a TPU.

    ## Example
    ```python
    x = F.one_hot(tokens, vocab).float() @ weight
    ```

    ## Use instead
    ```python
    x = F.embedding(tokens, weight)
    ```

    ## Fix safety
    Unsafe: `weight` must be a matrix that has one row per class, and the indices must be in range.

    ## Sources
    - [torch.nn.functional.embedding](https://docs.pytorch.org/docs/stable/generated/torch.nn.functional.embedding.html)
    """

    id = "PTO405"
    name = "one-hot-matmul"
    family = "ops"
    severity = Severity.MEDIUM
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
        Invalid(
            """
            x = F.one_hot(tokens, vocab).float() @ weight  # !
            """,
            """
            x = F.embedding(tokens, weight)
            """,
        ),
        Invalid(
            """
            x = torch.matmul(F.one_hot(tokens, num_classes=vocab).to(weight.dtype), weight)  # !
            """,
            """
            x = F.embedding(tokens, weight)
            """,
        ),
        Invalid(
            """
            def codes(indices, codebook):
                encodings = F.one_hot(indices, len(codebook)).type_as(codebook)  # !
                return encodings @ codebook
            """
        ),
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
        if one_hot is None or one_hot.is_method:
            return
        matrix, cast = _through_casts(one_hot.call, file)
        product, weight = _product(matrix, file)
        named = ""
        if product is None:
            statement = file.index.parent(matrix)
            if not isinstance(statement, ast.Assign) or not isinstance(statement.targets[0], ast.Name):
                return
            named = statement.targets[0].id
            product, weight = _only_use(named, statement, file)
        if product is None or weight is None or not cast:
            return
        what = f"`{named}` serves only to pick rows" if named else "the product only picks rows"
        yield Problem(
            node,
            f"A one-hot matrix is built and multiplied on line {product.lineno}, but {what} of "
            f"`{file.source(weight)}`. `F.embedding({file.source(one_hot.operand)}, {file.source(weight)})` reads "
            "one row per index and skips the multiplications by zero.",
            0.8,
            fix=None if named else _fix(one_hot, product, weight, file),
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


def _product(matrix: ast.expr, file: SourceFile) -> tuple[ast.expr | None, ast.expr | None]:
    """The matrix product whose left side is `matrix`, and its right side."""
    parent = file.index.parent(matrix)
    if isinstance(parent, ast.BinOp) and isinstance(parent.op, ast.MatMult) and parent.left is matrix:
        return parent, parent.right
    op = torch_op(parent, file, "matmul", "mm")
    if op is not None and op.operand is matrix and len(op.rest) == 1:
        return op.call, op.rest[0]
    return None, None


def _only_use(name: str, statement: ast.Assign, file: SourceFile) -> tuple[ast.expr | None, ast.expr | None]:
    function = file.index.function_of(statement)
    if function is None or len(file.bindings.of(function, name)) != 1:
        return None, None
    uses = [
        n for n in walk(function) if isinstance(n, ast.Name) and n.id == name and isinstance(n.ctx, ast.Load)
    ]
    return _product(uses[0], file) if len(uses) == 1 else (None, None)


def _fix(one_hot: Op, product: ast.expr, weight: ast.expr, file: SourceFile) -> Fix | None:
    func = one_hot.call.func
    if not isinstance(func, ast.Attribute):
        return None
    module = file.source(func.value)
    text = f"{module}.embedding({file.source(one_hot.operand)}, {file.source(weight)})"
    assumption = f"`{file.source(weight)}` is a matrix with one row per class"
    return Fix(Safety.UNSAFE, (Edit(*file.bounds(product), text),), assumption)
