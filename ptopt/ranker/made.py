"""How large the tensors are that a hit makes, and whether its class is one layer of many: as far as the code shows."""

from __future__ import annotations

import ast
import math
import re
from itertools import islice

from ptopt.source.bindings import is_self
from ptopt.source.calls import last_name
from ptopt.source.file import SourceFile, remembered
from ptopt.source.index import LOOPS, walk

_FACTORIES = frozenset("zeros ones full empty rand randn eye new_zeros new_ones new_full new_empty".split())
_LIKE = frozenset("zeros_like ones_like full_like empty_like rand_like randn_like".split())
_FROM_PYTHON = frozenset("tensor as_tensor new_tensor from_numpy FloatTensor LongTensor".split())
_SQUARES = frozenset("triu tril tril_indices triu_indices cdist".split())
_DRAWN = frozenset("randint randperm multinomial".split())
# Dimensions that are large by their names.
_WIDE = re.compile(
    r"vocab|codebook|num_emb|n_emb|n_e\b|embed|height|width|\bh\b|\bw\b|resolution|pixels|points|length|seq|\bt\b|\bn\b|hidden|dim|"
    r"frames|samples|tokens|nodes|edges|atoms"
)
_BATCH = re.compile(r"batch|\bbs\b|\bb\b|bsz|size\(0\)|shape\[0\]|len\(")
_MOST_NODES = 200
_SEVERAL = (ast.List, ast.Tuple, ast.ListComp)
_COMPREHENSIONS = (ast.ListComp, ast.GeneratorExp, ast.DictComp)


def made(node: ast.AST, file: SourceFile) -> dict[str, float]:
    """What the hit makes: dimensions without a number in sight, the product of the others, what their names tell."""
    found: dict[str, float] = {}
    for call in (n for n in islice(walk(node), _MOST_NODES) if isinstance(n, ast.Call)):
        name = last_name(call.func)
        if name in _FACTORIES:
            for key, value in _shape(call, file).items():
                found[key] = max(value, found.get(key, 0.0))
        elif name in _LIKE:
            found["made:like another"] = 1.0
        elif name in ("arange", "linspace", "range"):
            found["made:range"] = 1.0
        elif name in _FROM_PYTHON and call.args:
            given = call.args[0]
            listed = isinstance(given, (ast.List, ast.Tuple)) and len(given.elts) <= 4
            found[f"made:{'one number' if listed or _is_number(given, file) else 'values'}"] = 1.0
        elif name in _SQUARES:
            found["made:square"] = 1.0
        elif name in _DRAWN:
            found["made:drawn"] = 1.0
    return found


def _is_number(given: ast.expr, file: SourceFile) -> bool:
    """Is it written as a number, or an attribute that nothing shows to hold several: `self.counts = [0] * n`?"""
    if not isinstance(given, ast.Attribute):
        return isinstance(given, (ast.Constant, ast.UnaryOp))
    cls = file.index.class_of(given)
    value = file.bindings.attribute(cls, given.attr) if cls is not None and is_self(given) else None
    parts = [value.left, value.right] if isinstance(value, ast.BinOp) else [value]
    return file.values.of(given).kind in ("", "scalar") and not any(
        isinstance(part, _SEVERAL)
        or (isinstance(part, ast.Call) and last_name(part.func) in ("list", "tuple"))
        for part in parts
    )


def _shape(call: ast.Call, file: SourceFile) -> dict[str, float]:
    """Of a factory that takes its dimensions one by one or as a tuple."""
    first = call.args[0] if call.args else None
    listed = first.elts if isinstance(first, (ast.Tuple, ast.List)) else call.args
    if last_name(call.func) in ("full", "new_full"):
        listed = first.elts if isinstance(first, (ast.Tuple, ast.List)) else call.args[:1]
    sizes = [d.value for d in listed if isinstance(d, ast.Constant) and isinstance(d.value, int)]
    open_ones = [file.source(d).lower() for d in listed if not isinstance(d, ast.Constant)]
    whole = any(text.startswith("*") or text.endswith((".shape", ".size()")) for text in open_ones)
    wide = sum(bool(_WIDE.search(text)) and not _BATCH.search(text) for text in open_ones)
    return {
        "made:like another": float(whole),
        "made:open dimensions": float(len(open_ones)),
        "made:known size": math.log1p(math.prod(sizes)) if sizes else 0.0,
        "made:wide dimensions": float(wide),
        "made:square": float(len(open_ones) != len(set(open_ones))),
        "made:of batches": float(any(_BATCH.search(text) for text in open_ones)),
    }


@remembered
def place_in_network(cls: ast.ClassDef, file: SourceFile) -> dict[str, float]:
    """Is the class a part of another module, and does that hold several of it?"""
    parts = [call for call in file.calls_named(cls.name) if file.index.class_of(call) not in (None, cls)]
    several = any(
        isinstance(outer, (*_COMPREHENSIONS, *LOOPS))
        for call in parts
        for outer, _ in file.index.ancestors(call)
    )
    made_by = f"{cls.name}(".encode()
    elsewhere = re.compile(rb"self\.\w+ *= *(\w+\.)*" + re.escape(cls.name).encode() + rb"\(")
    return {
        "class:part of a module": float(bool(parts)),
        "class:one of several": float(several),
        "class:part of a module elsewhere": float(
            file.repository.matches(elsewhere, made_by, besides=file.path)
        ),
    }
