"""What a condition is by default."""

from __future__ import annotations

import ast
import textwrap

import pytest

from ptopt.source.file import SourceFile
from ptopt.source.options import default_of


def _default(code: str) -> bool | None:
    file = SourceFile.parse("f.py", textwrap.dedent(code).encode())
    condition = next(c for c in file.index.of_type(ast.If) if "# ?" in file.line(c.lineno))
    return default_of(condition.test, file)


@pytest.mark.parametrize(
    ("test", "default"),
    [
        ("verbose", False),
        ("not verbose", True),
        ("mask is None", True),
        ("mask is not None", False),
        ("depth > 0", True),
        ("mode == 'sum'", False),
        ("verbose and other", False),
        ("fast or other", True),
        ("verbose or other", None),
        ("other", None),
        ("mask > 0", None),
    ],
)
def test_parameters(test: str, default: bool | None) -> None:
    assert (
        _default(f"""
            def f(other, mask=None, depth=2, *, verbose=False, fast=True, mode="mean"):
                if {test}:  # ?
                    pass
            """)
        is default
    )


def test_a_nested_function_sees_the_parameters_around_it() -> None:
    code = """
        def f(verbose=False):
            def g(x):
                if verbose:  # ?
                    pass
        """
    assert _default(code) is False


def test_attributes_set_by_the_constructor() -> None:
    code = """
        class A:
            def __init__(self, bias=True, scale=None):
                self.bias = bias
                self.scale = scale

            def f(self):
                if self.bias and self.scale is not None:  # ?
                    pass
        """
    assert _default(code) is False


def test_fields_of_a_dataclass() -> None:
    code = """
        @dataclass
        class Config:
            fused: bool = True

        def f(config):
            if config.fused:  # ?
                pass
        """
    assert _default(code) is True


@pytest.mark.parametrize(
    ("declared", "default"),
    [
        ('"--fp16", action="store_true"', False),
        ('"--fp16", action="store_false"', True),
        ('"-f", "--fp16", type=int, default=1', True),
        ('"--fp16", default=os.environ["X"]', None),
        ('"fp16"', None),
    ],
)
def test_command_line(declared: str, default: bool | None) -> None:
    assert (
        _default(f"""
            parser.add_argument({declared})
            args = parser.parse_args()
            if args.fp16:  # ?
                pass
            """)
        is default
    )
