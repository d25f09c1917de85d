from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import ClassVar

from ptopt.rules.base import Invalid, Problem, Rule, Severity, SourceFile
from ptopt.rules.code import has_unpacking, is_literal, keyword_of
from ptopt.rules.shared.precision import lightning_precision

_ARGUMENTS = frozenset({"TrainingArguments", "Seq2SeqTrainingArguments"})
_LIGHTNING = ("lightning.", "pytorch_lightning.")


class TrainerInFullPrecision(Rule):
    """A trainer is set up without reduced precision.

    ## What it does
    Finds `TrainingArguments(...)` of transformers that sets neither `bf16`, `fp16` nor `tf32`, and a Lightning
    `Trainer` with `precision=32`, or on a GPU without `precision`.

    ## Why it is slow
    Both frameworks train in float32 unless they are asked. Tensor cores run bfloat16 matrix products several times
    faster, and activations take half the memory and bandwidth.

    ## When this is wrong
    When the model was loaded in a reduced precision, the GPU has no bfloat16 (use `fp16`), the job runs on a CPU, or
    the numerics need float32.

    ## Fix safety
    There is no fix: mixed precision changes the numbers, and wants a look at the losses.

    ## Sources
    - [transformers: mixed precision training](https://huggingface.co/docs/transformers/perf_train_gpu_one)
    - [Lightning: N-bit precision](https://lightning.ai/docs/pytorch/stable/common/precision_basic.html)
    """

    id = "PTO760"
    name = "trainer-in-full-precision"
    family = "precision"
    severity = Severity.HIGH
    most_stated = 0.45
    libraries: ClassVar[tuple[str, ...]] = ("torch", "lightning", "transformers")
    triggers = ("TrainingArguments(", "Trainer(")
    partly: ClassVar[frozenset[str]] = frozenset({"bf16-mixed", "bf16=True", 'precision="bf16"'})
    nodes = (ast.Call,)
    calls = frozenset({"TrainingArguments", "Seq2SeqTrainingArguments", "Trainer"})
    when_wrong = (
        "the model is loaded in reduced precision, the job runs on a CPU, or the numerics need float32"
    )

    VALID = (
        """
        trainer = pl.Trainer(gpus=2, use_amp=not args.fp32, amp_level="O2")
        trainer.fit(model)
        """,
        """
        from transformers import TrainingArguments

        args = TrainingArguments("out", bf16=True)
        """,
        """
        from transformers import TrainingArguments

        args = TrainingArguments("out", **options)
        """,
        'trainer = pl.Trainer(accelerator="gpu", precision="bf16-mixed")',
        'trainer = pl.Trainer(accelerator="cpu")',
    )
    INVALID = (
        Invalid("""
            from transformers import TrainingArguments

            args = TrainingArguments("out", num_train_epochs=3)  # !
            # ~ args = TrainingArguments("out", num_train_epochs=3, bf16=True)
        """),
        Invalid("""
            trainer = pl.Trainer(accelerator="gpu", max_epochs=3)  # !
            trainer.fit(model, data)
        """),
        Invalid("""
            trainer = pl.Trainer(devices=2, precision=32)  # !
            trainer.fit(model, data)
        """),
    )

    def check(self, node: ast.AST, file: SourceFile) -> Iterator[Problem]:
        if not isinstance(node, ast.Call) or has_unpacking(node):
            return
        name = file.imports.qualified(node.func)
        given = {k.arg: k.value for k in node.keywords if k.arg}
        stated = 0.0
        if name.startswith("transformers.") and name.rpartition(".")[2] in _ARGUMENTS:
            chosen = [given[k] for k in ("bf16", "fp16", "tf32") if k in given]
            if any(not is_literal(value, False) for value in chosen) or "bf16=" in file.text:
                return
            if any(is_literal(given.get(k), True) for k in ("no_cuda", "use_cpu", "use_mps_device")):
                return
            what, stated = "`TrainingArguments`", float(bool(chosen))
            remedy = "bf16=True" if file.facts.has("bf16=True") else "fp16=True"
        elif name.startswith(_LIGHTNING) and name.endswith(".Trainer") and file.calls_named("fit"):
            precision = keyword_of(node, "precision")
            stated = float(precision is not None)
            if {"use_amp", "amp_level", "plugins"} & given.keys():
                return  # how older versions are asked for half precision
            accelerator = given.get("accelerator")
            full = isinstance(precision, ast.Constant) and str(precision.value) in ("32", "32-true")
            on_gpu = "gpus" in given or (
                isinstance(accelerator, ast.Constant) and accelerator.value in ("gpu", "cuda", "auto")
            )
            if not full and (precision is not None or not on_gpu):
                return
            better = lightning_precision(file.facts)
            if not better:
                return
            what, remedy = "The `Trainer`", "precision=16" if better == "16" else f'precision="{better}"'
        else:
            return
        needs = "bfloat16 (Ampere or later)" if "bf16" in remedy else "tensor cores (Volta or later)"
        yield Problem(
            node,
            f"{what} trains in float32 here: nothing asks for less. If the GPU has {needs}, add "
            f"`{remedy}`: matrix products then run on tensor cores and activations take half the memory.",
            0.45,
            facts={
                "stated": stated,
                "half_loaded": float("torch_dtype" in file.text or "float16" in file.text),
            },
        )
