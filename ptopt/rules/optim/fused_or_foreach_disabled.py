from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from ptopt.rules.base import Fix, Invalid, Problem, Rule, Safety, SourceFile
from ptopt.rules.code import has_unpacking, is_literal, keyword_of
from ptopt.rules.shared.removal import remove_keyword

_CLIP = frozenset(
    f"torch.nn.utils{part}.{name}"
    for part in ("", ".clip_grad")
    for name in ("clip_grad_norm_", "clip_grad_value_")
)
# A sharded model has few, large parameters and little memory: there one at a time is a sound choice.
# Large models that are tuned in tight memory, and code that must repeat bit by bit: the literal may be wanted.
_LIKELY_WANTED = re.compile(
    r"from_pretrained|device_map|use_deterministic|full_determinism|bit-?exact|cpu_offload"
)
_BRANCH = re.compile(r"npu|mps|xpu|hpu|xla|cpu|memory|foreach|fused", re.I)
_SHARDED = re.compile(r"fsdp|fully_shard|fabric|deepspeed|zero_?redundancy", re.I)


class FusedOrForeachDisabled(Rule):
    """An optimizer is configured to update one parameter at a time.

    ## What it does
    Finds `foreach=False` or `fused=False` written out in the call of a `torch.optim` optimizer or of gradient
    clipping, in a file that uses an accelerator.

    ## Why it is slow
    Left alone, torch picks the multi-tensor implementation on CUDA. Either literal switches that choice off
    (`fused=False` too: torch picks only when neither argument is given), and each parameter costs several kernel
    launches of its own on every step.

    ## When this is wrong
    When memory is so tight that the temporary tensors of the multi-tensor update do not fit (files that shard the
    model are left alone), or when the file works around a bug of that implementation.

    ## Fix safety
    Unsafe: the multi-tensor update needs temporary memory of about the size of the parameters.

    ## Sources
    - [torch.optim.Adam: foreach and fused](https://docs.pytorch.org/docs/stable/generated/torch.optim.Adam.html)
    """

    id = "PTO703"
    name = "fused-or-foreach-disabled"
    family = "optim"
    triggers = ("foreach", "fused")
    requires = ("cuda", "device", "lightning", "accelerat")
    nodes = (ast.Call,)
    when_wrong = "memory is too tight for the temporary tensors of the multi-tensor update"

    VALID = (
        "optimizer = torch.optim.AdamW(model.cuda().parameters(), lr=lr, fused=True)",
        "optimizer = torch.optim.AdamW(model.cuda().parameters(), lr=lr, fused=False, foreach=True)",
        "optimizer = torch.optim.AdamW(model.cuda().parameters(), lr=lr, foreach=False, fused=args.fused)",
        "sgd = build_sgd(model.cuda().parameters(), lr=lr, foreach=False)",
        """
        model = FSDP(model.cuda())
        optimizer = torch.optim.AdamW(model.parameters(), lr=lr, foreach=False)
        """,
        """
        # foreach=False: the temporary tensors do not fit beside the activations
        optimizer = torch.optim.SGD(model.cuda().parameters(), lr=lr, foreach=False)
        """,
    )
    INVALID = (
        Invalid(
            "optimizer = torch.optim.Adam(model.cuda().parameters(), lr=lr, foreach=False)  # !",
            "optimizer = torch.optim.Adam(model.cuda().parameters(), lr=lr)",
        ),
        Invalid(
            "optimizer = torch.optim.AdamW(model.to(device).parameters(), fused=False, lr=lr)  # !",
            "optimizer = torch.optim.AdamW(model.to(device).parameters(), lr=lr)",
        ),
        Invalid(
            "torch.nn.utils.clip_grad_norm_(model.cuda().parameters(), max_norm=10.0, foreach=False)  # !",
            "torch.nn.utils.clip_grad_norm_(model.cuda().parameters(), max_norm=10.0)",
        ),
    )

    def candidates(self, file: SourceFile) -> list[ast.AST]:
        return [*file.index.calls_with("fused", "foreach")]

    def check(self, node: ast.AST, file: SourceFile) -> Iterator[Problem]:
        if not isinstance(node, ast.Call) or not node.keywords:
            return
        fused, foreach = keyword_of(node, "fused"), keyword_of(node, "foreach")
        name = "foreach" if is_literal(foreach, False) else "fused" if is_literal(fused, False) else ""
        other = fused if name == "foreach" else foreach
        if not name or other is not None or has_unpacking(node):
            return
        if (
            node.args
            and isinstance(node.args[0], ast.List)
            and all(isinstance(e, ast.Name) for e in node.args[0].elts)
        ):
            return  # a tensor or two: one at a time is all there is
        qualified = file.imports.qualified(node.func)
        if not (qualified.startswith("torch.optim.") or qualified in _CLIP) or not file.uses_accelerator:
            return
        if file.search(_SHARDED) or _explained(node, name, file) or _for_other_device(node, file):
            return
        edit = remove_keyword(file, node, name)
        yield Problem(
            node,
            f"`{name}=False` makes `{qualified.rpartition('.')[2]}` go through the parameters one by one, with several "
            "kernel launches each. Drop the argument: torch then picks the multi-tensor implementation on CUDA.",
            0.5 if file.search(_LIKELY_WANTED) else 0.65,
            fix=Fix(
                Safety.UNSAFE, (edit,), "there is memory for temporary tensors of about the parameters' size"
            )
            if edit
            else None,
        )


def _for_other_device(node: ast.Call, file: SourceFile) -> bool:
    """Does the call stand in a branch for a device, or a memory setting, of its own?"""
    return any(
        isinstance(ancestor, ast.If)
        and child is not ancestor.test
        and _BRANCH.search(file.source(ancestor.test))
        for ancestor, child in file.index.ancestors(node)
    )


def _explained(node: ast.Call, name: str, file: SourceFile) -> bool:
    """Does a comment at the call, or on the line above it, speak of the argument?"""
    lines = range(max(1, file.index.statement_of(node).lineno - 1), (node.end_lineno or node.lineno) + 1)
    return any(name in file.line(n).partition("#")[2] for n in lines)
