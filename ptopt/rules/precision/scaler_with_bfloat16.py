from __future__ import annotations

import ast
from collections.abc import Iterator

from ptopt.rules.base import Evidence, Fix, Invalid, Problem, Rule, Safety, Severity, SourceFile
from ptopt.rules.code import add_keyword, has_unpacking, is_literal, keyword_of, replace_node

_SCALERS = frozenset(
    (
        "torch.amp.GradScaler",
        "torch.GradScaler",
        "torch.cuda.amp.GradScaler",
        "torch.amp.grad_scaler.GradScaler",
    )
)
_AUTOCASTS = frozenset(("torch.autocast", "torch.amp.autocast", "torch.cuda.amp.autocast"))


class ScalerWithBfloat16(Rule):
    """A GradScaler is on though all autocast regions are bfloat16.

    ## What it does
    Finds an enabled `GradScaler` in a file whose `autocast` calls all say `dtype=torch.bfloat16`.

    ## Why it is slow
    The scaler goes over every gradient to look for overflows and reads the answer back, which makes Python wait for
    the GPU before each optimizer step. bfloat16 has the range of float32: there is nothing to scale.

    ## When this is wrong
    When the model itself holds float16 parameters, or another file runs it in float16.

    ## Fix safety
    Unsafe: steps that the scaler skipped (its first ones, with too large a scale) are then taken.

    ## Sources
    - [torch.amp: gradient scaling](https://docs.pytorch.org/docs/stable/amp.html#gradient-scaling)
    """

    id = "PTO751"
    name = "scaler-with-bfloat16"
    family = "precision"
    severity = Severity.LOW
    triggers = ("GradScaler",)
    requires = ("bfloat16",)
    nodes = (ast.Call,)
    when_wrong = "float16 parameters or another file's float16 region use this scaler"

    VALID = (
        """
        scaler = torch.amp.GradScaler("cuda", enabled=dtype == torch.float16)
        with torch.autocast("cuda", dtype=torch.bfloat16):
            loss = model(x)
        """,
        """
        dtype = torch.bfloat16 if torch.cuda.is_bf16_supported() else torch.float16
        scaler = torch.cuda.amp.GradScaler()
        with torch.autocast("cuda", dtype=dtype):
            loss = model(x)
        """,
        """
        scaler = torch.cuda.amp.GradScaler()
        with torch.autocast("cuda", dtype=torch.float16):
            loss = model(x)
        with torch.autocast("cuda", dtype=torch.bfloat16):
            other = model(x)
        """,
    )
    INVALID = (
        Invalid("""
            scaler = torch.amp.GradScaler("cuda")  # !
            # + scaler = torch.amp.GradScaler("cuda", enabled=False)
            with torch.autocast("cuda", dtype=torch.bfloat16):
                loss = model(x)
            scaler.scale(loss).backward()
        """),
        Invalid("""
            from torch.cuda.amp import GradScaler, autocast
            import torch

            scaler = GradScaler()  # !
            # + scaler = GradScaler(enabled=False)
            with autocast(dtype=torch.bfloat16):
                loss = model(x)
            scaler.scale(loss).backward()
        """),
        Invalid("""
            class Trainer:
                def __init__(self):
                    self.scaler = torch.cuda.amp.GradScaler(enabled=True)  # !
                    # + self.scaler = torch.cuda.amp.GradScaler(enabled=False)

                def step(self, x):
                    with torch.amp.autocast("cuda", torch.bfloat16):
                        return self.scaler.scale(self.model(x))
        """),
    )

    def check(self, node: ast.AST, file: SourceFile) -> Iterator[Problem]:
        if not isinstance(node, ast.Call) or file.imports.qualified(node.func) not in _SCALERS:
            return
        enabled = keyword_of(node, "enabled")
        if has_unpacking(node) or (enabled is not None and not is_literal(enabled, True)):
            return
        region = file.once(_bfloat16_region)
        if region is None:
            return
        off = replace_node(file, enabled, "False") if enabled else add_keyword(file, node, "enabled=False")
        yield Problem(
            node,
            f"This scaler checks every gradient for overflow and makes Python wait for the answer on each step, but "
            f"autocast runs in bfloat16 (line {region.lineno}), which does not overflow where float16 does. Turn the "
            "scaler off.",
            0.8,
            (Evidence(region.lineno, "autocast runs in bfloat16"),),
            Fix(Safety.UNSAFE, (off,), "nothing else runs in float16 with this scaler"),
        )


def _bfloat16_region(file: SourceFile) -> ast.Call | None:
    """The first autocast call, when every one in the file names bfloat16."""
    first: ast.Call | None = None
    for call in file.index.of_type(ast.Call):
        name = file.imports.qualified(call.func)
        if name not in _AUTOCASTS:
            continue
        dtype = keyword_of(call, "dtype") or (call.args[1] if len(call.args) > 1 else None)
        if dtype is None or file.imports.qualified(dtype) != "torch.bfloat16":
            return None
        first = first or call
    return first
