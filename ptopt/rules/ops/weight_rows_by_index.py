from __future__ import annotations

import ast
from collections.abc import Iterator

from ptopt.rules.base import Invalid, Problem, Rule, SourceFile
from ptopt.rules.code import quote
from ptopt.source.bindings import is_self
from ptopt.source.frequency import Often


class WeightRowsByIndex(Rule):
    """Rows of a parameter are picked by indexing it with a tensor.

    ## What it does
    Finds `self.weight[ids]` in a forward pass, where `self.weight` is an `nn.Parameter` and `ids` a tensor of row numbers.

    ## Why it is slow
    The backward pass of such an index is `index_put_` with accumulation, which sorts the indices to add up equal ones.
    The backward pass of `index_select` adds the rows directly.

    ## Fix safety
    No fix: `index_select` wants a vector of indices.

    ## Sources
    - [DGL: index_select in place of the index](https://github.com/dmlc/dgl)
    """

    id = "PTO485"
    name = "weight-rows-by-index"
    family = "ops"
    most_stated = 0.35
    requires = ("Parameter",)
    nodes = (ast.Subscript,)
    when_wrong = "the index is a mask, or no gradient is wanted"

    VALID = (
        """
        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                self.weight = nn.Parameter(torch.randn(9, 8))

            def forward(self, x):
                return x + self.weight[0]
        """,
        """
        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                self.table = torch.randn(9, 8)

            def forward(self, ids: torch.Tensor):
                return self.table[ids]
        """,
        """
        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                self.weight = nn.Parameter(torch.randn(9, 8))

            def forward(self, x, n: int):
                return x + self.weight[:n]
        """,
    )
    INVALID = (
        Invalid("""
            class Net(nn.Module):
                def __init__(self):
                    super().__init__()
                    self.weight = nn.Parameter(torch.randn(9, 8))

                def forward(self, ids: torch.Tensor):
                    return self.weight[ids]  # !
                    # ~ return self.weight.index_select(0, ids)
        """),
        Invalid("""
            class Net(nn.Module):
                def __init__(self):
                    super().__init__()
                    self.bias = nn.Parameter(torch.zeros(9, 8))

                def forward(self, x, ids):
                    return x + self.bias[ids.long()]  # !
        """),
        Invalid("""
            class Net(nn.Module):
                def __init__(self):
                    super().__init__()
                    self.table = nn.Parameter(torch.zeros(9, 8))
                    self.register_buffer("index", torch.arange(4))

                def forward(self, x):
                    index = self.index.view(-1)
                    return x + self.table[index]  # !
        """),
    )

    def check(self, node: ast.AST, file: SourceFile) -> Iterator[Problem]:
        if (
            not isinstance(node, ast.Subscript)
            or not isinstance(node.ctx, ast.Load)
            or not is_self(node.value)
        ):
            return
        cls = file.index.class_of(node)
        if (
            cls is None
            or not isinstance(node.value, ast.Attribute)
            or isinstance(node.slice, (ast.Compare, ast.Slice))
        ):
            return
        made = file.bindings.attribute(cls, node.value.attr)
        if not isinstance(made, ast.Call) or not file.imports.qualified(made.func).endswith("nn.Parameter"):
            return
        index = file.values.of(node.slice)
        if (
            index.kind != "tensor"
            or file.frequencies.of(node).often < Often.EVALUATION
            or file.context.grad_off(node)
        ):
            return
        weight, ids = file.source(node.value), " ".join(file.source(node.slice).split())
        yield Problem(
            node,
            f"The backward pass of {quote(file, node)} sorts the indices to add up equal rows. "
            f"`{weight}.index_select(0, {ids})` adds them directly (indices of more dimensions are flattened first).",
            0.35,
            subject=node.value,
        )
