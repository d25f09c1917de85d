from __future__ import annotations

import ast
from collections.abc import Iterator

from ptopt.rules.base import Invalid, Problem, Rule, SourceFile
from ptopt.rules.code import quote
from ptopt.rules.ops._calls import Op, int_literal, torch_op
from ptopt.rules.shared.flow import entries_of


class SortForTopK(Rule):
    """A tensor is sorted in full although only its first or last entries are used.

    ## What it does
    Finds `sort` and `argsort` of a tensor whose result is only sliced to its first `k` entries, or indexed by 0 or -1.

    ## Why it is slow
    A sort orders all entries, in several passes, and returns values and indices of the full size. `topk` selects the
    `k` that are wanted, and a maximum or minimum takes one pass.

    ## When this is wrong
    When `k` is close to the size, or equal entries must keep their order.

    ## Fix safety
    No fix: `topk` may order equal entries differently, and fails where `k` is larger than the size.

    ## Sources
    - [torch.topk](https://docs.pytorch.org/docs/stable/generated/torch.topk.html)
    """

    id = "PTO475"
    name = "sort-for-top-k"
    family = "ops"
    most_stated = 0.45
    nodes = (ast.Call,)
    calls = frozenset({"sort", "argsort"})
    when_wrong = "`k` is close to the number of entries"

    VALID = (
        """
        def rank(scores):
            values, order = scores.sort(dim=-1)
            return values[:, :10], order
        """,
        """
        def keep(mask, k):
            order = torch.argsort(mask, stable=True)
            return order[:k]
        """,
        """
        def best(rows: np.ndarray):
            return rows.argsort()[:10]
        """,
    )
    INVALID = (
        Invalid("""
            def best(scores: torch.Tensor, k):
                return scores.argsort(dim=-1, descending=True)[:, :k]  # !
                # ~ return scores.topk(k, dim=-1).indices
        """),
        Invalid("""
            def best(scores, k):
                order = torch.argsort(scores, descending=True)  # !
                return order[:k]
        """),
        Invalid("""
            def threshold(scores, k):
                values, _ = torch.sort(scores, dim=-1, descending=True)  # !
                return values[:, :k].mean()
        """),
    )

    def check(self, node: ast.AST, file: SourceFile) -> Iterator[Problem]:
        op = torch_op(node, file, "sort", "argsort")
        if op is None or not isinstance(node, ast.Call) or any(k.arg == "stable" for k in node.keywords):
            return
        if op.is_method and file.values.of(op.operand).kind != "tensor":
            return
        users = _users(op, file)
        if not users:
            return
        dim = op.argument(0, "dim", "axis")
        ends = [_end(use, int_literal(dim) if dim is not None else -1, file) for use in users]
        if not all(ends):
            return
        one = all(end == "1" for end in ends)
        what = "one end" if one else f"the first {ends[0]}" if ends[0] != "last" else "the last entries"
        instead = "`max`, `min`, `argmax` or `argmin`" if one else "`topk`"
        yield Problem(
            node,
            f"{quote(file, node)} sorts all entries, and only {what} of them is used. {instead} "
            f"select{'' if one else 's'} without sorting the rest"
            + (
                "."
                if one
                else f": `torch.topk({file.source(op.operand)}, {ends[0] if ends[0] != 'last' else 'k'}, …)`."
            ),
            0.45,
            subject=op.operand,
            facts={"one": one, "literal_k": int(ends[0]) if ends[0].isdigit() else 0, "uses": len(users)},
        )


def _users(op: Op, file: SourceFile) -> list[ast.expr]:
    """Every read of the values or indices; empty when they cannot be followed."""
    use: ast.expr = op.call
    parent = file.index.parent(use)
    if isinstance(parent, ast.Attribute) and parent.attr in ("values", "indices"):
        use, parent = parent, file.index.parent(parent)
    elif op.name == "sort" and isinstance(parent, ast.Subscript) and int_literal(parent.slice) in (0, 1):
        use, parent = parent, file.index.parent(parent)
    elif op.name == "sort" and not (
        isinstance(parent, ast.Assign) and isinstance(parent.targets[0], ast.Tuple)
    ):
        return []
    if not isinstance(parent, ast.Assign):
        return [use]
    target = parent.targets[0]
    names = target.elts if isinstance(target, ast.Tuple) else [target]
    function = file.index.function_of(op.call)
    found: list[ast.expr] = []
    for name in names:
        if not isinstance(name, ast.Name) or len(parent.targets) != 1:
            return []
        after = [load for load in file.uses.loads(function, name.id) if load.lineno > parent.lineno]
        before = [load for load in file.uses.loads(function, name.id) if load.lineno <= parent.lineno]
        if before or len(file.bindings.of(function, name.id)) != 1 and not name.id.startswith("_"):
            return []
        found += after
    return found


def _end(use: ast.expr, dim: int | None, file: SourceFile) -> str:
    """The text of `k` where the use is `[..., :k]`, "1" for a single end, "last" for `[-k:]`; "" for anything else."""
    parent = file.index.parent(use)
    if (
        not isinstance(parent, ast.Subscript)
        or parent.value is not use
        or not isinstance(parent.ctx, ast.Load)
    ):
        return ""
    parts = entries_of(parent)
    last = parts[-1]
    if dim not in ((0, -1) if len(parts) == 1 else (len(parts) - 1, -1)):
        return ""  # another dimension than the sorted one
    if any(not isinstance(p, ast.Slice) or p.lower or p.upper or p.step for p in parts[:-1]) and not (
        isinstance(parts[0], ast.Constant) and parts[0].value is Ellipsis
    ):
        return ""
    if isinstance(last, ast.Slice):
        if last.step is not None:
            return ""
        if last.lower is None and last.upper is not None and not isinstance(last.upper, ast.UnaryOp):
            return file.source(last.upper)
        lower = int_literal(last.lower)
        return "last" if last.upper is None and lower is not None and lower < 0 else ""
    return "1" if int_literal(last) in (0, -1) else ""
