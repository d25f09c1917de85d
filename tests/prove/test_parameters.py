from __future__ import annotations

import ast
import json
from pathlib import Path
from typing import Any

import pytest

from ptopt.prove.given import InputsError, read_inputs
from ptopt.prove.parameters import parameters_of
from ptopt.prove.reasons import RefusedError


def _choices(parameter: str) -> list[dict[str, Any]]:
    function = ast.parse(f"def f({parameter}): pass").body[0]
    assert isinstance(function, ast.FunctionDef)
    return list(parameters_of(function)[0].choices)


@pytest.mark.parametrize(
    ("parameter", "first"),
    [
        ("x: Tensor", {"kind": "tensor", "dtype": "float32"}),
        ("x: 'torch.Tensor'", {"kind": "tensor", "dtype": "float32"}),
        ("x: torch.LongTensor", {"kind": "tensor", "dtype": "int64"}),
        ("x: Tensor | None = None", {"kind": "default"}),
        ("x: list[Tensor]", {"kind": "list", "dtype": "float32"}),
        ("x: tuple[Tensor, ...]", {"kind": "tuple", "dtype": "float32"}),
        ("x: np.ndarray", {"kind": "array", "dtype": "float32"}),
        ("x: torch.dtype", {"kind": "dtype", "value": "float32"}),
        ("x: Literal['sum', 'mean']", {"kind": "value", "value": "sum"}),
        ("x: int", {"kind": "value", "value": 2}),
        ("x", {"kind": "tensor", "dtype": "float32"}),
        ("x=3", {"kind": "default"}),
        ("device", {"kind": "value", "value": "cpu"}),
    ],
)
def test_the_likeliest_input_comes_first(parameter: str, first: dict[str, Any]) -> None:
    assert _choices(parameter)[0] == first


def test_dimensions_of_one_name_have_one_letter() -> None:
    function = ast.parse(
        'def f(x: Float[Tensor, "n d"], y: Int[Tensor, "d 3"], z: Float[Tensor, "..."]): pass'
    ).body[0]
    assert isinstance(function, ast.FunctionDef)
    x, y, z = (p.choices[0] for p in parameters_of(function))
    assert (x["shape"], y["shape"]) == (["a", "b"], ["b", 3])
    assert (x["within"], y["within"], z["within"]) == ("floating", "signed", "floating")
    assert "shape" not in z


def test_more_dimensions_than_letters_are_refused() -> None:
    function = ast.parse('def f(x: Float[Tensor, "a b c d e"]): pass').body[0]
    assert isinstance(function, ast.FunctionDef)
    with pytest.raises(RefusedError):
        parameters_of(function)


def test_inputs_of_a_file_replace_what_is_inferred(tmp_path: Path) -> None:
    file = tmp_path / "inputs.json"
    file.write_text(
        json.dumps(
            {"f": {"x": {"shape": ["n", 16], "dtype": "int64", "high": 9}, "k": [{"value": 1}, {"value": 2}]}}
        )
    )
    function = ast.parse("def f(x: dict, k, *, y: int = 1): pass").body[0]
    assert isinstance(function, ast.FunctionDef)
    x, k, _ = parameters_of(function, read_inputs(file)["f"])
    assert x.choices == (
        {"kind": "tensor", "dtype": "int64", "shape": ["a", 16], "high": 9, "within": "int64"},
    )
    assert [choice["value"] for choice in k.choices] == [1, 2]


@pytest.mark.parametrize(
    "text",
    ["", "[]", '{"f": 1}', '{"f": {"x": 3}}', '{"f": {"x": []}}', '{"f": {"x": {"shape": [-1]}}}', '{"f": {"x": {"shape": [1.5]}}}',
     '{"f": {"x": {"shape": 3}}}', '{"f": {"x": {"shape": [3], "dtype": "object"}}}', '{"f": {"x": {"shape": [9999999]}}}',
     '{"f": {"x": {"shape": [2], "code": "import os"}}}', '{"f": {"x": {"shape": [2], "high": 0}}}'],
)  # fmt: skip
def test_a_file_that_is_not_as_described_is_an_error(text: str, tmp_path: Path) -> None:
    file = tmp_path / "inputs.json"
    file.write_text(text)
    with pytest.raises(InputsError, match=str(file)):
        read_inputs(file)
