from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from ptopt.rules.base import Evidence, Invalid, Problem, Rule, Severity, SourceFile, keyword_of, quote
from ptopt.source.file import remembered
from ptopt.source.index import FunctionNode, walk

_WHOLE_FILE = re.compile(
    r"^(numpy\.load|numpy\.loadtxt|numpy\.genfromtxt|torch\.load|json\.load|pickle\.load|joblib\.load|scipy\.io\.loadmat"
    r"|pandas\.read_(csv|json|pickle|parquet|hdf|feather|excel|table))$"
)
_SLICES = ("skiprows", "nrows", "chunksize", "filters", "mmap_mode", "mmap", "usecols")


class FileReadPerItem(Rule):
    """A dataset reads the same whole file again for each item.

    ## What it does
    Finds `np.load(self.path)`, `json.load`, `torch.load`, `pd.read_csv` and their kin in `__getitem__` when what is read
    does not depend on the index.

    ## Why it is slow
    The file is read and parsed once per item: an epoch costs the size of the dataset times what one read would.

    ## When this is wrong
    When the path is changed from outside between items.

    ## Example
    ```python
    def __getitem__(self, i):
        return np.load(self.path)[i]
    ```

    ## Use instead
    ```python
    def __init__(self, path):
        self.rows = np.load(path, mmap_mode="r")

    def __getitem__(self, i):
        return self.rows[i]
    ```

    ## Fix safety
    No fix: the read moves to `__init__`, or to the first use in each worker.

    ## Sources
    - [PyTorch documentation: data loading with multiple processes](https://docs.pytorch.org/docs/stable/data.html)
    - [NumPy documentation: numpy.load and memory mapping](https://numpy.org/doc/stable/reference/generated/numpy.load.html)
    """

    id = "PTO305"
    name = "file-read-per-item"
    family = "data"
    severity = Severity.HIGH
    triggers = ("__getitem__",)
    requires = ("load", "read_", "genfromtxt")
    nodes = (ast.Call,)
    when_wrong = "the path is changed from outside between items"

    VALID = (
        """
        class Rows(Dataset):
            def __init__(self, path):
                self.rows = np.load(path)

            def __getitem__(self, i):
                return self.rows[i]
        """,
        """
        class Files(Dataset):
            def __getitem__(self, i):
                path = self.paths[i]
                return np.load(path), torch.load(self.folder / f"{i}.pt")
        """,
        """
        class Rows(Dataset):
            def __getitem__(self, i):
                if self.rows is None:
                    self.rows = np.load(self.path)
                return self.rows[i], np.load(self.other, mmap_mode="r")[i]
        """,
    )
    INVALID = (
        Invalid(
            """
            class Rows(Dataset):
                def __getitem__(self, i):
                    return np.load(self.path)[i]  # !
            """
        ),
        Invalid(
            """
            import json
            from torch.utils.data import Dataset

            class Captions(Dataset):
                def __getitem__(self, index):
                    with open(self.caption_file) as f:
                        captions = json.load(f)  # !
                    return captions[index]
            """
        ),
        Invalid(
            """
            import pandas as pd
            from torch.utils.data import Dataset

            class Labels(Dataset):
                def __getitem__(self, index):
                    table = pd.read_csv(self.root + "/labels.csv")  # !
                    return table.iloc[index]
            """
        ),
    )

    def check(self, node: ast.AST, file: SourceFile) -> Iterator[Problem]:
        if (
            not isinstance(node, ast.Call)
            or not node.args
            or not _WHOLE_FILE.match(file.imports.qualified(node.func))
        ):
            return
        function = file.context.is_item_code(node)
        if (
            function is None
            or not function.name.startswith("__getitem")
            or any(keyword_of(node, s) is not None for s in _SLICES)
        ):
            return
        source = _opened(node.args[0], file)
        if (
            not _is_constant(source, function, file)
            or file.index.enclosing(node, (ast.If, ast.ExceptHandler)) is not None
        ):
            return
        yield Problem(
            node,
            f"{quote(file, node)} reads the whole of {quote(file, source)} for each item: it does not depend on the index. "
            "Read it once in `__init__`.",
            0.8,
            (Evidence(function.lineno, f"`{function.name}` runs once an item"),),
            cause=function,
        )


def _opened(argument: ast.expr, file: SourceFile) -> ast.expr:
    """The path behind `open(path)`, also when a `with` gave the open file a name."""
    opened = argument
    if isinstance(argument, ast.Name):
        withs = [a for a, _ in file.index.ancestors(argument) if isinstance(a, ast.With)]
        for item in (item for statement in withs for item in statement.items):
            if isinstance(item.optional_vars, ast.Name) and item.optional_vars.id == argument.id:
                opened = item.context_expr
    if (
        isinstance(opened, ast.Call)
        and isinstance(opened.func, ast.Name)
        and opened.func.id == "open"
        and opened.args
    ):
        return opened.args[0]
    return opened


def _is_constant(path: ast.expr, function: FunctionNode, file: SourceFile) -> bool:
    """Is the path made of attributes of `self` and literals only, none of them set in the function itself?"""
    if any(isinstance(n, (ast.Call, ast.Subscript, ast.NamedExpr)) for n in walk(path)):
        return False
    names = [n.id for n in walk(path) if isinstance(n, ast.Name)]
    if not names or any(name != "self" for name in names):
        return False
    stored = _attributes_stored_in(function)
    return not any(isinstance(n, ast.Attribute) and n.attr in stored for n in walk(path))


@remembered
def _attributes_stored_in(function: FunctionNode) -> frozenset[str]:
    nodes = (n for n in walk(function) if isinstance(n, ast.Attribute) and isinstance(n.ctx, ast.Store))
    return frozenset(n.attr for n in nodes)
