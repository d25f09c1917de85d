"""What loads weights from disk, for how long it is kept, and what it depends on."""

from __future__ import annotations

import ast
import functools
import re
from typing import NamedTuple

from ptopt.rules.base import SourceFile
from ptopt.rules.ops._pure import changes, is_conditional, is_deferred, reads
from ptopt.source.calls import called_name, last_name
from ptopt.source.file import remembered
from ptopt.source.index import FunctionNode, own_nodes
from ptopt.source.searchable import Searchable

# What reads weights or vocabularies from disk, by its name as the file imports it.
_LOADS = re.compile(
    r"(^|\.)(from_pretrained|from_single_file|load_from_checkpoint|SentenceTransformer|CrossEncoder|WhisperModel|LPIPS|"
    r"load_checkpoint_and_dispatch|InferenceSession|load_state_dict_from_url|SentencePieceProcessor|StableDiffusionPipeline)$"
    r"|^torch\.(hub\.load|load|jit\.load)$|^(open_)?clip\.(load|create_model\w*)$|^whisper\.load_model$|^spacy\.load$"
    r"|^transformers\.pipeline$|^easyocr\.Reader$|^ultralytics\.\w+$|^safetensors\.torch\.load_file$"
    r"|^faiss\.read_index$|^fasttext\.load_model$"
)
# The ends of these names, of what is no import.
_LOADS_BY_LAST = re.compile(
    r"^(from_pretrained|from_single_file|load_from_checkpoint|SentenceTransformer|CrossEncoder|WhisperModel|LPIPS|"
    r"load_checkpoint_and_dispatch|InferenceSession|load_state_dict_from_url|SentencePieceProcessor|StableDiffusionPipeline|"
    r"load|create_model\w*|load_model|pipeline|Reader|load_file|read_index)$"
)
# Words of which a function calls one that loads something, unless what it calls does, or an import renames it.
_WORDS = frozenset(
    b"from_pretrained from_single_file load_from_checkpoint SentenceTransformer CrossEncoder WhisperModel LPIPS "
    b"load_checkpoint_and_dispatch InferenceSession load_state_dict_from_url SentencePieceProcessor StableDiffusionPipeline load "
    b"load_model pipeline Reader load_file read_index ultralytics".split()
)
_CREATES = b"create_model"
_RENAMED = re.compile(rb"\b(?:%s|create_model\w*) as\b|\bultralytics\b" % b"|".join(sorted(_WORDS)))
_LIGHT = re.compile(r"Config|Scheduler|ImageProcessor|FeatureExtractor|Solver")
_WRITES = re.compile(r"save|dump|write|print|info|^(to|cuda|eval|half|keys|items|train|float)$")
_PLACES = re.compile(r"^(to|cuda|eval|half|float|bfloat16|train|requires_grad_)$")
_CACHES = re.compile(r"cache|memoi|singleton|once|lazy", re.I)
_MISSING = re.compile(r"None|not in|\bin\b|hasattr|not self|not hasattr|cache|loaded|!=|initiali", re.I)
_DEPTH = 2


class Load(NamedTuple):
    """A call that reads weights, and how the hot function comes there."""

    call: ast.Call
    file: SourceFile
    through: FunctionNode | None


def load_of(call: ast.Call, file: SourceFile, depth: int = _DEPTH) -> Load | None:
    """What the call loads: itself, or the function that it runs, which keeps nothing."""
    name = file.imports.qualified(call.func)
    if not name and (_LOADS_BY_LAST.search(last_name(call.func)) or _is_of_ultralytics(call.func)):
        name = ast.unparse(call.func)
    if name and _LOADS.search(name):
        return None if _LIGHT.search(name) or _of_the_request(call, file) else Load(call, file, None)
    found = file.definition_of(call, _MAY_LOAD[depth]) if depth else None
    if found is None:
        return None
    other, function = found
    load = _loaded_in(function, other, depth - 1)
    return Load(load.call, load.file, function) if load is not None else None


def _may_load(text: Searchable, name: bytes, depth: int) -> bool:
    """May `load_of` find a load in a function of the file, of that name? Asked before the file is parsed."""
    known = text.once(_known_to_load)
    if (name, depth) not in known:
        known[name, depth] = text.once(_renames) or _holds_a_load(text, name, depth)
    return known[name, depth]


def _known_to_load(data: bytes) -> dict[tuple[bytes, int], bool]:
    return {}


def _holds_a_load(text: Searchable, name: bytes, depth: int) -> bool:
    for function in map(Searchable, text.functions(name)):
        words = function.identifiers
        loading = (word for word in words if word in _WORDS or word.startswith(_CREATES))
        if any(map(function.calls, loading)):
            return True
        if depth > 1 and any(_may_load(text, other, depth - 1) for other in words & text.defined - {name}):
            return True
    return False


def _renames(data: bytes) -> bool:
    lines = [line for line in data.split(b"\n") if b" as" in line or b"ultralytics" in line]  # found faster
    return _RENAMED.search(b"\n".join(lines)) is not None


_MAY_LOAD = [functools.partial(_may_load, depth=depth) for depth in range(_DEPTH + 1)]


def _is_of_ultralytics(func: ast.expr) -> bool:
    return isinstance(func, ast.Attribute) and last_name(func.value) == "ultralytics"


def _of_the_request(call: ast.Call, file: SourceFile) -> bool:
    """Is it read from an upload or from bytes in memory, such as `upload.file`: what the request brings, not a file of ours?"""
    source = call.args[0] if call.args else None
    function = file.index.function_of(call)
    if isinstance(source, ast.Name) and function is not None:
        values = [bound.value for bound in file.bindings.of(function, source.id) if bound.kind == "assign"]
        source = values[0] if len(values) == 1 else source
    if isinstance(source, ast.Call):
        return called_name(source) == "BytesIO"
    root = source
    while isinstance(root, (ast.Attribute, ast.Subscript)):
        root = root.value
    if not isinstance(root, ast.Name) or root is source or function is None:
        return False
    given = {a.arg for a in (*function.args.posonlyargs, *function.args.args, *function.args.kwonlyargs)}
    if isinstance(source, ast.Subscript):  # `request.files["mel"]` of Flask
        return last_name(source.value) == "files" and root.id in {"request", *given}
    return root.id in given and last_name(source) in ("file", "stream")


@remembered
def _loaded_in(function: FunctionNode, file: SourceFile, depth: int) -> Load | None:
    """The first load that each call of the function makes."""
    if is_kept(function):
        return None
    for call in file.calls.calls_in(function):
        load = load_of(call, file, depth)
        if load is None or is_deferred(call, file) or is_conditional(call, function, file):
            continue
        if not is_guarded(call, function, file):
            return load
    return None


def is_kept(function: FunctionNode) -> bool:
    return any(_CACHES.search(ast.unparse(d)) for d in function.decorator_list)


def is_guarded(call: ast.Call, function: FunctionNode, file: SourceFile) -> bool:
    """Is it made only where it is missing, or in the handling of an error, or after the function left where it is there?"""
    for ancestor, child in file.index.ancestors(call):
        if ancestor is function:
            break
        if isinstance(ancestor, ast.ExceptHandler):
            return True
        if (
            isinstance(ancestor, (ast.If, ast.IfExp))
            and child is not ancestor.test
            and _MISSING.search(ast.unparse(ancestor.test))
        ):
            return True
    return call.lineno > _first_leave(function)


@remembered
def _first_leave(function: FunctionNode) -> float:
    """The first line on which the function leaves because it has what it would load."""
    lines = (
        n.lineno
        for n in own_nodes(function)
        if isinstance(n, ast.If)
        and any(isinstance(s, ast.Return) for s in n.body)
        and _MISSING.search(ast.unparse(n.test))
    )
    return min(lines, default=float("inf"))


def is_sometimes(call: ast.Call, function: FunctionNode, file: SourceFile) -> bool:
    """Does a condition decide whether it is loaded?"""
    for ancestor, child in file.index.ancestors(call):
        if ancestor is function:
            return False
        if isinstance(ancestor, (ast.If, ast.IfExp, ast.While)) and child is not ancestor.test:
            return True
    return False


def of_weights(load: Load, file: SourceFile) -> bool:
    """Is it a model rather than data: not `torch.load(path)` of what a sample or a split holds?"""
    name = load.file.imports.qualified(load.call.func)
    return name not in ("torch.load", "safetensors.torch.load_file") or "load_state_dict" in load.file.source(
        load.file.index.statement_of(load.call)
    )


def use_of(call: ast.Call, function: FunctionNode, file: SourceFile) -> str:
    """What becomes of it: "run" here, "kept" elsewhere, "freed" on purpose, or "" where nothing shows."""
    statement = file.index.statement_of(call)
    if isinstance(statement, ast.Expr):
        return "run" if "load_state_dict" in file.source(statement) or _run_at_once(call, file) else ""
    if isinstance(statement, ast.Return):
        return "run" if _run_at_once(call, file) else ""
    targets = statement.targets if isinstance(statement, ast.Assign) else []
    names = {last_name(e) for t in targets for e in (t.elts if isinstance(t, ast.Tuple) else [t])}
    if (
        not targets
        or names & _outer(function)
        or any(isinstance(t, (ast.Attribute, ast.Subscript)) for t in targets)
    ):
        return "kept"
    if names & _deleted(function):
        return "freed"
    using = _using(function, file)
    if any(other is not call for name in names for other in using.get(name, ())[:2]):
        return "run"
    return "run" if _run_at_once(call, file) else ""


@remembered
def _outer(function: FunctionNode) -> frozenset[str]:
    """Names of the module that the function assigns."""
    return frozenset(name for n in own_nodes(function) if isinstance(n, ast.Global) for name in n.names)


@remembered
def _deleted(function: FunctionNode) -> frozenset[str]:
    return frozenset(
        last_name(t) for n in own_nodes(function) if isinstance(n, ast.Delete) for t in n.targets
    )


@remembered
def _using(function: FunctionNode, file: SourceFile) -> dict[str, list[ast.Call]]:
    """Name -> the calls in the function that run it, or are given it to work on."""
    table: dict[str, list[ast.Call]] = {}
    for call in file.calls.calls_in(function):
        if _WRITES.search(called_name(call)):
            continue
        owner = call.func
        while isinstance(owner, (ast.Attribute, ast.Subscript)):
            owner = owner.value
        arguments = [*call.args, *(k.value for k in call.keywords)]
        given = [last_name(a.value if isinstance(a, ast.Subscript) else a) for a in arguments]
        for name in {last_name(owner), *given}:
            table.setdefault(name, []).append(call)
    return table


def _run_at_once(call: ast.Call, file: SourceFile) -> bool:
    """Is what is loaded run at once, as in `load(path)(x)`?"""
    node: ast.AST = call
    for ancestor, child in file.index.ancestors(call):
        if isinstance(ancestor, ast.Call) and child is ancestor.func and ancestor is not call:
            return isinstance(child, ast.Call) or not _PLACES.search(last_name(child))
        if not isinstance(ancestor, ast.Attribute):
            return False
        node = ancestor
    return node is not call


def depends(call: ast.Call, function: FunctionNode, loop: ast.AST | None, file: SourceFile) -> bool:
    """Does what is loaded depend on what the function is given, or on what the loop that calls it changes?"""
    given: list[ast.AST] = [*call.args, *(k.value for k in call.keywords)]
    if isinstance(call.func, ast.Attribute):
        given.append(call.func.value)
    keys = frozenset(key for each in given for key in reads(each, file))
    seen = _leads_to(keys, function, file)
    return seen is None or (
        loop is not None and changes(file.index.function_of(loop), file).in_node(seen, loop)
    )


@remembered
def _leads_to(keys: frozenset[str], function: FunctionNode, file: SourceFile) -> frozenset[str] | None:
    """The names behind these names, through assignments; None where one comes with the call of the function."""
    seen: set[str] = set()
    left = list(keys)
    while left:
        key = left.pop()
        if key in seen:
            continue
        seen.add(key)
        if key.startswith("self.") and key in changes(function, file).at:
            return None
        for bound in file.bindings.of(function, key) if key != "self" else ():
            if bound.value is None or bound.kind != "assign":
                return None
            left += reads(bound.value, file)
    return frozenset(seen)
