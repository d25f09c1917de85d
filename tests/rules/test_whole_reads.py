"""A whole file that is read for each item of a dataset: which shapes are proved, so that they get a comment, and which are not."""

from __future__ import annotations

import textwrap

import pytest

from ptopt.change import whole_file
from ptopt.config import Config
from ptopt.findings import TEXTBOOK, Finding
from ptopt.project.facts import NO_FACTS
from ptopt.review import review_files
from ptopt.rules import rules
from ptopt.rules.engine import run
from ptopt.source.file import SourceFile
from ptopt.source.work import limited

_HEAD = """\
import json
import os
import pickle

import h5py
import joblib
import numpy as np
import pandas as pd
import torch
from torch.utils.data import Dataset


class Items(Dataset):
    def __init__(self, path, root, ids):
        self.path = path
        self.root = root
        self.ids = ids

    def __len__(self):
        return len(self.ids)

    def __getitem__(self, index):
"""


def _file(body: str) -> str:
    return _HEAD + textwrap.indent(textwrap.dedent(body).strip("\n"), " " * 8) + "\n"


def _found(code: str, least: float | None = 0.0) -> list[Finding]:
    """What the rule says of the file; without `least`, what becomes a comment."""
    findings = review_files(
        [whole_file("data/items.py", code.encode())],
        config=Config.model_validate({"min-confidence": least, "select": ["PTO305"]}),
        facts=NO_FACTS,
        limit_to_change=False,
        one_per_cause=False,
    ).findings
    return list(findings)


SURE = [
    pytest.param("with open(self.path) as f:\n    rows = json.load(f)\nreturn rows[index]", id="json"),
    pytest.param("return np.load(self.path)[index]", id="numpy"),
    pytest.param(
        'return np.load(self.path + ".npy")[index * 4 : index * 4 + 4]', id="numpy, a block of rows"
    ),
    pytest.param("table = pd.read_csv(self.path)\nreturn table.iloc[index]", id="pandas"),
    pytest.param(
        'table = pd.read_csv(os.path.join(self.root, "labels.csv"))\nreturn table.iloc[index, 0]',
        id="a joined path",
    ),
    pytest.param('rows = torch.load(self.path)["images"]\nreturn rows[index]', id="torch, one of the tables"),
    pytest.param('with open(self.path, "rb") as f:\n    return pickle.load(f)[index]', id="pickle"),
    pytest.param(
        "name = self.ids[index]\nrows = joblib.load(self.path)\nreturn rows[name]",
        id="by what the index picks",
    ),
    pytest.param('with h5py.File(self.path, "r") as f:\n    rows = f["x"][:]\nreturn rows[index]', id="h5py"),
    pytest.param('f = h5py.File(self.path, "r")\nreturn f["x"][()][index]', id="h5py, in one expression"),
]


@pytest.mark.usefixtures("learned_ranker")
@pytest.mark.parametrize("body", SURE)
def test_one_row_of_a_file_that_is_read_whole(body: str) -> None:
    (found,) = _found(_file(body), least=None)
    assert found.stated == TEXTBOOK and found.severity == "high"
    assert "does not depend on the index" in found.message


@pytest.mark.parametrize(
    ("old", "new"),
    [
        pytest.param("self.root = root", "self.root = root\n\n    def set_epoch(self, path):\n        self.path = path", id="another file each epoch"),
        pytest.param("        self.path = path\n", "", id="nobody sets the path here"),
        pytest.param("class Items(Dataset)", "class Items(Registry)", id="no dataset that we know"),
        pytest.param("    def __getitem__", "    @cached\n    def __getitem__", id="a decorator"),
        pytest.param("rows = json.load(f)\n        return rows[index]", "rows = json.load(f)\n        return self.ids[index], rows", id="all of it is used"),
        pytest.param("        with open", "        if self.ids is not None:\n            return self.ids[index]\n        with open", id="a way out before it"),
    ],
)  # fmt: skip
def test_what_is_less_sure(old: str, new: str) -> None:
    code = _file("with open(self.path) as f:\n    rows = json.load(f)\nreturn rows[index]")
    assert [found.stated for found in _found(code)] == [TEXTBOOK] and old in code
    (found,) = _found(code.replace(old, new))
    assert found.stated is not None and found.stated < TEXTBOOK


@pytest.mark.parametrize(
    "body",
    [
        pytest.param('return np.load(self.path, "r")[index]', id="mapped"),
        pytest.param('return pd.read_hdf(self.path, f"row{index}")', id="a table of the item"),
        pytest.param('return np.load(self.path)[f"row{index}"]', id="an array of the item in an archive"),
        pytest.param('return np.load(self.path)["rows"]', id="an array of an archive, whole"),
        pytest.param("key = self.ids[index]\nreturn np.load(self.path)[key]", id="what may be an archive"),
        pytest.param('with h5py.File(self.path) as f:\n    return f["x"][index]', id="one row of HDF5"),
        pytest.param(
            'with h5py.File(self.path) as f:\n    rows = f[self.ids[index]][:]\nreturn rows[index]',
            id="HDF5, the table of the item",
        ),
    ],
)  # fmt: skip
def test_what_reads_no_more_than_the_item(body: str) -> None:
    assert all((found.stated or 0) < TEXTBOOK for found in _found(_file(body)))


@pytest.mark.parametrize(
    "body",
    [
        'return np.load(self.path, "r")[index]',
        'return pd.read_hdf(self.path, f"row{index}")',
        "return pd.read_excel(self.path, sheet_name=self.ids[index])",
    ],
)
def test_what_is_no_whole_file(body: str) -> None:
    assert _found(_file(body)) == []


def _visited(reads: int) -> int:
    body = (
        "".join(f"r{number} = json.load(open(self.path))\n" for number in range(reads)) + "return r0[index]"
    )
    file = SourceFile.parse("train.py", _file(body).encode())
    with limited(1 << 60) as account:
        assert len(list(run(file, [rule for rule in rules() if rule.id == "PTO305"]))) == reads
    return account.spent


def test_many_reads_in_one_function_cost_no_more_each() -> None:
    assert _visited(200) <= 5 * _visited(50)
