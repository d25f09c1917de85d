from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ptopt.project.facts import read_facts
from ptopt.project.linelength import LENGTH_FILES, line_length


@pytest.mark.parametrize(
    ("files", "length"),
    [
        ({}, None),
        ({"pyproject.toml": "[project]\nname = 'x'\n"}, None),
        ({"pyproject.toml": "[tool.black]\nline-length = 100\n"}, 100),
        ({"pyproject.toml": "[tool.ruff.lint]\nselect = ['E']\n"}, 88),  # ruff's default
        ({"pyproject.toml": "[tool.black]\nline-length = 79\n[tool.ruff]\nline-length = 120  # wide\n"}, 120),
        ({"ruff.toml": "line-length = 99\n", "pyproject.toml": "[tool.black]\n"}, 99),
        ({"setup.cfg": "[metadata]\nname = x\n\n[flake8]\nmax-line-length = 119\n"}, 119),
        ({".flake8": "[flake8]\nmax_line_length: 127\n"}, 127),
        ({"tox.ini": "[testenv]\n[pycodestyle]\nmax-line-length=100\r\n"}, 100),
        ({"setup.cfg": "[yapf]\ncolumn_limit = 110\n[flake8]\nmax-line-length = 200\n"}, 110),
        ({"pyproject.toml": "[tool.ruff]\nline-length = 20\n"}, 40),
    ],
)
def test_the_tool_that_formats_decides(files: dict[str, str], length: int | None) -> None:
    data = {name: text.encode() for name, text in files.items()}
    assert line_length(data) == length
    assert read_facts(data).line_length == length


@given(st.dictionaries(st.sampled_from(LENGTH_FILES), st.binary(max_size=80)))
def test_any_bytes(files: dict[str, bytes]) -> None:
    length = line_length(files)
    assert length is None or 40 <= length <= 999
