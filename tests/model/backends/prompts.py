"""Prompts for tests with real models."""

from __future__ import annotations

from typing import Any

from ptopt.model.interface import ChatPrompt, JudgePrompt

CODE = "\n".join(f"{n:2d} + total += loss.item()  # step {n}" for n in range(1, 9))


def judge(n: int, marks: int = 2, lines: int = 8) -> JudgePrompt:
    """Prompts that differ in `n`, like those of a review in form."""
    code = "\n".join(CODE.splitlines()[:lines])
    questions = [
        f"\nitem-every-step {n}.{mark}: does this line wait for the GPU? Answer" for mark in range(marks)
    ]
    return JudgePrompt((f"def train{n}():\n{code}{questions[0]}", *questions[1:]))


FINDING: dict[str, Any] = {
    "type": "object",
    "properties": {
        "rule": {"enum": ["item-every-step", "cat-in-loop"]},
        "start_line": {"enum": [1, 2, 3]},
        "end_line": {"enum": [1, 2, 3]},
        "replacement": {"type": "string", "maxLength": 400},
        "reason": {"type": "string", "maxLength": 200},
    },
    "required": ["rule", "start_line", "end_line", "replacement", "reason"],
    "additionalProperties": False,
}
FINDINGS: dict[str, Any] = {
    "type": "object",
    "properties": {"findings": {"type": "array", "items": FINDING, "minItems": 1, "maxItems": 3}},
    "required": ["findings"],
    "additionalProperties": False,
}


def advise(max_tokens: int, schema: dict[str, Any] | None = FINDINGS) -> ChatPrompt:
    return ChatPrompt("You review code.", f"{CODE}\nList the problems as JSON.", schema, max_tokens)
