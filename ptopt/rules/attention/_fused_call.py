"""Writes the call of `scaled_dot_product_attention` that does what the spelled-out code does."""

from __future__ import annotations

import ast
import re

from ptopt.rules.attention._scores import Scores
from ptopt.rules.attention._weights import Mixed
from ptopt.rules.base import SourceFile
from ptopt.rules.code import keyword_of
from ptopt.source.file import remembered
from ptopt.source.index import walk

_DEFAULT_SCALE = re.compile(
    r"\(?(1(\.0?)?/)?\(?(math\.|np\.|torch\.)?sqrt\([qk]\w*\.(size\(-1\)|shape\[-1\])\)\)?\)?|[qk]\w*\.(size\(-1\)|shape\[-1\])\*\*\(?-?0?\.5\)?"
)


def fused_call(scores: Scores, mixed: Mixed, rank: int | None, file: SourceFile) -> str:
    """The call as text. Three dimensions get one more, for no fused kernel takes them as they are."""
    parts = [
        _short(file.source(scores.query)),
        _short(file.source(scores.key)),
        _short(file.source(mixed.value)),
    ]
    if scores.transposed:
        parts[1] = f"{_grouped(parts[1])}.transpose(-2, -1)"
    if rank == 3:
        parts = [f"{_grouped(part)}.unsqueeze(0)" for part in parts]
    parts += _mask_arguments(scores, file)
    if scores.scales:
        factors = [(_short(file.source(f)), divides) for f, divides in scores.scales]
        text = factors[0][0].replace(" ", "")
        if len(factors) != 1 or not _DEFAULT_SCALE.fullmatch(text):
            if len(factors) == 1:
                given = f"1 / {_grouped(factors[0][0])}" if factors[0][1] else factors[0][0]
            else:
                given = " * ".join(
                    f"(1 / {_grouped(f)})" if divides else _grouped(f) for f, divides in factors
                )
            parts.append(f"scale={given}")
    else:
        parts.append("scale=1.0")
    if mixed.dropout is not None:
        parts.append(f"dropout_p={_dropout(mixed.dropout, file)}")
    names = {origin: local for local, origin in file.imports.local_names().items()}
    prefix = names.get("torch.nn.functional") or f"{names.get('torch', 'torch')}.nn.functional"
    ending = ".squeeze(0)" if rank == 3 else ""
    return f"{prefix}.scaled_dot_product_attention({', '.join(parts)}){ending}"


def _short(text: str) -> str:
    return " ".join(text.split())


def _grouped(text: str) -> str:
    return (
        text
        if re.fullmatch(r"[\w.]+(\([^()]*\))?", text) or (text[0] == "(" and text[-1] == ")")
        else f"({text})"
    )


def _mask_arguments(scores: Scores, file: SourceFile) -> list[str]:
    masks = scores.masks
    if not masks:
        return []
    if len(masks) == 1 and masks[0][0] in ("drop", "keep") and _is_causal(masks[0][1], file):
        return ["is_causal=True"]
    texts = []
    boolean = all(kind in ("drop", "keep") for kind, _ in masks)
    for kind, mask in masks:
        text = _short(file.source(mask))
        if kind == "drop":
            texts.append(_negated(mask, text, file))
        else:
            texts.append(f"-{_grouped(text)}" if kind == "subtract" else text)
    if len(texts) == 1:
        return [f"attn_mask={texts[0]}"]
    return [f"attn_mask={' & '.join(map(_grouped, texts))}"] if boolean else ["attn_mask=mask"]


def _negated(mask: ast.expr, text: str, file: SourceFile) -> str:
    if isinstance(mask, ast.UnaryOp) and isinstance(mask.op, ast.Invert):
        return _short(file.source(mask.operand))
    if isinstance(mask, ast.Compare) and len(mask.ops) == 1 and isinstance(mask.ops[0], ast.Eq):
        return f"{_short(file.source(mask.left))} != {_short(file.source(mask.comparators[0]))}"
    return f"~{_grouped(text)}"


def _is_causal(mask: ast.expr, file: SourceFile) -> bool:
    """A lower triangle of this class, cut to the same length on both sides."""
    held = (
        mask.left
        if isinstance(mask, ast.Compare)
        else mask.operand
        if isinstance(mask, ast.UnaryOp)
        else mask
    )
    if not (
        isinstance(held, ast.Subscript) and isinstance(held.slice, ast.Tuple) and len(held.slice.elts) >= 2
    ):
        return False
    rows, columns = (file.source(e) if isinstance(e, ast.Slice) else "" for e in held.slice.elts[-2:])
    if rows != columns or not isinstance(held.value, ast.Attribute):
        return False
    cls = file.index.class_of(mask)
    name = held.value.attr
    if cls is None or not (isinstance(mask, ast.Compare) and isinstance(mask.ops[0], ast.Eq)):
        return False
    return name in _triangles(cls, file)


@remembered
def _triangles(cls: ast.ClassDef, file: SourceFile) -> frozenset[object]:
    """Names of the buffers of a class that are lower triangles."""
    return frozenset(
        n.args[0].value
        for n in walk(cls)
        if isinstance(n, ast.Call)
        and isinstance(n.func, ast.Attribute)
        and n.func.attr == "register_buffer"
        and len(n.args) >= 2
        and isinstance(n.args[0], ast.Constant)
        and "torch.tril(torch.ones(" in file.source(n.args[1])
    )


def _dropout(call: ast.Call, file: SourceFile) -> str:
    func = call.func
    if file.imports.qualified(func).startswith("torch."):
        p = keyword_of(call, "p") or (call.args[1] if len(call.args) > 1 else None)
        text = _short(file.source(p)) if p is not None else "0.5"
        training = keyword_of(call, "training") or (call.args[2] if len(call.args) > 2 else None)
        return text if training is None else f"{text} if {_short(file.source(training))} else 0.0"
    return f"{file.source(func)}.p if self.training else 0.0"
