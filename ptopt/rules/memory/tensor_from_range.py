from __future__ import annotations

import ast
from collections.abc import Iterator

from ptopt.rules.base import Fix, Invalid, Problem, Rule, Safety, SourceFile
from ptopt.rules.code import keyword_of, quote, replace_node
from ptopt.source.frequency import Often

_TYPES = {
    "torch.tensor": "",
    "torch.as_tensor": "",
    "torch.LongTensor": "",
    "torch.IntTensor": "torch.int32",
    "torch.FloatTensor": "torch.float32",
    "torch.Tensor": "torch.float32",
}


class TensorFromRange(Rule):
    """A tensor of consecutive numbers is made from a Python range.

    ## What it does
    Finds `torch.tensor(range(n))`, `torch.LongTensor(list(range(n)))` and `torch.tensor([i for i in range(n)])`.

    ## Why it is slow
    Each number becomes a Python object first and is read one by one. `torch.arange` fills the tensor directly, on its device.

    ## Fix safety
    Safe: the same numbers in the same type.

    ## Sources
    - [torch.arange](https://docs.pytorch.org/docs/stable/generated/torch.arange.html)
    """

    id = "PTO826"
    name = "tensor-from-range"
    family = "memory"
    most_stated = 0.45
    nodes = (ast.Call,)
    calls = frozenset(name.rpartition(".")[2] for name in _TYPES)
    requires = ("range(",)
    when_wrong = "the range is tiny and the line runs once"

    VALID = (
        """
        index = torch.arange(n)
        """,
        """
        squares = torch.tensor([i * i for i in range(n)])
        """,
        """
        order = torch.tensor(list(order))
        """,
    )
    INVALID = (
        Invalid("""
            def forward(self, x):
                position = torch.tensor(range(x.size(1)), device=x.device)  # !
                # + position = torch.arange(x.size(1), device=x.device)
                return x + self.embed(position)
        """),
        Invalid("""
            def collate_fn(batch):
                return torch.LongTensor(list(range(len(batch))))  # !
                # + return torch.arange(len(batch))
        """),
        Invalid("""
            def index(groups):
                return torch.cat([torch.tensor([i for i in range(n)]) for n in groups])  # !
                # + return torch.cat([torch.arange(n) for n in groups])
        """),
    )

    def check(self, node: ast.AST, file: SourceFile) -> Iterator[Problem]:
        if not isinstance(node, ast.Call) or len(node.args) != 1:
            return
        name = file.imports.qualified(node.func)
        numbers = _range(node.args[0])
        if name not in _TYPES or numbers is None:
            return
        frequency = file.frequencies.of(node)
        sizes = [a.value for a in numbers.args if isinstance(a, ast.Constant)]
        if len(sizes) == len(numbers.args) or frequency.often is Often.ONCE:
            return
        torch = file.source(node.func).rpartition(".")[0] or "torch"
        arguments = [file.source(a) for a in [*numbers.args, *node.keywords]]
        if _TYPES[name] and keyword_of(node, "dtype") is None:
            arguments.append(f"dtype={_TYPES[name].replace('torch', torch)}")
        text = f"{torch}.arange({', '.join(arguments)})"
        known = isinstance(node.func, ast.Attribute)
        yield Problem(
            node,
            f"{quote(file, node, 45)} makes a Python object of each number and reads them one by one. `{text}` fills the tensor "
            "directly.",
            0.45,
            fix=Fix(Safety.SAFE, (replace_node(file, node, text),))
            if known and "#" not in file.source(node)
            else None,
            facts={"device": keyword_of(node, "device") is not None},
        )


def _range(expr: ast.expr) -> ast.Call | None:
    """The `range(...)` whose numbers the expression holds as they are."""
    if isinstance(expr, ast.Call) and isinstance(expr.func, ast.Name):
        if expr.func.id == "range" and not expr.keywords:
            return expr
        return _range(expr.args[0]) if expr.func.id == "list" and len(expr.args) == 1 else None
    if isinstance(expr, ast.ListComp) and len(expr.generators) == 1 and not expr.generators[0].ifs:
        target, element = expr.generators[0].target, expr.elt
        same = isinstance(target, ast.Name) and isinstance(element, ast.Name) and target.id == element.id
        return _range(expr.generators[0].iter) if same else None
    return None
