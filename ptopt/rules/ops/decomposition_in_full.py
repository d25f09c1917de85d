from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import ClassVar

from ptopt.rules.base import Invalid, Problem, Rule, SourceFile
from ptopt.rules.code import beside, is_literal, keyword_of, quote
from ptopt.rules.shared.flow import entries_of
from ptopt.source.calls import called_name

_PARTS = {"svd": 3, "eigh": 2, "eig": 2, "symeig": 2}
_VALUES = {"svd": "svdvals", "eigh": "eigvalsh", "eig": "eigvals", "symeig": "linalg.eigvalsh"}


class DecompositionInFull(Rule):
    """A matrix is decomposed in full, and a part of the result is used.

    ## What it does
    Finds `svd`, `eigh` and `eig` of which only the values are read, or of whose vectors only the first columns are kept, `svd` with the default
    `full_matrices=True`, and the diagonal or the trace of a matrix product.

    ## Why it is slow
    The values alone cost a fraction of the vectors. The full matrices of a tall input have as many columns as it has rows. A product
    of which only the diagonal is read computes n times too much.

    ## Fix safety
    No fix is offered: signs and order of the vectors may matter.

    ## Sources
    - [torch.linalg.svd](https://docs.pytorch.org/docs/stable/generated/torch.linalg.svd.html)
    - [torch.svd_lowrank](https://docs.pytorch.org/docs/stable/generated/torch.svd_lowrank.html)
    """

    id = "PTO468"
    name = "decomposition-in-full"
    family = "ops"
    most_stated = 0.45
    partly: ClassVar[frozenset[str]] = frozenset(
        {"torch.linalg.eigvals", "torch.linalg.eigvalsh", "torch.linalg.svdvals", "torch.svd_lowrank"}
    )
    nodes = (ast.Call,)
    calls = frozenset(_PARTS) | {"diag", "diagonal", "trace"}
    when_wrong = "the matrices are tiny"

    VALID = (
        """
        s = torch.linalg.svdvals(weight)
        """,
        """
        u, s, v = torch.linalg.svd(weight, full_matrices=False)
        low = u @ torch.diag(s) @ v
        """,
        """
        scores = (a * b).sum(-1)
        """,
    )
    INVALID = (
        Invalid("""
            def spectrum(weight):
                _, s, _ = torch.linalg.svd(weight)  # !
                return s
        """),
        Invalid("""
            def low_rank(weight, r):
                u, s, v = torch.linalg.svd(weight)  # !
                return u[:, :r] * s[:r] @ v[:r]
        """),
        Invalid("""
            def agreement(x: torch.Tensor, y: torch.Tensor):
                return torch.diag(x @ y.T)  # !
        """),
    )

    def check(self, node: ast.AST, file: SourceFile) -> Iterator[Problem]:
        if not isinstance(node, ast.Call):
            return
        name = called_name(node)
        qualified = file.imports.qualified(node.func)
        if name in ("diag", "diagonal", "trace"):
            yield from _diagonal(node, name, qualified, file)
            return
        if not qualified.startswith(("torch.", "numpy.linalg.", "scipy.linalg.")):
            return
        parent = file.index.parent(node)
        target = parent.targets[0] if isinstance(parent, ast.Assign) and len(parent.targets) == 1 else None
        function = file.index.function_of(node)
        if isinstance(parent, ast.Subscript) and isinstance(parent.slice, ast.Constant):
            used = [i == parent.slice.value for i in range(_PARTS[name])]
            sliced = False
        elif isinstance(target, ast.Tuple) and len(target.elts) == _PARTS[name]:
            names = [e.id if isinstance(e, ast.Name) else "" for e in target.elts]
            loads = [file.uses.loads(function, n) if n else [target] for n in names]
            later = [
                [x for x in found if getattr(x, "lineno", 0) > node.lineno or x is target] for found in loads
            ]
            used = [bool(found) for found in later]
            sliced = bool(later[0]) and all(_is_cut(x, file) for x in [*later[0], *later[-1]])
        else:
            return
        given = quote(file, node, 50)
        values = 1 if name == "svd" else 0
        if name in _VALUES and used[values] and sum(used) == 1:
            text = f"{given} computes the vectors as well, and only the values are read. `{_VALUES[name]}` computes them alone."
        elif name == "svd" and _full(node, qualified) and sliced:
            text = (
                f"{given} computes full square matrices of vectors, of which the first columns are read. Pass `full_matrices=False`"
                + (
                    ", or use `torch.svd_lowrank` when a few of them are enough."
                    if file.facts.has("torch.svd_lowrank")
                    else "."
                )
            )
        else:
            return
        yield Problem(
            node,
            text,
            0.45,
            facts={
                "values_only": sum(used) == 1,
                "sliced": sliced,
                "numpy": not qualified.startswith("torch."),
            },
        )


def _full(call: ast.Call, qualified: str) -> bool:
    if qualified == "torch.svd":
        return is_literal(keyword_of(call, "some"), False)
    given = keyword_of(call, "full_matrices")
    return given is None and len(call.args) < 2 or is_literal(given, True)


def _is_cut(load: ast.AST, file: SourceFile) -> bool:
    """Is only a slice of it read?"""
    parent = file.index.parent(load)
    if not isinstance(parent, ast.Subscript) or parent.value is not load:
        return False
    entries = entries_of(parent)
    return any(isinstance(e, ast.Slice) and e.upper is not None and e.lower is None for e in entries)


def _diagonal(node: ast.Call, name: str, qualified: str, file: SourceFile) -> Iterator[Problem]:
    product: ast.expr | None = None
    if qualified.startswith(("torch.", "numpy.")) and node.args:
        product = node.args[0]
    elif not qualified and isinstance(node.func, ast.Attribute) and not node.args:
        product = node.func.value
    if product is None:
        return
    left: ast.expr | None = None
    if isinstance(product, ast.BinOp) and isinstance(product.op, ast.MatMult):
        left, right = product.left, product.right
    elif (
        isinstance(product, ast.Call)
        and called_name(product) in ("mm", "matmul", "dot", "bmm")
        and product.args
    ):
        both = file.imports.qualified(product.func).startswith(("torch.", "numpy."))
        if both and len(product.args) > 1:
            left, right = product.args[0], product.args[1]
        elif not both and isinstance(product.func, ast.Attribute):
            left, right = product.func.value, product.args[0]
    if left is None:
        return
    yield Problem(
        node,
        f"{quote(file, product, 40)} computes all entries of the product, and only its diagonal is read. `(a * b).sum(-1)` of the rows that "
        f"meet ({quote(file, left, 20)} and the transpose of {quote(file, right, 20)}) computes just those"
        f"{', and its sum is the trace' if name == 'trace' else ''}.",
        0.45,
        beside(node, product, "the product"),
        subject=product,
        facts={"diagonal": True},
    )
