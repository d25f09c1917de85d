from __future__ import annotations

import ast
from collections.abc import Iterator

from ptopt.rules.base import Evidence, Invalid, Problem, Rule, SourceFile
from ptopt.rules.code import quote
from ptopt.rules.ops._calls import same_code, torch_op
from ptopt.rules.ops._pure import is_pure
from ptopt.rules.shared.flow import assigned
from ptopt.source.index import walk

_REDUCE = ("sum", "mean")


class MaskedUpdateByIndex(Rule):
    """Entries are picked with a boolean mask where `torch.where` or a masked sum keeps the shape.

    ## What it does
    Finds `y[mask] = f(x[mask])`, where the right side reads only entries under the same mask, and `x[mask].sum()`.

    ## Why it is slow
    Indexing with a boolean mask lists its positions first, and Python waits for the device to learn how many there are. Then
    the entries are gathered, worked on, and scattered back. `torch.where` does it in one kernel, without a wait.

    ## When this is wrong
    When the mask is sparse and the work on its entries is expensive, or the work is not finite outside of the mask and a
    gradient is wanted.

    ## Fix safety
    No fix: a division or a root outside of the mask may give NaN gradients.

    ## Sources
    - [nerfstudio: where in place of the masked assignment](https://github.com/nerfstudio-project/nerfstudio)
    """

    id = "PTO479"
    name = "masked-update-by-index"
    family = "ops"
    most_stated = 0.45
    nodes = (ast.Subscript,)
    triggers = ("[",)
    when_wrong = "the mask is sparse and the work under it expensive"

    VALID = (
        """
        def shuffled(ids: torch.Tensor, words):
            chosen = torch.bernoulli(torch.full((8, 8), 0.5)).bool()
            ids[chosen] = words[chosen]
            return ids
        """,
        """
        def kept(sizes, limit):
            x = torch.tensor(sizes)
            return x[x > limit].mean()
        """,
        """
        def fill(x: torch.Tensor, mask):
            x[mask] = 0
            return x
        """,
        """
        def pick(x: torch.Tensor):
            mask = x > 0
            return x[mask]
        """,
        """
        def update(x: torch.Tensor, ids):
            x[ids] = 2 * x[ids]
            return x
        """,
        """
        def run(net, x: torch.Tensor):
            mask = x > 0
            x[mask] = net.encode(x[mask])
            return x
        """,
    )
    INVALID = (
        Invalid("""
            def contract(x: torch.Tensor):
                norm = torch.norm(x, dim=-1)
                mask = norm > 1
                x[mask] = (2 - 1 / norm[mask]) * x[mask]  # !
                # ~ x = torch.where(mask, (2 - 1 / norm) * x, x)
                return x
        """),
        Invalid("""
            def penalise(scores: torch.Tensor, mask: torch.BoolTensor, penalty):
                scores[mask] = scores[mask] * penalty  # !
                return scores
        """),
        Invalid("""
            def loss(error: torch.Tensor, target: torch.Tensor):
                valid = target != -100
                return error[valid].mean()  # !
        """),
    )

    def candidates(self, file: SourceFile) -> list[ast.AST]:
        return file.index.computed_subscripts

    def check(self, node: ast.AST, file: SourceFile) -> Iterator[Problem]:
        if not isinstance(node, ast.Subscript) or not _is_mask(node.slice, file):
            return
        if file.values.of(node.value).kind not in ("tensor", ""):
            return
        if file.values.of(node.slice).device == "cpu" or file.values.of(node.value).device == "cpu":
            return  # nothing waits, and `torch.where` takes no mask from another device
        if isinstance(node.ctx, ast.Store):
            yield from self._update(node, file)
        elif isinstance(node.ctx, ast.Load):
            yield from self._reduction(node, file)

    def _update(self, target: ast.Subscript, file: SourceFile) -> Iterator[Problem]:
        parent = file.index.parent(target)
        if not isinstance(parent, (ast.Assign, ast.AugAssign)):
            return
        picked = [
            n for n in walk(parent.value) if isinstance(n, ast.Subscript) and same_code(n.slice, target.slice)
        ]
        if not picked or not is_pure(parent.value, file):
            return
        mask = file.source(target.slice)
        whole = file.source(target.value)
        yield Problem(
            parent,
            f"`{mask}` is a boolean mask: each `[{mask}]` lists its positions, which waits for the device, then gathers or "
            f"scatters. Compute on the whole tensors and select: `{whole} = torch.where({mask}, …, {whole})`.",
            0.45,
            subject=target.value,
            facts={"picked": len(picked), "update": 1, "divides": _divides(parent.value)},
        )

    def _reduction(self, node: ast.Subscript, file: SourceFile) -> Iterator[Problem]:
        parent = file.index.parent(node)
        call = file.index.parent(parent) if isinstance(parent, ast.Attribute) else parent
        op = torch_op(call, file, *_REDUCE)
        if op is None or op.operand is not node or op.rest or op.call.keywords:
            return
        mask, whole = file.source(node.slice), file.source(node.value)
        instead = f"torch.where({mask}, {whole}, 0).sum()"
        if op.name == "mean":
            instead += f" / ({mask}).sum()" if isinstance(node.slice, ast.Compare) else f" / {mask}.sum()"
        line = _defined(node.slice, file)
        yield Problem(
            op.call,
            f"`{mask}` is a boolean mask: {quote(file, node)} lists its positions, which waits for the device, and copies the "
            f"entries only to reduce them. `{instead}` neither waits nor copies.",
            0.4,
            (Evidence(line, "the mask"),) if line else (),
            subject=node.value,
            facts={"picked": 1, "update": 0, "divides": 0},
        )


def _is_mask(index: ast.expr, file: SourceFile) -> bool:
    """Is it a boolean tensor: a comparison of tensors, a name that one was given, or an annotated one?"""
    if isinstance(index, ast.Compare):
        return file.values.of(index).kind == "tensor"
    if isinstance(index, ast.UnaryOp) and isinstance(index.op, ast.Invert):
        return _is_mask(index.operand, file)
    if isinstance(index, ast.BinOp) and isinstance(index.op, (ast.BitAnd, ast.BitOr)):
        return _is_mask(index.left, file) or _is_mask(index.right, file)
    if isinstance(index, ast.Name):
        binding = file.bindings.last_before(index)
        if binding is None or binding.value is None:
            return False
        if binding.kind == "parameter":
            return ast.unparse(binding.value).endswith("BoolTensor")
        value = assigned(index, file)
        return value is not None and not isinstance(value, ast.Name) and _is_mask(value, file)
    op = torch_op(
        index, file, "isnan", "isinf", "isfinite", "eq", "ne", "gt", "ge", "lt", "le", "bool", "logical_and", "logical_not"
    )  # fmt: skip
    return op is not None and file.values.of(op.operand).kind in ("tensor", "")


def _divides(expr: ast.expr) -> int:
    return int(any(isinstance(n, ast.BinOp) and isinstance(n.op, (ast.Div, ast.Pow)) for n in walk(expr)))


def _defined(index: ast.expr, file: SourceFile) -> int:
    """Line that made the mask, where it is another one."""
    binding = file.bindings.last_before(index) if isinstance(index, ast.Name) else None
    return binding.line if binding is not None and binding.line != index.lineno else 0
