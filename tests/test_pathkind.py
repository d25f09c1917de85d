"""What kind of file a path promises."""

from __future__ import annotations

import pytest

from ptopt.config import Config
from ptopt.pathkind import is_evaluation, path_kind


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("tests/test_model.py", "tests"),
        ("src/unit_tests/model.py", "tests"),
        ("lib/test_model.py", "tests"),
        ("examples/train.py", "examples"),
        ("examples-da/image/train.py", "examples"),
        ("docs/conf.py", "examples"),
        ("demo_video.py", "demos"),
        ("package/utils/demo_utils.py", None),
        ("perf/matmul.py", "benchmarks"),
        ("deploy/benchmark.py", "benchmarks"),
        ("test.py", None),
        ("train_test.py", None),
        ("test_time_adaptation/model.py", None),
        ("sample_generation/loop.py", None),
        ("lib/latest/model.py", None),
        ("www.evil.example/model.py", None),
        ("lib/model.py", None),
    ],
)
def test_kinds(path: str, kind: str | None) -> None:
    assert path_kind(path) == kind


def test_what_is_skipped_as_an_example_may_be_documentation() -> None:
    assert (
        Config().why_skipped("docs/_config.yml")
        == "documentation and examples are skipped by default (`skip`)"
    )


EVALUATION = b"""
import torch

def test_det(opt, batch_size=12):
    assert batch_size
    return torch.load(opt.model)

if __name__ == '__main__':
    test_det(parse(), batch_size=4)
"""


@pytest.mark.parametrize(
    ("path", "data", "expected"),
    [
        ("src/test_det.py", EVALUATION, True),
        ("test_det.py", EVALUATION, True),
        ("tests/test_det.py", EVALUATION, False),
        ("src/conftest.py", EVALUATION, False),
        ("src/test_det.py", EVALUATION.replace(b"__main__", b"other"), False),
        ("src/test_det.py", b"import pytest\n" + EVALUATION, False),
        ("src/test_det.py", EVALUATION + b"def test_more():\n    pass\n", False),
        ("src/test_det.py", EVALUATION + b"class TestModel:\n    pass\n", False),
    ],
)
def test_a_script_that_evaluates_is_no_test(path: str, data: bytes, expected: bool) -> None:
    assert is_evaluation(path, data) is expected
    skipped = Config().why_skipped(path, data)
    assert (skipped is None) is expected and Config().why_skipped(path) is not None


def test_a_file_that_is_named_is_not_skipped_for_its_kind() -> None:
    config = Config.model_validate({"exclude": ["src/b.py"]}).naming(["tests/a.py", "src/b.py"])
    assert config.why_skipped("tests/a.py") is None and config.why_skipped("tests/c.py") is not None
    assert config.why_skipped("src/b.py") == "excluded by `exclude` ('src/b.py')"
