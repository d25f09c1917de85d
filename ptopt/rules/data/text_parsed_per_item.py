from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from ptopt.rules.base import Invalid, Problem, Severity, SourceFile
from ptopt.rules.code import quote
from ptopt.rules.data._items import ItemRule, item_evidence
from ptopt.rules.data.file_read_per_item import FileReadPerItem
from ptopt.source.index import FunctionNode

_PARSERS = re.compile(
    r"^(json\.loads?|ujson\.loads?|orjson\.loads|ast\.literal_eval|yaml\.(safe_)?load|xml\.etree\.\w+\.(parse|fromstring)"
    r"|lxml\.etree\.(parse|fromstring)|numpy\.(loadtxt|genfromtxt|fromstring)|pandas\.read_(csv|json|excel|table)|csv\.(reader"
    r"|DictReader)|rdkit\.Chem\.MolFromSmiles|rdkit\.Chem\.\w+\.MolFromSmiles)$"
)
_BINARY = "`.npy`, Arrow or a tensor file"

_SAME_FILE = FileReadPerItem()


class TextParsedPerItem(ItemRule):
    """A dataset parses text (JSON, XML, CSV, literals) again for each item, in every epoch.

    ## What it does
    Finds `json.load(s)`, `ast.literal_eval`, `yaml.load`, `ElementTree.parse`, `np.loadtxt`, `pd.read_csv` and their
    kin in code that runs for each item of a dataset, when the result is not kept.

    ## Why it is slow
    Python parses character by character: numbers in text take many times as long to read as the same numbers in binary,
    and each epoch pays again.

    ## Fix safety
    No fix: the parsed form has to fit in memory, or be written to a binary file beforehand.

    ## Sources
    - [NumPy documentation: reading and writing files](https://numpy.org/doc/stable/user/how-to-io.html)
    """

    id = "PTO332"
    name = "text-parsed-per-item"
    severity = Severity.LOW
    most_stated = 0.4
    calls = frozenset(
        "loads load literal_eval safe_load parse fromstring loadtxt genfromtxt read_csv read_json read_excel read_table reader "
        "DictReader MolFromSmiles".split()
    )
    when_wrong = "the text is short beside what else the item costs, or each item is read once"

    VALID = (
        """
        class Rows(Dataset):
            def __init__(self, lines):
                self.rows = [json.loads(line) for line in lines]

            def __getitem__(self, i):
                return self.rows[i]
        """,
        """
        import json
        class Rows(Dataset):
            def __getitem__(self, i):
                if i not in self.cache:
                    self.cache[i] = json.loads(self.lines[i])
                return self.cache[i]
        """,
        """
        class Rows(Dataset):
            def __getitem__(self, i):
                return torch.load(self.paths[i])
        """,
    )
    INVALID = (
        Invalid("""
            import json, torch
            class Rows(Dataset):
                def __getitem__(self, i):
                    return torch.tensor(json.loads(self.lines[i])["values"])  # !
        """),
        Invalid("""
            import torch
            import xml.etree.ElementTree as ET
            class Boxes(Dataset):
                def __getitem__(self, i):
                    root = ET.parse(self.paths[i]).getroot()  # !
                    return root.findall("object")
        """),
        Invalid("""
            import numpy as np
            from torch.utils.data import Dataset
            class Points(Dataset):
                def __getitem__(self, i):
                    return self.read(self.paths[i])

                def read(self, path):
                    return np.loadtxt(path)  # !
        """),
    )

    def _candidate(self, node: ast.AST, file: SourceFile) -> bool:
        if not isinstance(node, ast.Call) or not node.args:
            return False
        return bool(_PARSERS.match(file.imports.qualified(node.func)))

    def check_item(self, node: ast.AST, function: FunctionNode, file: SourceFile) -> Iterator[Problem]:
        if not isinstance(node, ast.Call):
            return
        if next(_SAME_FILE.check(node, file), None) is not None:
            return  # which says more: the same file for each item
        from_file = "load" in (name := file.source(node.func)) and not name.endswith("loads")
        yield Problem(
            node,
            f"{quote(file, node)} parses text for each item, again in every epoch. Parse once, in `__init__` or beforehand, and keep "
            f"the result in memory or in a binary format ({_BINARY}).",
            0.4,
            item_evidence(node, file),
            cause=function,
            facts={"from_file": float(from_file or "read_" in name)},
        )
