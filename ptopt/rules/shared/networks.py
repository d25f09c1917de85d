"""Which calls of a file run a network."""

from __future__ import annotations

import ast
import re
from collections.abc import Collection
from dataclasses import dataclass
from functools import lru_cache

from ptopt.rules.base import SourceFile
from ptopt.rules.code import is_literal
from ptopt.source.calls import last_name
from ptopt.source.index import FunctionNode, own_nodes, walk
from ptopt.source.torch_names import KEEPS_TENSOR

_MODEL_NAME = re.compile(
    r"^(model|net|network|policy|actor|critic|encoder|decoder|backbone|generator|discriminator|teacher|student"
    r"|unet|transformer|classifier|net_?[GDEgd]|ema|q_?net|q_?network|text_encoder|image_encoder|dnn|cnn|rnn|lstm"
    r"|gnn|gcn|gan|resnet|vgg|bert|gpt|vit|vae|llm)$"
    r"|^(model|net)(_?(ema|engine|[a-zA-Z]|\d+))?$|_(model|net|network|encoder|decoder|backbone|policy|actor|critic|old|teacher|student)$"
)
_NOT_A_MODEL = re.compile(
    r"^_?(un)?(wrap|get|set|setup|load|build|create|make|init|initiali[sz]e|prepare|save|add|export|convert|train|fit|compile"
    r"|register|update|print|log|run|use|push|find|select|validate|clean|delete|remove|resolve|check|is|has|to|from|copy)_"
    r"|_(fn|func|function|cls|class|name|path|factory|builder|config|cfg|args|kwargs|id|list|type|dim|size|ckpt)s?$"
)
# Methods of a network that run no pass, or turn autograd off themselves (`generate` of transformers).
_UTILITY = re.compile(
    r"^(eval|train|to|cuda|cpu|half|float|double|bfloat16|type|apply|zero_grad|requires_grad_|generate|compile|fuse|warmup|tie_weights)$"
    r"|parameters|modules|children|buffer|state|hook|metric|record|summary|^(log|print|_?get_?(submodule|parameter|num|n_|fn|args|kwargs|config|input|batch)|set|load|save|push|reset|init|add|resize|share"
    r"|enable|disable|print|freeze|unfreeze|prepare|config|export|script|trace|quanti|merge|prune|remove|from_|_from_|_args|register|update)"
)
_ACTS = re.compile(r"(^|_)(envs?|agent|runner|trainer|engine|server|meter|metric|evaluator)$", re.I)
_FORWARDS = re.compile(
    r"^(encode|decode|forward|extract)_?(image|text|features?|audio|video|latents?|first_stage)?s?$|^get_\w+_features$|_forward$"
)
# What computes a loss from a network that it is given.
COMPUTES_LOSS = re.compile(
    r"(^|_)(loss(es)?|criterion|objective|nll|elbo|forward(_pass)?)(_|$|fn$)|Loss$|Criterion$"
)
# Objects that are called like a network and turn autograd off themselves.
_SELF_CONTAINED = re.compile(
    r"(^|[^\w])(pipeline|YOLO\w*|SentenceTransformer|CrossEncoder|\w*Pipeline|InferenceSession|Llama|LLM|\w*Predictor"
    r"|DetectMultiBackend|AutoBackend|Detector|Captioner|TRTModule|Compose|hub\.load)(?![a-z])"
)
_OF_ARRAYS = frozenset({"astype", "copy", "fill", "dot"})
_PRETRAINED = re.compile(r"(^|\.)(\w*Model\w*|(?!\w*Pipeline)\w*For[A-Z]\w*)\.from_pretrained$")
_GIVE_ITSELF = frozenset({"eval", "train", "to", "cuda", "cpu", "half", "float", "requires_grad_"})
_MODULE_METHODS = frozenset({"eval", "parameters", "named_parameters", "named_modules", "requires_grad_"})


@dataclass(frozen=True, slots=True)
class Networks:
    """Texts of the expressions of one file that are networks, by what the file does with them."""

    known: frozenset[str]  # a method that only modules have is called on them
    evaluated: frozenset[str]  # `.eval()` is called on them
    frozen: frozenset[str]  # all their parameters are made to need no gradient
    last_names: frozenset[str]  # the last parts of the known ones, and of what is one in any file


def networks(file: SourceFile) -> Networks:
    """The networks of the file; collected once."""
    return file.once(_collect)


def _collect(file: SourceFile) -> Networks:
    known: set[str] = set()
    evaluated: set[str] = set()
    frozen: set[str] = set()
    for call in (call for name in sorted(_MODULE_METHODS) for call in file.calls_named(name)):
        func = call.func
        if not isinstance(func, ast.Attribute):
            continue
        if func.attr == "eval" and (call.args or file.imports.imports("tensorflow")):
            continue  # a data frame, Python's own, or another framework's
        texts = _receivers(call, func, file)
        known |= texts
        if func.attr == "eval":
            evaluated |= texts
        elif func.attr == "requires_grad_" and call.args and is_literal(call.args[0], False):
            frozen |= texts
        elif func.attr in ("parameters", "named_parameters") and _loop_freezes(call, file):
            frozen |= texts
    last_names = {path.rpartition(".")[2] for path in known} | {"self", "module"}
    return Networks(frozenset(known), frozenset(evaluated), frozenset(frozen), frozenset(last_names))


def frozen_in(function: FunctionNode, file: SourceFile) -> frozenset[str]:
    """Networks of which the function itself freezes all parameters."""
    found: set[str] = set()
    for call in file.calls.calls_in(function):
        func = call.func
        if not isinstance(func, ast.Attribute):
            continue
        by_call = func.attr == "requires_grad_" and call.args and is_literal(call.args[0], False)
        if by_call or (func.attr in ("parameters", "named_parameters") and _loop_freezes(call, file)):
            found |= _receivers(call, func, file)
    return frozenset(found)


def _receivers(call: ast.Call, func: ast.Attribute, file: SourceFile) -> set[str]:
    """`model` of `model.eval()` and `model.eval().requires_grad_(False)`; of `model = build().cuda().eval()` also."""
    receiver = func.value
    while isinstance(receiver, ast.Call) and last_name(receiver.func) in _GIVE_ITSELF:
        receiver = receiver.func.value if isinstance(receiver.func, ast.Attribute) else receiver.func
    texts = {path} if (path := path_of(receiver)) else set()
    parent = file.index.parent(call)
    if func.attr in ("eval", "requires_grad_") and isinstance(parent, ast.Assign):
        texts |= {path for target in parent.targets if (path := path_of(target))}
    return texts


def _loop_freezes(call: ast.Call, file: SourceFile) -> bool:
    """`for p in model.parameters(): p.requires_grad = False`"""
    loop = file.index.parent(call)
    if not isinstance(loop, ast.For):
        return False
    return any(requires_grad_set(stmt) is False for stmt in loop.body)


def requires_grad_set(stmt: ast.stmt) -> bool | None:
    """The literal that `p.requires_grad = ...` or `p.requires_grad_(...)` sets, or None."""
    given: ast.expr | None = None
    if isinstance(stmt, ast.Assign) and isinstance(stmt.targets[0], ast.Attribute):
        given = stmt.value if stmt.targets[0].attr == "requires_grad" else None
    elif isinstance(stmt, ast.Expr) and isinstance(stmt.value, ast.Call):
        call = stmt.value
        if isinstance(call.func, ast.Attribute) and call.func.attr == "requires_grad_":
            given = call.args[0] if call.args else ast.Constant(True)
    return given.value if isinstance(given, ast.Constant) and isinstance(given.value, bool) else None


def optimised_in(file: SourceFile) -> frozenset[str]:
    """Networks whose parameters the file gives away as a whole: to an optimizer, most of the time."""
    return file.once(_optimised)


def _optimised(file: SourceFile) -> frozenset[str]:
    found = set()
    for name in ("parameters", "named_parameters"):
        for call in file.calls_named(name):
            parent = file.index.parent(call)
            loop = isinstance(parent, ast.For) and parent.iter is call
            if isinstance(call.func, ast.Attribute) and not loop and (path := path_of(call.func.value)):
                found.add(path)
    return frozenset(found)


def path_of(node: ast.expr) -> str:
    """`self.model` -> "self.model"; "" for what is not a dotted name."""
    parts: list[str] = []
    while node.__class__ is ast.Attribute:
        parts.append(node.attr)
        node = node.value
    if not isinstance(node, ast.Name):
        return ""
    if not parts:
        return node.id
    parts.append(node.id)
    return ".".join(reversed(parts))


@lru_cache(maxsize=4096)
def _names_a_model(name: str) -> bool:
    return bool(_MODEL_NAME.search(name)) and not _NOT_A_MODEL.search(name)


@lru_cache(maxsize=4096)
def _names_a_pass(name: str) -> bool:
    return bool(_FORWARDS.search(name))


def network_of(call: ast.Call, file: SourceFile) -> str:
    """Dotted name of the network that `call` runs, or "" when it runs none, or one that minds autograd itself."""
    func = call.func
    if not (call.args or call.keywords):
        return ""
    if isinstance(func, ast.Attribute) and func.attr == "forward":
        func = func.value
    name = last_name(func)
    if not name or not (name in networks(file).last_names or _names_a_model(name)):
        return ""
    path = path_of(func)
    if not path or not (
        path == "self" or path.endswith(".module") or path in networks(file).known or _names_a_model(name)
    ):
        return ""
    if file.imports.qualified(func) or (func is call.func and file.calls.resolve(call) is not None):
        return ""
    if path == "self":
        cls = file.index.class_of(call)
        plain = cls is not None and file.calls.method(cls, "__call__") is None
        return path if cls is not None and plain and file.context.is_module(cls) else ""
    return "" if _self_contained(func, path, file) else path


def covered_by(path: str, evaluated: Collection[str]) -> str:
    """Which of the networks in `evaluated` the one at `path` is, or is a part of: `model` of `model.encoder` and `model.module`; or ""."""
    while path and path != "self":
        if path in evaluated:
            return path
        path = path.rpartition(".")[0]
    return ""


def is_forward_method(call: ast.Call) -> bool:
    """`model.forward_encoder(x)`, `model.forward_features(x)`"""
    return isinstance(call.func, ast.Attribute) and call.func.attr.startswith("forward")


def network_method_of(call: ast.Call, evaluated: Collection[str], file: SourceFile) -> str:
    """Dotted name of the network of which `call` runs a method that may compute (`model.encode_image(x)`), or "".

    Of the networks in `evaluated`, any method may; of others, one that is named like a pass.
    """
    func = call.func
    if not isinstance(func, ast.Attribute) or not (call.args or call.keywords):
        return ""
    if not evaluated and not _names_a_pass(func.attr):
        return ""
    if func.attr in KEEPS_TENSOR or func.attr in _OF_ARRAYS:
        return ""  # `eval` of another library gave an array
    path = path_of(func.value)
    name = path.rpartition(".")[2]
    whole = covered_by(path, evaluated)
    if not whole and not (_names_a_pass(func.attr) and _names_a_model(name)):
        return ""
    if not path or path == "self" or _UTILITY.search(func.attr) or _ACTS.search(name):
        return ""
    if file.imports.qualified(func) or file.calls.resolve(call) is not None:
        return ""
    return "" if _self_contained(func.value, path, file) else whole or path


def network_argument_of(call: ast.Call, evaluated: Collection[str], file: SourceFile) -> str:
    """Dotted name of the network in `evaluated` that is passed to what computes with it (`criterion(model, batch)`), or "".

    What is called runs the network by its own text, where that can be found; else its name says that it computes a loss.
    """
    if not evaluated:
        return ""
    given = [*call.args, *(k.value for k in call.keywords)]
    path = next((path for g in given if (path := path_of(g)) in evaluated), "")
    if not path or file.imports.qualified(call.func).startswith(("torch.", "numpy.")):
        return ""
    runs = runs_argument(call, path, file)
    return path if runs or (runs is None and COMPUTES_LOSS.search(last_name(call.func))) else ""


def runs_argument(call: ast.Call, path: str, file: SourceFile, depth: int = 1) -> bool | None:
    """Does the function that is called run the network `path`, that it is given, without training it? None: not known.

    What that function hands on is followed through `depth` further calls. Where a method is overridden, the call may run any
    of these: one has to run it, and none may train or turn autograd off.
    """
    one = file.definition_of(call)
    found = (one,) if one is not None else file.repository.definitions(file, call)
    answers = [_runs(call, path, function, other, depth) for other, function in found]
    if False in answers:
        return False
    return True if True in answers else None


def _runs(call: ast.Call, path: str, function: FunctionNode, file: SourceFile, depth: int) -> bool | None:
    parameters = [*function.args.posonlyargs, *function.args.args]
    if isinstance(file.index.parent(function), ast.ClassDef) and not any(
        last_name(decorator) == "staticmethod" for decorator in function.decorator_list
    ):
        parameters = parameters[1:]
    names = {p.arg for a, p in zip(call.args, parameters, strict=False) if _named(a) == path}
    names |= {k.arg for k in call.keywords if k.arg is not None and _named(k.value) == path}
    if file.context.trains(function) or file.context.turns_grad_off(function):
        return False
    inner = file.calls.calls_in(function)
    names |= {  # `coarse = models[0]`
        target
        for assign in own_nodes(function)
        if isinstance(assign, ast.Assign)
        and isinstance(assign.value, (ast.Name, ast.Subscript))
        and _named(assign.value) in names
        and (target := path_of(assign.targets[0]))
    }
    if any(_named(c.func).removesuffix(".forward") in names for c in inner):
        return True
    given = [(c, _named(a)) for c in inner for a in [*c.args, *(k.value for k in c.keywords)]]
    if depth > 0 and any(
        runs_argument(c, given_path, file, depth - 1) for c, given_path in given if given_path in names
    ):
        return True
    handed_on = any(isinstance(n, ast.Name) and n.id in names for c in inner for a in c.args for n in walk(a))
    return None if handed_on else False


def _named(expr: ast.expr) -> str:
    """`models` of `models`, `models[0]` and `models["fine"]`."""
    while isinstance(expr, ast.Subscript):
        expr = expr.value
    return path_of(expr)


def _self_contained(func: ast.expr, path: str, file: SourceFile) -> bool:
    """Was the object made by something that turns autograd off itself?"""
    if isinstance(func, ast.Name):
        binding = file.bindings.last_before(func)
        if binding is not None and binding.kind == "parameter":
            annotation = file.source(binding.value) if binding.value is not None else ""
            return "Callable" in annotation or bool(_SELF_CONTAINED.search(annotation))
    makers = (_maker(value, file) for value in file.once(_given).get(path, ()))
    return any(_SELF_CONTAINED.search(maker) and not _PRETRAINED.search(maker) for maker in makers)


def _given(file: SourceFile) -> dict[str, list[ast.expr]]:
    """Dotted name -> what is assigned to it."""
    table: dict[str, list[ast.expr]] = {}
    for assign in file.index.of_type(ast.Assign, ast.AnnAssign):
        if assign.value is not None:
            for target in assign.targets if isinstance(assign, ast.Assign) else [assign.target]:
                if path := path_of(target):
                    table.setdefault(path, []).append(assign.value)
    return table


def _maker(value: ast.expr, file: SourceFile) -> str:
    """The dotted name that the value is, or a call of it; "" of anything else."""
    made_by = _made_by(value)
    given = file.bindings.last_before(made_by) if isinstance(made_by, ast.Name) else None
    if given is not None and given.kind == "parameter" and given.value is not None:
        return path_of(given.value)  # `self.model = model`, of which the annotation tells the class
    return path_of(made_by)


def _made_by(value: ast.expr) -> ast.expr:
    """`Pipeline.from_pretrained` of `Pipeline.from_pretrained(name).to(device)`."""
    while isinstance(value, ast.Call):
        func = value.func
        value = func.value if isinstance(func, ast.Attribute) and isinstance(func.value, ast.Call) else func
    return value
