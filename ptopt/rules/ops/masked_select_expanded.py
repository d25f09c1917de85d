from __future__ import annotations

import ast
from collections.abc import Iterator

from ptopt.rules.base import Benchmark, Invalid, Problem, Rule, Severity, SourceFile
from ptopt.rules.code import quote
from ptopt.rules.ops._calls import int_literal, same_code, torch_op
from ptopt.rules.shared.flow import assigned


class MaskedSelectExpanded(Rule):
    """Whole rows are selected through a mask with one entry per element.

    ## What it does
    Finds `x.masked_select(mask.unsqueeze(-1))`, `x.masked_select(mask.view(size))` and
    `x[mask.unsqueeze(-1).expand_as(x)].view(-1, d)`: a mask over rows that is stretched over the row's elements.

    ## Why it is slow
    The mask is expanded to the size of `x`, every element is tested, and the elements are gathered one by one.
    `x[mask]` looks at one entry per row and copies whole rows; the result has its shape already.

    ## Fix safety
    None: what is done to the shape afterwards goes away too.

    ## Sources
    - [torch.masked_select](https://docs.pytorch.org/docs/stable/generated/torch.masked_select.html)
    """

    id = "PTO412"
    name = "masked-select-expanded"
    family = "ops"
    severity = Severity.LOW
    triggers = ("masked_select(", ".expand(", ".expand_as(")
    nodes = (ast.Call, ast.Subscript)
    calls = frozenset({"masked_select"})
    when_wrong = "the mask differs within a row"

    VALID = (
        """
        kept = x[mask]
        """,
        """
        kept = torch.masked_select(x, x > 0)
        """,
        """
        kept = x.masked_select(mask)
        """,
        """
        x[mask.unsqueeze(-1).expand_as(x)] = 0
        """,
        """
        kept = mel.masked_select(mel_mask[:, None])
        """,
        """
        kept = mel.masked_select(mel_mask.unsqueeze(1))
        """,
    )
    INVALID = (
        Invalid("""
            kept = x.masked_select(mask.unsqueeze(-1)).view(-1, x.size(-1))  # !
        """),
        Invalid("""
            def select(src, mask, dim):
                size = [1] * src.dim()
                size[dim] = mask.numel()
                return src.masked_select(mask.view(size))  # !
        """),
        Invalid("""
            kept = x[mask.unsqueeze(-1).expand_as(x)].view(-1, dim)  # !
        """),
        Invalid("""
            kept = torch.masked_select(logits, mask.unsqueeze(2).expand(-1, -1, classes)).view(-1, classes)  # !
        """),
    )
    BENCHMARK = Benchmark(
        setup="import torch\nx = torch.randn(4096, 256)\nmask = torch.rand(4096) < 0.5",
        before="result = x.masked_select(mask.unsqueeze(-1)).view(-1, 256)",
        after="result = x[mask]",
        sizes="half of 4096 rows of 256 float32, forward",
    )

    def candidates(self, file: SourceFile) -> list[ast.AST]:
        """The calls, and the subscripts that are reshaped."""
        reshaped = [attribute.value for attribute in file.index.attributes_named("view", "reshape")]
        subscripts = [value for value in reshaped if isinstance(value, ast.Subscript)]
        return [*file.calls_named("masked_select"), *subscripts]

    def check(self, node: ast.AST, file: SourceFile) -> Iterator[Problem]:
        if isinstance(node, ast.Subscript):
            if not isinstance(node.ctx, ast.Load) or not _reshaped(node, file):
                return
            source, mask = node.value, node.slice
            expanded = torch_op(mask, file, "expand_as", "expand")
            if expanded is None or not (expanded.name == "expand" or same_code(expanded.rest[0], source)):
                return
        else:
            select = torch_op(node, file, "masked_select")
            argument = select.argument(0, "mask") if select is not None else None
            if select is None or argument is None:
                return
            source, mask = select.operand, argument
        rows = _row_mask(mask, file)
        if rows is None or not isinstance(node, ast.expr):
            return
        after = " and the reshape afterwards" if _reshaped(node, file) else ""
        mask_text, source_text = quote(file, rows, 30), file.source(source)
        yield Problem(
            node,
            f"{mask_text} has one entry per row, and is stretched here so that every element of `{source_text}` is tested. "
            f"Index the masked dimension with it instead (`{source_text}[{mask_text[1:-1]}]` for the leading one): "
            f"that copies whole rows and needs no stretched mask{after}.",
            0.65,
        )


def _row_mask(mask: ast.expr, file: SourceFile) -> ast.expr | None:
    """The mask before it got dimensions of size 1: by `unsqueeze(-1)`, `[..., None]`, or a `view` to a list of sizes."""
    expand = torch_op(mask, file, "expand_as", "expand")
    if expand is not None and expand.is_method:
        mask = expand.operand
    unsqueeze = torch_op(mask, file, "unsqueeze")
    if unsqueeze is not None:
        dim = int_literal(unsqueeze.argument(0, "dim"))
        last = dim == -1 or (
            expand is not None and expand.name == "expand" and dim == len(expand.rest) - 1 and dim > 0
        )
        return unsqueeze.operand if last else None
    if isinstance(mask, ast.Subscript):
        entries = mask.slice.elts if isinstance(mask.slice, ast.Tuple) else []
        ends_new = bool(entries) and isinstance(entries[-1], ast.Constant) and entries[-1].value is None
        # `mask[:, None]` of a mask with two dimensions stretches the one in the middle
        whole = bool(entries) and isinstance(entries[0], ast.Constant) and entries[0].value is Ellipsis
        return mask.value if ends_new and whole else None
    view = torch_op(mask, file, "view", "reshape")
    if view is not None and len(view.rest) == 1 and isinstance(view.rest[0], ast.Name):
        return view.operand if _sizes_of_one(view.rest[0], file) else None
    return None


def _sizes_of_one(name: ast.Name, file: SourceFile) -> bool:
    """`size = [1] * x.dim()`: all dimensions but those set later have size 1."""
    value = assigned(name, file)
    if (
        not isinstance(value, ast.BinOp)
        or not isinstance(value.op, ast.Mult)
        or not isinstance(value.left, ast.List)
    ):
        return False
    return [int_literal(e) for e in value.left.elts] == [1]


def _reshaped(node: ast.expr, file: SourceFile) -> bool:
    attribute = file.index.parent(node)
    if not isinstance(attribute, ast.Attribute) or attribute.attr not in ("view", "reshape"):
        return False
    call = file.index.parent(attribute)
    return isinstance(call, ast.Call) and len(call.args) > 1
