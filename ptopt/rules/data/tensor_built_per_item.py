from __future__ import annotations

import ast
from collections.abc import Iterator

from ptopt.rules.base import Invalid, Problem, Severity, SourceFile, quote
from ptopt.rules.data._items import ItemRule, item_evidence
from ptopt.source.index import FunctionNode

_CASTS = frozenset({"astype", "copy", "tolist", "reshape", "flatten"})


class TensorBuiltPerItem(ItemRule):
    """A dataset turns the same stored values into a tensor again for each item.

    ## What it does
    Finds `torch.tensor(self.x[i])`, `torch.FloatTensor(self.x[i])` and their kin in code that runs for each item, where the
    values already lie in memory.

    ## Why it is slow
    Each item pays for a conversion, a copy and the start of an operation: microseconds for a few bytes, in every epoch, and
    thousands of times as long for a list of Python numbers.

    ## When this is wrong
    When the values are a memory map that does not fit in memory, or differ in length from item to item.

    ## Example
    ```python
    def __getitem__(self, i):
        return torch.tensor(self.rows[i], dtype=torch.float32), torch.tensor(self.labels[i])
    ```

    ## Use instead
    ```python
    def __init__(self, rows, labels):
        self.rows, self.labels = torch.as_tensor(rows, dtype=torch.float32), torch.as_tensor(labels)

    def __getitem__(self, i):
        return self.rows[i], self.labels[i]
    ```

    ## Fix safety
    No fix: the conversion moves to another method, and the whole has to fit in memory.

    ## Sources
    - [PyTorch documentation: torch.tensor copies](https://docs.pytorch.org/docs/stable/generated/torch.tensor.html)
    """

    id = "PTO334"
    name = "tensor-built-per-item"
    family = "data"
    severity = Severity.LOW
    requires = ("__getitem__", "get")
    calls = frozenset({"tensor", "as_tensor", "FloatTensor", "LongTensor", "Tensor", "IntTensor"})
    when_wrong = "the values are a memory map, or differ in length from item to item"

    VALID = (
        """
        class Rows(Dataset):
            def __init__(self, rows):
                self.rows = torch.as_tensor(rows)

            def __getitem__(self, i):
                return self.rows[i]
        """,
        """
        class Rows(Dataset):
            def __getitem__(self, i):
                return torch.tensor(read(self.paths[i])), torch.tensor(i)
        """,
        """
        class Rows(Dataset):
            def lengths(self):
                return torch.tensor(self.sizes[0])
        """,
    )
    INVALID = (
        Invalid(
            """
            class Rows(Dataset):
                def __getitem__(self, i):
                    row = torch.tensor(self.rows[i], dtype=torch.float32)  # !
                    return row
            """
        ),
        Invalid(
            """
            class Rows(Dataset):
                def __getitem__(self, index):
                    return torch.FloatTensor(self.data[index].astype("float32"))  # !
            """
        ),
        Invalid(
            """
            class Rows(Dataset):
                def __getitem__(self, idx):
                    return {key: torch.tensor(value[idx]) for key, value in self.encodings.items()}  # !
            """
        ),
    )

    def _candidate(self, node: ast.AST, file: SourceFile) -> bool:
        return (
            isinstance(node, ast.Call)
            and len(node.args) == 1
            and file.imports.qualified(node.func).startswith("torch.")
            and _stored(node.args[0], file) is not None
        )

    def check_item(self, node: ast.AST, function: FunctionNode, file: SourceFile) -> Iterator[Problem]:
        stored = _stored(node.args[0], file) if isinstance(node, ast.Call) else None
        if stored is None or not function.name.startswith("__getitem"):
            return
        yield Problem(
            node,
            f"{quote(file, node)} converts values of {quote(file, stored)} again for each item, in every epoch. Convert the whole "
            "once in `__init__` (`torch.as_tensor(…)`) and index the tensor here.",
            0.35,
            item_evidence(node, file),
            cause=function,
            facts={"label": float("label" in file.source(stored) or "target" in file.source(stored))},
        )


def _stored(expr: ast.expr, file: SourceFile) -> ast.expr | None:
    """`self.rows` of `self.rows[i]`, of `self.rows[i].astype(...)`, or of `value[i]` with `value` from `self.rows.items()`."""
    while isinstance(expr, ast.Call) and isinstance(expr.func, ast.Attribute) and expr.func.attr in _CASTS:
        expr = expr.func.value
    if not isinstance(expr, ast.Subscript) or not isinstance(expr.slice, ast.Name):
        return None
    base = expr.value
    if isinstance(base, ast.Name):
        binding = file.bindings.last_before(base)
        over = binding.value if binding is not None and binding.kind == "item" else None
        items = (
            isinstance(over, ast.Call) and isinstance(over.func, ast.Attribute) and over.func.attr == "items"
        )
        base = (
            over.func.value
            if items and isinstance(over, ast.Call) and isinstance(over.func, ast.Attribute)
            else base
        )
    own = isinstance(base, ast.Attribute) and isinstance(base.value, ast.Name) and base.value.id == "self"
    return base if own else None
