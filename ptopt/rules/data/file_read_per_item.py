from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from ptopt.rules.base import TEXTBOOK, Evidence, Invalid, Problem, Rule, Severity, SourceFile
from ptopt.rules.code import keyword_of, quote
from ptopt.rules.data._items import opened, same_for_all
from ptopt.rules.data._whole_reads import depends_on_item, is_row_by_row, stays_the_same, whole_of_table
from ptopt.source.index import FunctionNode

_WHOLE_FILE = re.compile(
    r"^(numpy\.load|numpy\.loadtxt|numpy\.genfromtxt|torch\.load|json\.load|pickle\.load|joblib\.load|scipy\.io\.loadmat"
    r"|pandas\.read_(csv|json|pickle|parquet|hdf|feather|excel|table))$"
)
_HDF5, _NUMPY = "h5py.File", "numpy.load"
_SLICES = ("skiprows", "nrows", "chunksize", "filters", "mmap_mode", "mmap", "usecols")


class FileReadPerItem(Rule):
    """A dataset reads the same whole file again for each item.

    ## What it does
    Finds `np.load(self.path)`, `json.load`, `torch.load`, `pd.read_csv` and their kin in `__getitem__` when what is read
    does not depend on the index, and whole tables of an HDF5 file of which one row is used.

    ## Why it is slow
    The file is read and parsed once per item: an epoch costs the size of the dataset times what one read would.

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
    requires = ("load", "read_", "genfromtxt", "h5py")
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
        Invalid("""
            class Rows(Dataset):
                def __getitem__(self, i):
                    return np.load(self.path)[i]  # !
        """),
        Invalid("""
            import json
            from torch.utils.data import Dataset

            class Captions(Dataset):
                def __getitem__(self, index):
                    with open(self.caption_file) as f:
                        captions = json.load(f)  # !
                    return captions[index]
        """),
        Invalid("""
            import pandas as pd
            from torch.utils.data import Dataset

            class Labels(Dataset):
                def __getitem__(self, index):
                    table = pd.read_csv(self.root + "/labels.csv")  # !
                    return table.iloc[index]
        """),
    )

    def check(self, node: ast.AST, file: SourceFile) -> Iterator[Problem]:
        if not isinstance(node, ast.Call) or not node.args:
            return
        name = file.imports.qualified(node.func)
        if name != _HDF5 and not _WHOLE_FILE.match(name):
            return
        function = file.context.is_item_code(node)
        if function is None or not function.name.startswith("__getitem"):
            return
        source = opened(node.args[0], file)
        if (
            not same_for_all(source, function, file)
            or file.index.enclosing(node, (ast.If, ast.ExceptHandler)) is not None
        ):
            return
        if name == _HDF5:
            yield from _tables(node, source, function, file)
        elif not _reads_a_part(node, name, function):
            sure = stays_the_same(source, function, file) and is_row_by_row(
                node, function, file, archive=name == _NUMPY
            )
            yield _problem(node, source, TEXTBOOK if sure else 0.8, function, file)


def _reads_a_part(call: ast.Call, name: str, function: FunctionNode) -> bool:
    """Do the arguments name the rows, or the table, that the item needs?"""
    if any(keyword_of(call, option) is not None for option in _SLICES):
        return True
    if name == _NUMPY and len(call.args) > 1:  # `mmap_mode`
        return True
    return any(depends_on_item(part, function) for part in (*call.args[1:], *call.keywords))


def _tables(
    opened_file: ast.Call, source: ast.expr, function: FunctionNode, file: SourceFile
) -> Iterator[Problem]:
    """`f["rows"][:]`: HDF5 reads rows by themselves, so a whole table is a problem only where one row of it is used."""
    if not stays_the_same(source, function, file):
        return
    for table in whole_of_table(opened_file, function, file):
        if is_row_by_row(table, function, file):
            yield _problem(table, source, TEXTBOOK, function, file)


def _problem(
    read: ast.expr, source: ast.expr, confidence: float, function: FunctionNode, file: SourceFile
) -> Problem:
    if isinstance(read, ast.Subscript):
        what, cure = f"all rows of a table of {quote(file, source)}", "Read the row of the item alone."
    else:
        what, cure = f"the whole of {quote(file, source)}", "Read it once in `__init__`."
    return Problem(
        read,
        f"{quote(file, read)} reads {what} for each item: it does not depend on the index. {cure}",
        confidence,
        (Evidence(function.lineno, f"`{function.name}` runs once an item"),),
        cause=function,
    )
