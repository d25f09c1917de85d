"""What code keeps of an iteration, and whether that is large: results in lists, dictionaries and attributes."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable

from ptopt.rules.base import SourceFile
from ptopt.rules.code import method_call
from ptopt.rules.shared.flow import runs_network
from ptopt.source.calls import last_name
from ptopt.source.index import Loop, walk

SMALL = re.compile(
    r"loss|acc$|metric|score|reward|token|(^|_)ids?($|_)|label|target|correct|num|count|len|size|idx|index|time|name|path|text|"
    r"str|prob$|mean|norm|lr$|pred_class|done|action|std|error|psnr|ssim|iou|dist$|dice|ap$|box",
    re.I,
)
_OBJECT = re.compile(r"clone$|polic(y|ies)$|models?$|^obs$|net$|optimi[sz]ers?$|schedulers?$|scalers?$", re.I)
_CUT = frozenset(
    "cpu item numpy tolist argmax argmin mean sum max min any all norm topk len float int str loss_fn sample_action append "
    "starmap_async apply_async map_async submit starmap save format round parameters batch_decode decode_batch array asarray tensor split nonzero size".split()
)
_AS_LARGE = ("detach", "float", "half", "clone", "contiguous")  # give as much as they get
_HEAVY = frozenset(
    "matmul mm bmm einsum conv1d conv2d conv3d interpolate sample rsample linear cdist fft kron".split()
)
_MAKES = re.compile(
    r"(get|build|load|create|make|find|is|has|_?extract_doc|to|read|save|clone|log)_|modules?$|parameters$"
)
_MEASURES = re.compile(r"on_(data_?set|loader)$|^(evaluate|validate|benchmark|test)($|_)", re.I)
_BLOCK = re.compile(r"(^|_)(blocks?|layer|transformer|unet|pipe|pipeline|fn_model)$", re.I)
_MODEL = re.compile(r"model|net$|network|pipe|module|predictor|encoder|decoder|vae|engine|upscaler", re.I)
_RUNS = frozenset(
    "run generate sample apply process transcribe synthesize upscale predict_step infer inference".split()
)
_OF_TEXT = frozenset(
    "strip rstrip lstrip lower upper join replace removeprefix removesuffix splitlines".split()
)
_DECODES_TEXT = re.compile(r"token|processor|(^|[._])(sp|sp_?model|vocab|enc|bpe|spm)$", re.I)
_ADDS = frozenset({"append", "extend"})


def kept_value(node: ast.AST) -> tuple[ast.expr, ast.expr] | None:
    """The container, and what is put into it."""
    if isinstance(node, ast.Call):
        func = node.func
        if isinstance(func, ast.Attribute) and func.attr in _ADDS and len(node.args) == 1:
            return (func.value.value if isinstance(func.value, ast.Subscript) else func.value), node.args[0]
    elif isinstance(node, ast.AugAssign):
        if (
            isinstance(node.op, ast.Add)
            and isinstance(node.value, (ast.List, ast.Tuple))
            and len(node.value.elts) == 1
        ):
            return node.target, node.value.elts[0]
    elif isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Subscript):
        target = node.targets[0]
        if isinstance(target.slice, (ast.Name, ast.JoinedStr, ast.BinOp)):
            return target.value, node.value
    return None


def gives_text(call: ast.Call, file: SourceFile) -> bool:
    """A string: what a tokenizer decodes, and what a method of strings returns."""
    if not isinstance(call.func, ast.Attribute):
        return False
    if call.func.attr in _OF_TEXT:
        return True
    return call.func.attr == "decode" and bool(_DECODES_TEXT.search(file.source(call.func.value)))


def _gives_host_values(call: ast.Call) -> bool:
    """Metrics of a whole data set, and OpenMMLab's way to ask a model for decoded results."""
    return bool(_MEASURES.search(last_name(call.func))) or any(k.arg == "return_loss" for k in call.keywords)


def parts_of(value: ast.expr) -> list[ast.expr]:
    if isinstance(value, (ast.Tuple, ast.List)):
        return value.elts
    if isinstance(value, ast.Dict):
        return value.values
    return [value]


def outliving(container: ast.expr, node: ast.AST, file: SourceFile) -> Loop | ast.AST | None:
    """The loop around `node` that the container outlives; the method, for a container of `self`."""
    loop = next(file.index.loops_of(node), None)
    function = file.index.function_of(node)
    if isinstance(container, ast.Name):
        if loop is None:
            return None
        before = [b for b in file.bindings.of(function, container.id) if b.line < loop.lineno]
        inside = file.bindings.inside(function, container.id, loop)
        return loop if before and not inside and _is_empty(before[-1].value) else None
    if (
        isinstance(container, ast.Attribute)
        and isinstance(container.value, ast.Name)
        and container.value.id == "self"
    ):
        return loop or function
    return None


def _is_empty(value: ast.expr | None) -> bool:
    """`[]`, `{}`, `dict()`, `defaultdict(list)`"""
    if isinstance(value, (ast.List, ast.Dict)):
        return not (value.elts if isinstance(value, ast.List) else value.values)
    return isinstance(value, ast.Call) and last_name(value.func) in (
        "list",
        "dict",
        "defaultdict",
        "OrderedDict",
    )


def network_ran(expr: ast.expr, loop: ast.AST, file: SourceFile, depth: int = 3) -> bool:
    """Does a network make it, directly or through local names of the loop?"""
    return _comes_from(expr, loop, file, depth, _is_network)


def _is_network(node: ast.AST, file: SourceFile) -> bool:
    if not isinstance(node, ast.Call):
        return False
    name = last_name(node.func)
    if _MAKES.match(name):
        return False
    owner = last_name(node.func.value) if isinstance(node.func, ast.Attribute) else ""
    return (
        runs_network(node, file)
        or bool(_BLOCK.search(name))
        or (name in _RUNS and bool(_MODEL.search(owner)))
    )


def _is_work(node: ast.AST, file: SourceFile) -> bool:
    if isinstance(node, ast.BinOp):
        return isinstance(node.op, ast.MatMult)
    return isinstance(node, ast.Call) and (last_name(node.func) in _HEAVY or _is_network(node, file))


def _comes_from(
    expr: ast.expr, loop: ast.AST, file: SourceFile, depth: int, test: Callable[[ast.AST, SourceFile], bool]
) -> bool:
    for node in walk(expr):
        if test(node, file):
            return True
        if isinstance(node, ast.Name) and depth:
            made = made_by(node, file)
            inside = made is not node and file.index.within(made, loop)
            if inside and _comes_from(made, loop, file, depth - 1, test):
                return True
    return False


def made_by(value: ast.expr, file: SourceFile) -> ast.expr:
    """What a local name was given before it is read; else the expression itself."""
    if not isinstance(value, ast.Name):
        return value
    at = file.index.statement_of(value).lineno
    function = file.index.function_of(value)
    earlier = [b for b in file.bindings.of(function, value.id) if b.line < at]
    last = earlier[-1] if earlier else None
    found = last is not None and last.kind in ("assign", "unpack") and last.value is not None
    return last.value if found and last is not None and last.value is not None else value


def is_large_result(value: ast.expr, loop: ast.AST, file: SourceFile) -> bool:
    """Is it a tensor that a network or a heavy operation made in the loop, still on the device?"""
    while (whole := method_call(value, *_AS_LARGE)) is not None:
        value = whole
    if isinstance(value, (ast.Constant, ast.Subscript)) or (
        isinstance(value, ast.Name) and (SMALL.search(value.id) or _OBJECT.search(value.id))
    ):
        return False
    made = made_by(value, file)
    found = file.values.of(made)
    if made is not value and not file.index.within(made, loop):
        return False
    if found.kind not in ("tensor", "") or found.device == "cpu" or file.values.of(value).device == "cpu":
        return False
    for call in (n for n in walk(made) if isinstance(n, ast.Call)):
        name = last_name(call.func)
        if gives_text(call, file) or _gives_host_values(call):
            return False
        if name in _CUT or SMALL.search(name) or (name == "to" and "cpu" in file.source(call)):
            return False
    return _comes_from(made, loop, file, 3, _is_work)
