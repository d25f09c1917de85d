"""What stands around a hit, as numbers: guards, the function, who calls it, the statement, what else the function does."""

from __future__ import annotations

import ast
import math
import re
from collections.abc import Iterator
from pathlib import PurePosixPath

from ptopt.source.calls import last_name
from ptopt.source.file import SourceFile, remembered
from ptopt.source.index import FunctionNode
from ptopt.source.options import default_of

_GUARDS = {
    "none": re.compile(r"\bis (not )?None\b"),
    "a type": re.compile(r"isinstance\(|hasattr\(|callable\("),
    "a version": re.compile(r"__version__|[Vv]ersion|is_\w+_available|HAS_|TORCH_|torch_\w*ge"),
    "the device": re.compile(r"cuda|\bmps\b|device|is_cpu|cpu\b|npu|xla|tpu"),
    "the mode": re.compile(r"\.training\b|requires_grad|is_grad_enabled"),
    "the process": re.compile(r"rank|is_main_process|is_master|is_global_zero|world_size|distributed"),
    "debugging": re.compile(
        r"debug|verbose|log|print|profil|plot|vis|check|sanity|nan\b|isnan|isfinite|isinf"
    ),
    "an option": re.compile(
        r"\b(args?|cfg|config|self\.cfg|opts?|params|hparams|flags)\b[.\[]|use_|enable|return_|output_|with_|do_"
    ),
    "scripting": re.compile(r"is_scripting|is_tracing|is_compiling|torch\._dynamo"),
    "emptiness": re.compile(r"\blen\(|numel\(\)|\.shape|\.size\(|^not \w+$"),
}
_DECORATORS = {
    "no_grad": re.compile(r"no_grad|inference_mode"),
    "static": re.compile(r"staticmethod|classmethod"),
    "property": re.compile(r"property|setter"),
    "compiled": re.compile(r"torch\.(compile|jit)|script|triton|numba|njit"),
    "cached": re.compile(r"cache"),
    "other": re.compile(r"."),
}
_HOST_LIBRARIES = {
    "numpy": frozenset({"np", "numpy"}),
    "images": frozenset({"cv2", "PIL", "Image", "skimage", "imageio", "plt", "matplotlib"}),
    "scipy": frozenset({"scipy", "sklearn", "pd", "pandas", "linear_sum_assignment", "librosa"}),
    "files": frozenset({"open", "os", "json", "pickle", "h5py", "Path", "shutil", "zipfile"}),
    "processes": frozenset({"ray", "mp", "multiprocessing", "queue", "zmq", "requests", "grpc", "socket"}),
}
_DONE_WITH = frozenset("generate decode batch_decode beam_search sample predict".split())
_TENSOR_OPS = frozenset(
    "matmul bmm einsum softmax linear conv2d conv1d cross_entropy backward forward attention embedding layer_norm".split()
)
# Words in the code of the hit that tell how much data it works on.
_SIZES = {
    "large": re.compile(
        r"logits|vocab|attn|attention|scores?\b|hidden|embed|feat|image|pixel|latent|noise|weight|param|grad|state_dict|cache|"
        r"\bq\b|\bk\b|\bv\b|query|key_|value_|output|pred|target|probs?\b|sample"
    ),
    "small": re.compile(
        r"idx|index|indices|len(gth)?s?\b|count|num_|n_|size|shape|step|lr\b|scale|shift|offset|id\b|ids\b|loss|acc\b|norm\b|"
        r"alpha|beta|temperature|eps|bbox|box|label|class"
    ),
    "mask": re.compile(r"mask|valid|pad"),
}
_PROJECTS = {  # words of the file
    "reinforcement learning": ("gym", "replay_buffer", "replay_memory", "env.step", "rollout"),
    "toy": ("mnist", "cifar", "tutorial", "toy_"),
    "export": ("onnx", "torchscript", "torch.jit", "tensorrt", "quantiz"),
    "serving": ("kv_cache", "vllm", "paged", "past_key_value", "server"),
    "large models": ("deepspeed", "fsdp", "megatron", "tensor_parallel", "pipeline_parallel"),
    "graphs": ("edge_index", "torch_geometric", "dgl"),
    "unfinished": ("todo", "fixme", "not implemented", "pdb.set_trace"),
}
_MOST_TEXT = 400  # characters of the code of a hit
_MOST_GUARDS = 4
_MOST_CALLERS = 6  # calls of a function whose iterations are looked at
_MOST_CALLS = 200  # calls of a function that are looked at


def surroundings(at: ast.AST, file: SourceFile) -> dict[str, float]:
    """The features of the place `at`, by name."""
    found = dict(_guards(at, file))
    found |= _statement(at, file)
    function = file.index.function_of(at)
    found["function:none"] = float(function is None)
    if function is not None:
        found |= _function(function, file)
        found |= _work(function, file)
    text = ast.unparse(at)[:_MOST_TEXT].lower()
    found |= {f"works on:{name}": 1.0 for name, pattern in _SIZES.items() if pattern.search(text)}
    found |= file.once(_project)
    pure = PurePosixPath(file.path)
    found["path:depth"] = math.log1p(len(pure.parts))
    found["path:top"] = float(len(pure.parts) == 1)
    return found


def _project(file: SourceFile) -> dict[str, float]:
    """What kind of work the file is about."""
    text = file.lowered
    return {f"file about:{name}": 1.0 for name, words in _PROJECTS.items() if any(w in text for w in words)}


def _guards(at: ast.AST, file: SourceFile) -> Iterator[tuple[str, float]]:
    """Conditions between the hit and its function: what they ask, and on which side of them the hit stands."""
    depth = exits = 0
    for ancestor, child in file.index.ancestors(at):
        if isinstance(child, ast.stmt):
            for early in file.guards.early_exits(ancestor)[:_MOST_GUARDS]:
                if early.lineno < child.lineno:
                    exits += 1
                    yield from ((f"exit:{name}", 1.0) for name in _asked(early.test, file))
        if isinstance(ancestor, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)):
            break
        if isinstance(ancestor, (ast.ExceptHandler, ast.Try)):
            yield ("guard:exception" if isinstance(ancestor, ast.ExceptHandler) else "guard:try"), 1.0
        if not isinstance(ancestor, (ast.If, ast.IfExp)) or child is ancestor.test:
            continue
        depth += 1
        if depth > _MOST_GUARDS:
            break
        body = ancestor.body if isinstance(ancestor.body, list) else [ancestor.body]
        side = "" if child in body else " not"
        yield from ((f"guard:{name}{side}", 1.0) for name in _asked(ancestor.test, file))
        default = default_of(ancestor.test, file)
        if default is not None:
            runs = default == (child in body)
            yield ("guard:on by default" if runs else "guard:off by default"), 1.0
    yield "guards", math.log1p(depth)
    yield "exits", math.log1p(exits)


def _asked(test: ast.expr, file: SourceFile) -> list[str]:
    """What a condition asks about, as far as its words tell."""
    text = file.source(test)
    return [name for name, pattern in _GUARDS.items() if pattern.search(text)]


def _statement(at: ast.AST, file: SourceFile) -> dict[str, float]:
    statement = file.index.statement_of(at)
    found = {f"statement:{type(statement).__name__.lower()}": 1.0}
    for ancestor, _ in file.index.ancestors(at):
        if ancestor is statement:
            break
        if isinstance(ancestor, (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)):
            found["in a comprehension"] = 1.0
        elif isinstance(ancestor, ast.Dict):
            found["in a dict"] = 1.0
        elif isinstance(ancestor, ast.JoinedStr):
            found["in a text"] = 1.0
        elif isinstance(ancestor, ast.Call):
            found["in an argument"] = 1.0
    return found


@remembered
def _function(function: FunctionNode, file: SourceFile) -> dict[str, float]:
    """What the function is, and who calls it."""
    found = {
        "function:lines": math.log1p((function.end_lineno or function.lineno) - function.lineno),
        "function:private": float(function.name.startswith("_") and not function.name.startswith("__")),
        "function:nested": float(file.index.function_of(function) is not None),
        "function:method": float(isinstance(file.index.parent(function), ast.ClassDef)),
        "function:async": float(isinstance(function, ast.AsyncFunctionDef)),
    }
    for decorator in map(ast.unparse, function.decorator_list):
        found[f"decorator:{next(name for name, p in _DECORATORS.items() if p.search(decorator))}"] = 1.0
    found[f"often by:{file.frequencies.of_function(function).basis or 'unknown'}"] = 1.0
    inside = len(file.calls.callers(function))
    outside = len(file.repository.callers(file, function))
    found["callers"] = math.log1p(inside + outside)
    found["callers:none seen"] = float(inside + outside == 0)
    found["callers:in other files"] = float(outside > 0)
    found["mentioned:nowhere else"] = float(not _mentioned(function, file))
    found |= _waits_of_callers(function, file)
    return found


def _mentioned(function: FunctionNode, file: SourceFile) -> bool:
    """Does the repository, as far as it was read, mention the function, or the class that it is a method of?"""
    cls = file.index.parent(function)
    name = cls.name if isinstance(cls, ast.ClassDef) else function.name
    return file.text.count(name) > 1 or file.repository.mentions(name.encode(), besides=file.path)


def _waits_of_callers(function: FunctionNode, file: SourceFile) -> dict[str, float]:
    """How many of the callers wait for the device in the same iteration, the call itself left out."""
    calls = [(file, call) for call in file.calls.callers(function)]
    calls += file.repository.callers(file, function)
    waiting = [_waits_around(other, call, 2) for other, call in calls[:_MOST_CALLERS]]
    return {
        "waits:in a caller": math.log1p(max(waiting, default=0)),
        "waits:in every caller": float(bool(waiting) and all(waiting)),
    }


def _waits_around(file: SourceFile, call: ast.Call, depth: int) -> int:
    """The other waits in the loop or function that makes the call, and where that is a function, in its callers' too."""
    scope = file.frequencies.iteration_of(call)
    if scope is None:
        return 0
    found = len(file.waits.others(call, scope))
    if isinstance(scope, (ast.FunctionDef, ast.AsyncFunctionDef)) and depth > 1:
        outer = file.calls.callers(scope)[:_MOST_CALLERS]
        found += max((_waits_around(file, c, depth - 1) for c in outer), default=0)
    return found


@remembered
def _work(function: FunctionNode, file: SourceFile) -> dict[str, float]:
    """What the function calls: libraries that work on the host, and heavy operations beside which a hit is small."""
    found: dict[str, float] = {}
    for call in file.calls.calls_in(function)[:_MOST_CALLS]:
        root = call.func
        while isinstance(root, (ast.Attribute, ast.Call, ast.Subscript)):
            root = root.func if isinstance(root, ast.Call) else root.value
        name = root.id if isinstance(root, ast.Name) else ""
        for library, words in _HOST_LIBRARIES.items():
            if name in words:
                found[f"function uses:{library}"] = 1.0
        called = last_name(call.func)
        if called in _DONE_WITH:
            found["function uses:generation"] = 1.0
        elif called in _TENSOR_OPS:
            found["function uses:tensor operations"] = 1.0
        elif called in ("cpu", "numpy"):
            found["function uses:copies to the host"] = 1.0
        elif called in ("cuda", "to"):
            found["function uses:moves"] = 1.0
    return found
