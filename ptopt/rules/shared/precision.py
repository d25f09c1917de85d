"""The precision that code computes in: what chooses one, and how Lightning is asked for another."""

from __future__ import annotations

import ast
import re

from ptopt.project.facts import ProjectFacts
from ptopt.rules.base import SourceFile

_CHOSEN = re.compile(
    r"autocast|\bamp\b|GradScaler|half\(|bfloat16|bf16|fp16|float16|precision|accelerat|deepspeed|float64|double\(|apex"
    r"|TrainingArguments|(cfg|config|args|opts?|params|hparams)\.dtype|(torch|weight|train|model|compute|param|get)_\w*dtype|allow_tf32|set_float32_matmul|\.to\(dtype"
    # What autocast refuses, or what loses its meaning in 8 bits of mantissa.
    r"|\bBCELoss\b|binary_cross_entropy\(|\bfft|complex(64|128)",
    re.I,
)
# Of other files: what says that a network is loaded, wrapped or run in fewer bits.
_CHOSEN_ELSEWHERE = re.compile(
    rb"autocast|GradScaler|bfloat16|torch_dtype|\.half\(\)|deepspeed|Accelerator\(|Fabric\(|apex", re.I
)


def chooses_precision(file: SourceFile) -> bool:
    """Does the code of the file choose a precision, or hold what goes wrong in fewer bits?"""
    return _CHOSEN.search(file.once(_code)) is not None


def is_chosen_elsewhere(file: SourceFile) -> bool:
    """Does another file of the repository run a network in fewer bits?"""
    return file.repository.matches(_CHOSEN_ELSEWHERE)


def lightning_precision(facts: ProjectFacts) -> str:
    """The `precision` of Lightning's `Trainer` that mixes types, as the versions that the project admits spell it.

    "" where torch has none of its own, so that Lightning would ask for apex.
    """
    if facts.has("bf16-mixed"):
        return "bf16-mixed"
    if facts.has('precision="bf16"'):
        return "bf16"
    return "16" if facts.has("torch.cuda.amp") else ""


def _code(file: SourceFile) -> str:
    """The text without comments, and without strings that stand alone."""
    lines = file.text.split("\n")
    for node in file.index.of_type(ast.Expr):
        if isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            for number in range(node.lineno, (node.end_lineno or node.lineno) + 1):
                lines[number - 1] = ""
    return "\n".join(line.partition("#")[0] for line in lines)
