"""What kind of file a path promises."""

from __future__ import annotations

import pytest

from ptopt.config import Config
from ptopt.pathkind import path_kind


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
