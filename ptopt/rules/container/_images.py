"""What base images bring."""

from __future__ import annotations

import re

from ptopt.configs.dockerfile import Stage

WITH_TORCH = re.compile(
    r"(?:docker\.io/)?(?:pytorch/pytorch|nvcr\.io/nvidia/(?:pytorch|nemo|modulus/modulus)|rocm/pytorch|vllm/vllm-openai|"
    r"huggingface/transformers-pytorch[\w-]*|\S*l4t-(?:ml|pytorch))(?::|@|$)"
)
CUDA = re.compile(r"(?:nvidia/cuda|nvcr\.io/nvidia/cuda|pytorch/pytorch:\S*cuda|nvcr\.io/nvidia/pytorch)")


CPU_BUILD = re.compile(
    r"download\.pytorch\.org/whl/(?:nightly/|test/)?cpu|--torch-backend[ =]cpu|\+cpu\b|cpuonly"
)
CONDITIONAL = re.compile(r"(?:^|[;&|\s])(?:if\s+\[|if\s+test\b|case\s)")  # whether it runs is not known


def has_torch(stage: Stage) -> str | None:
    """The base image that brings torch."""
    return next((image for image in stage.bases if WITH_TORCH.match(image)), None)


def has_cuda(stage: Stage) -> str | None:
    """The base image that brings CUDA."""
    return next((image for image in stage.bases if CUDA.match(image)), None)
