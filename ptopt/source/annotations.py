"""What an annotation says of a value."""

from __future__ import annotations

import ast
import re
from functools import lru_cache

from ptopt.source.value import SCALAR, UNKNOWN, Value

# jaxtyping: `Int[Tensor, "batch tokens"]`
_WHOLE_NUMBERS = re.compile(r"^(?:jaxtyping\.)?(?:U?Int\d*|Bool|Integer)\[\s*(?:torch\.)?Tensor\b")
_NUMBERS_OF_JAXTYPING = re.compile(
    r"^(?:jaxtyping\.)?(?:B?Float\w*|Complex\d*|Num|Real|Inexact|Shaped)\[\s*(?:torch\.)?Tensor\b"
)
_TENSORS_ANNOTATION = re.compile(
    r"(?:(?:typing\.)?(?:Optional|List|list|Tuple|tuple|Sequence|Iterable|Dict|dict|Mapping)\[(?:str, |int, )?){1,2}"
    r"(?:torch\.)?(?:Tensor|LongTensor|FloatTensor)(?:, \.\.\.|, (?:torch\.)?Tensor)*\]{1,2}$"
)
_ANYTHING = re.compile(r"tensor|\bAny\b|\bobject\b|\bNone\b|Variable|Array|^[A-Z]\w?$", re.I)
# `torch.tensor` is a function, but people write it for the type.
_TENSOR_ANNOTATION = re.compile(
    r"(^|\.)(Tensor|FloatTensor|LongTensor|BoolTensor|IntTensor)$|^torch\.tensor$"
)


@lru_cache(maxsize=4096)
def _names_tensor(text: str) -> bool:
    """Does the text of an annotation name a tensor, or a tensor or None?"""
    parts = [part.strip() for part in re.sub(r"^(?:typing\.)?Optional\[(.*)\]$", r"\1", text).split("|")]
    concrete = [part for part in parts if part != "None"]
    return bool(concrete) and all(_TENSOR_ANNOTATION.search(part) for part in concrete)


def excludes_tensors(annotation: ast.expr | None) -> bool:
    """Does the annotation name something else than a tensor, such as `torch.Size`?"""
    return annotation is not None and not _ANYTHING.search(ast.unparse(annotation))


def annotated(annotation: ast.expr) -> Value:
    if isinstance(annotation, ast.Name):
        return _by_annotation(annotation.id)
    if isinstance(annotation, ast.Attribute) and isinstance(annotation.value, ast.Name):
        return _by_annotation(f"{annotation.value.id}.{annotation.attr}")
    text = ast.unparse(annotation)
    if isinstance(annotation, ast.Constant) and isinstance(annotation.value, str):
        return _by_annotation(annotation.value, text)
    return _by_annotation(text, text)


@lru_cache(maxsize=4096)
def _by_annotation(named: str, written: str = "") -> Value:
    if _names_tensor(named):
        return Value("tensor")
    text = (written or named).strip("'\"")
    if _TENSORS_ANNOTATION.match(text):
        return Value("tensors")
    if _WHOLE_NUMBERS.match(text):  # which have no gradient
        return Value("tensor", "", False)
    if _NUMBERS_OF_JAXTYPING.match(text):
        return Value("tensor")
    if text in ("int", "float", "bool"):
        return SCALAR
    if text in ("np.ndarray", "numpy.ndarray", "ndarray"):
        return Value("array", "cpu", False)
    return Value("text") if text == "str" else UNKNOWN
