from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from ptopt.rules.base import Invalid, Problem, Severity, SourceFile
from ptopt.rules.code import quote
from ptopt.rules.data._items import ItemRule, item_evidence
from ptopt.rules.shared.item_work import reads_files
from ptopt.source.index import FunctionNode

_ACCESSORS = frozenset({"iloc", "loc", "at", "iat", "ix"})
_FRAME = re.compile(
    r"(^|_)(df|dataframe|frame|annotations?|csv|table|data|labels?|meta\w*|samples?|landmarks\w*)(_|$|\d)",
    re.I,
)


class DataframeRowPerItem(ItemRule):
    """A dataset looks up a row of a data frame for each item.

    ## What it does
    Finds `.iloc[…]`, `.loc[…]`, `.at[…]` and row masks on a data frame in code that runs for each item of a dataset.

    ## Why it is slow
    A look-up builds a new Series (and, for `loc` with a mask, compares the whole column): tens of microseconds to
    milliseconds, where a list or an array gives the value at once. A frame of Python objects also grows in each worker:
    every look-up writes reference counts, and the pages are copied.

    ## Fix safety
    No fix: the columns that are needed have to be taken out in `__init__`.

    ## Sources
    - [pandas documentation: indexing and selecting data](https://pandas.pydata.org/docs/user_guide/indexing.html)
    - [PyTorch issue 13246: memory of workers grows with Python objects](https://github.com/pytorch/pytorch/issues/13246)
    """

    id = "PTO333"
    name = "dataframe-row-per-item"
    severity = Severity.LOW
    most_stated = 0.45
    triggers = ("iloc", "loc", "at", "iat")
    requires = ("__getitem__", "collate", "get")
    nodes = (ast.Subscript,)
    when_wrong = "the item decodes an image or audio, beside which the look-up does not count"

    VALID = (
        """
        class Rows(Dataset):
            def __init__(self, df):
                self.values = df.iloc[:, 1:].to_numpy()

            def __getitem__(self, i):
                return self.values[i]
        """,
        """
        def report(df):
            return df.iloc[0]
        """,
        """
        class Rows(Dataset):
            def __getitem__(self, i):
                self.row = self.df.iloc[i]
                return self.row.values, self.box.at[i]
        """,
    )
    INVALID = (
        Invalid("""
            class Rows(Dataset):
                def __getitem__(self, i):
                    row = self.df.iloc[i]  # !
                    return row["text"], row["label"]
        """),
        Invalid("""
            class Images(Dataset):
                def __getitem__(self, idx):
                    name = self.landmarks_frame.iloc[idx, 0]  # !
                    return self.transform(Image.open(name)), self.landmarks_frame.iloc[idx, 1:]  # !
        """),
        Invalid("""
            import pandas as pd
            from torch.utils.data import Dataset
            class Rows(Dataset):
                def __init__(self, path):
                    self.rows = pd.read_csv(path)

                def __getitem__(self, i):
                    return self.rows.loc[i, "label"]  # !
        """),
    )

    def _candidate(self, node: ast.AST, file: SourceFile) -> bool:
        if not (
            isinstance(node, ast.Subscript)
            and isinstance(node.value, ast.Attribute)
            and node.value.attr in _ACCESSORS
            and isinstance(node.ctx, ast.Load)
        ):
            return False
        sure = node.value.attr in ("iloc", "iat")
        return (
            sure
            or bool(_FRAME.search(file.source(node.value.value).rpartition(".")[2]))
            or _is_frame(node.value.value, file)
        )

    def check_item(self, node: ast.AST, function: FunctionNode, file: SourceFile) -> Iterator[Problem]:
        if not isinstance(node, ast.Subscript) or not isinstance(node.value, ast.Attribute):
            return
        masked = isinstance(node.slice, ast.Compare) or (
            isinstance(node.slice, ast.Tuple) and any(isinstance(e, ast.Compare) for e in node.slice.elts)
        )
        how = (
            "compares a whole column"
            if masked
            else "builds a Series"
            if not isinstance(node.slice, ast.Tuple)
            else "looks up one cell of a data frame"
        )
        yield Problem(
            node,
            f"{quote(file, node)} {how} for each item. Take the columns out once in `__init__` "
            f'(`{quote(file, node.value.value)[1:-1]}["…"].tolist()` or `.to_numpy()`) and index those.',
            0.45 if masked else 0.35,
            item_evidence(node, file),
            cause=function,
            facts={"masked": float(masked), "reads_files": float(reads_files(function, file))},
        )


def _is_frame(expr: ast.expr, file: SourceFile) -> bool:
    """Was it read or built by pandas?"""
    cls = file.index.class_of(expr)
    if isinstance(expr, ast.Attribute) and cls is not None:
        value = file.bindings.attribute(cls, expr.attr)
    else:
        binding = file.bindings.last_before(expr) if isinstance(expr, ast.Name) else None
        value = binding.value if binding is not None else None
    return isinstance(value, ast.Call) and file.imports.qualified(value.func).startswith("pandas.")
