"""Expensive calls whose result may be thrown away: networks, gradients, decoding; and what has no effect but its value."""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass, replace

from ptopt.rules.base import SourceFile
from ptopt.rules.ops._pure import changes, cost, is_deferred, is_module_call
from ptopt.source.bindings import is_self
from ptopt.source.calls import called_name, last_name
from ptopt.source.file import remembered
from ptopt.source.index import FunctionNode, children_of, own_nodes, walk
from ptopt.source.liveness import Liveness, liveness

# What people call a whole network.
_NETWORK = re.compile(
    r"^(base_|ref(erence)?_|old_|target_|pretrained_|frozen_|ema_|my_|the_)?("
    r"model|net|network|backbone|encoder|decoder|autoencoder|vae|vgg(16|19)?|unet|u_net|resnet(18|34|50|101)?|lpips|lpips_loss|clip|"
    r"discriminator|disc|discr|generator|gen|net_?[dg](_[a-z]+)?|[dg]_net|critic(_?[12])?|actor|policy|policy_net|q_?net(work)?|value_net|"
    r"teacher|student|transformer|vocoder|llm|lm|bert|classifier|detector|segmentor|text_encoder(_[12])?|image_encoder|"
    r"audio_encoder|video_encoder|vision_tower|visual_encoder|prompt_encoder|feature_extractor|perceptual_loss_fn)"
    r"(_model|_net|_network|_ema|_target|_t|_s|_teacher|_student|_?[abxy12])?$"
    r"|_(model|encoder|decoder|backbone|unet|vae|discriminator|vocoder)$",
    re.I,
)
RUNS = re.compile(
    r"^(forward|forward_\w+|generate|encode|decode|encode_\w+|decode_\w+|extract_features?|get_(text|image|audio)_features|"
    r"get_\w*embeddings?|predict|infer|sample|inference)$"
)
# Modules whose run costs next to nothing beside a network.
_LIGHT = re.compile(
    r"^(Dropout\w*|\w*Dropout|DropPath|\w*ReLU\d?|GELU|\w*GELU|SiLU|Swish|ELU|SELU|CELU|Mish|Tanh|\w*Sigmoid|\w*Softmax\w*|Softplus|Identity|"
    r"Flatten|Unflatten|Rearrange|Reduce|\w*Pool\w*|\w*Shuffle|Upsample\w*|\w*Pad\w*|\w*Norm\w*|\w*Embedding\w*|\w*Loss|\w*Criterion|"
    r"Hard\w+|Threshold|\w*Similarity|\w*Distance|Fold|Unfold|ChannelShuffle|Residual)$"
)
# Calls that keep something: a running metric, statistics, a code book, a cache.
_KEEPS = re.compile(
    r"metric|meter|evaluat|trainer|solver|accura|auroc|(^|_)f1|iou|wer$|fid$|psnr|ssim|quanti|observ|calib|codebook|code_book|running|track|momentum|"
    r"memory|queue|bank|buffer|cache|hook|record|captur|regist|normali[sz]er|_rms$|scheduler|sampler|tokeniz|processor|collat|"
    r"transform$|transforms$|logger|writer|profil|warm|bench|statistic|loader|dataset|env$|scaler|config|builder|factory|export|trace",
    re.I,
)
_PREPARES = re.compile(
    r"^(__|get_(?!text|image|audio|embed)|load|create|build|make|init|set|add|save|wrap|unwrap|prepare|compile|register|to$)"
)
_STATE = re.compile(
    r"cache|past|memor|state|hidden|(^|_)kvs?(_|$)|(^|_)mems?(_|$)|buffer|hook|record|captur|store|collect|inference_params",
    re.I,
)
_FOR_EFFECT = re.compile(
    r"warm|bench|profil|calib|quanti|observ|dummy|shape|flops|macs|latency|throughput|speed|timing|time_|_time|memory|summary|"
    r"trace|export|compile|capture|hook|update_bn|recal|swa|prune|sanity|smoke|check|verify|debug|test_|init|stat(s|istics)?(_|$)|"
    r"(^|_)probe|find_|attribut|saliency|prefill|build|setup|materiali[sz]e|record|measure|estimate",
    re.I,
)
_MEASURES = re.compile(
    r"hook|synchronize\(|elapsed_time|perf_counter|max_memory|torch\.profiler|GradientTape|FlopCount|cuda_?graph|CUDAGraph|"
    r"\.capture\(|prepare_qat|convert_fx|\.observer|torch\.jit\.trace|timeit"
)
_HOST_WORK = frozenset(
    "imread imdecode decode_jpeg decode_image read_image pil_loader default_loader imresize warpAffine warpPerspective remap "
    "read_video batch_decode apply_chat_template get_frames_at get_batch resample stft melspectrogram mel_spectrogram mfcc "
    "distance_transform_edt gaussian_filter zoom GaussianBlur medianBlur bilateralFilter phonemize read_csv read_parquet "
    "get_fdata ReadImage".split()
)
_HOST_CALLS = re.compile(
    r"^(librosa|torchaudio|cv2|skimage|soundfile|scipy\.io\.wavfile|scipy\.ndimage|scipy\.signal|torchvision\.io|imageio|nibabel|SimpleITK|rasterio|decord)"
    r"(\.\w+)*\.(load|read|resize|resample|cvtColor|imread|read_image|rotate|zoom|stft|ReadImage|VideoReader|undistort|remap|warpAffine|"
    r"warpPerspective|GaussianBlur|dilate|erode|findContours|connectedComponents|melspectrogram|mfcc|resample_poly|filtfilt)$"
    r"|^numpy\.(load|loadtxt|genfromtxt)$|^torch\.load$"
)
_PLAIN_DECORATORS = frozenset(
    "staticmethod classmethod no_grad inference_mode autocast custom_fwd script script_method beartype typecheck typechecked "
    "jaxtyped compile override overload property".split()
)
_WRITES = re.compile(r"write|save|dump|append|update|log|put|send|post|imshow|remove|unlink|makedirs")
_TENSOR_LIBRARIES = (
    "torch",
    "torch.nn.functional",
    "torch.fft",
    "torch.linalg",
    "torch.special",
    "einops",
    "numpy",
)
_LIBRARY_EFFECTS = re.compile(
    r"_$|^(set_|save|manual_seed|seed|load|compile|use_|put|copyto|fill|no_grad|enable_grad|autocast)"
)
_BUILTINS = frozenset(
    "len int float bool str abs min max sum range zip enumerate list tuple dict set sorted reversed isinstance hasattr getattr "
    "round map filter any all type repr divmod".split()
)
_METHODS = frozenset(
    "format join split strip lower upper replace startswith endswith keys values items get copy astype index count numpy tolist item "
    "size dim numel sum mean abs max min pow sqrt exp log norm reshape view transpose permute squeeze unsqueeze repeat expand "
    "flatten float half long int bool to cuda cpu type clone detach contiguous softmax sigmoid chunk unbind argmax clamp clip "
    "expand_as view_as type_as masked_fill gather index_select bfloat16 double t flip roll cumsum sort topk std var prod any all "
    "round floor ceil logical_not eq ne lt gt le ge matmul bmm mm mul add sub div tanh relu swapaxes unflatten narrow select".split()
)


@dataclass(frozen=True, slots=True)
class Work:
    """One expensive call.

    kind: "network", "gradient", "host" (decoding and the like, of one sample). `proven`: what it runs is seen, not only its name.
    `light`: it makes token ids of a text, which costs little.
    """

    call: ast.Call
    kind: str
    proven: bool
    light: bool = False


def expensive(call: ast.Call, file: SourceFile) -> Work | None:
    """Is the call expensive, and without an effect but its result, as far as the code shows?"""
    known = _expensive(call, file)
    return known if known is not None and not _keeps_state(call, file) else None


@remembered
def _expensive(call: ast.Call, file: SourceFile) -> Work | None:
    func = call.func
    name = called_name(call)
    qualified = file.imports.qualified(func)
    if qualified in (
        "torch.autograd.grad",
        "torch.autograd.functional.jacobian",
        "torch.autograd.functional.hessian",
    ):
        return Work(call, "gradient", True)
    if _is_host_work(call, qualified, file):
        return Work(call, "host", True, name in ("tokenizer", "encode", "tokenize"))
    if qualified or not (call.args or call.keywords):
        return None
    if _PREPARES.search(name):
        made = _of_function(call, file)
        return made if made is not None and made.kind == "host" else None
    receiver = func
    if isinstance(func, ast.Attribute) and RUNS.search(func.attr):
        receiver = func.value
    while isinstance(receiver, ast.Subscript):
        receiver = receiver.value
    if not isinstance(receiver, (ast.Name, ast.Attribute)):
        return None
    made = _maker(receiver, file)
    if made:
        if _LIGHT.search(made) or _KEEPS.search(made):
            return None
        if is_module_call(call, file) or _makes_module(receiver, file):
            return None if _sets_attributes(made, file) else Work(call, "network", True)
    leaf = last_name(receiver)
    if (
        leaf == "self"
        or _KEEPS.search(leaf)
        or leaf[:1].isupper()
        and not leaf.isupper()
        and "_" not in leaf
        and len(leaf) > 2
    ):
        return _of_function(call, file)
    if file.calls.resolve(call) is not None and not (
        isinstance(func, ast.Attribute) and receiver is func.value
    ):
        return _of_function(call, file)
    if _NETWORK.search(leaf) and file.values.of(receiver).kind in ("", "module", "tensor"):
        return Work(call, "network", False)
    return _of_function(call, file)


def _is_host_work(call: ast.Call, qualified: str, file: SourceFile) -> bool:
    """Does it decode, tokenise or transform a sample on the host?"""
    func, name = call.func, called_name(call)
    if name in _HOST_WORK or _HOST_CALLS.search(qualified):
        return True
    if name == "convert" and len(call.args) == 1 and isinstance(call.args[0], ast.Constant) and not qualified:
        return True  # of a PIL image, which is decoded only then
    if not isinstance(func, ast.Attribute):
        return name == "tokenizer"
    on = last_name(func.value).lower()
    return name == "tokenizer" or name in ("decode", "encode", "tokenize") and "tokenizer" in on


def _maker(receiver: ast.expr, file: SourceFile) -> str:
    """The class that the attribute of `self`, or the local name, is made of; "" where that is not seen."""
    value: ast.expr | None = None
    if isinstance(receiver, ast.Attribute) and is_self(receiver):
        cls = file.index.class_of(receiver)
        value = file.bindings.attribute(cls, receiver.attr) if cls is not None else None
    elif isinstance(receiver, ast.Name):
        binding = file.bindings.last_before(receiver)
        if binding is not None and binding.kind == "item" and isinstance(binding.value, ast.Attribute):
            return _maker(binding.value, file)
        value = binding.value if binding is not None and binding.kind == "assign" else None
    while (
        isinstance(value, ast.Call)
        and isinstance(value.func, ast.Attribute)
        and isinstance(value.func.value, ast.Call)
    ):
        value = value.func.value
    name = called_name(value) if isinstance(value, ast.Call) else ""
    return name if name[:1].isupper() else ""


def _makes_module(receiver: ast.expr, file: SourceFile) -> bool:
    """Is the attribute of a module, which a class made, or an element of a list of modules?"""
    if isinstance(receiver, ast.Name):
        binding = file.bindings.last_before(receiver)
        if binding is not None and binding.kind == "item" and isinstance(binding.value, ast.Attribute):
            return file.values.of(binding.value).kind == "module"
        return file.values.of(receiver).kind == "module"
    cls = file.index.class_of(receiver)
    return is_self(receiver) and cls is not None and file.context.is_module(cls)


def _sets_attributes(made: str, file: SourceFile) -> bool:
    """Does the class of that name keep something on itself when it runs, as far as this file shows?"""
    for cls in file.index.of_type(ast.ClassDef):
        if cls.name == made:
            return any(
                key.startswith("self.")
                for method in cls.body
                if isinstance(method, (ast.FunctionDef, ast.AsyncFunctionDef)) and method.name != "__init__"
                for key in changes(method, file).at
            )
    return False


def _of_function(call: ast.Call, file: SourceFile) -> Work | None:
    """A function of the repository that runs a network and has no effect but its result."""
    found = file.definition_of(call)
    if found is None:
        return None
    other, function = found
    inner = _work_of(function, other)
    return replace(inner, call=call) if inner is not None else None


@remembered
def _work_of(function: FunctionNode, file: SourceFile) -> Work | None:
    """The most expensive work in a function without effects."""
    known = file.once(_in_progress)
    if function in known or any(
        last_name(d) not in _PLAIN_DECORATORS for d in map(_called, function.decorator_list)
    ):
        return None
    known.add(function)
    try:
        found = changes(function, file)
        parameters = {a.arg for a in [*function.args.args, *function.args.kwonlyargs]}
        if any(key.startswith("self.") for key in found.at) or not parameters.isdisjoint(found.in_place):
            return None
        if any(
            isinstance(n, (ast.Yield, ast.YieldFrom, ast.Global, ast.Nonlocal, ast.Await))
            for n in own_nodes(function)
        ):
            return None
        calls = file.calls.calls_in(function)
        works = [w for c in calls if (w := expensive(c, file)) is not None]
        on_host = bool(works) and all(w.kind == "host" for w in works)
        if not works or not (on_host or all(_has_no_effect(c, file) for c in calls)):
            return None
        if any(_WRITES.search(called_name(c)) for c in calls):
            return None
    finally:
        known.discard(function)
    return max(works, key=lambda w: (w.kind != "host", not w.light, w.proven))


def _in_progress(file: SourceFile) -> set[FunctionNode]:
    return set()


def _called(decorator: ast.expr) -> ast.expr:
    return decorator.func if isinstance(decorator, ast.Call) else decorator


def _keeps_state(call: ast.Call, file: SourceFile) -> bool:
    """Is the call given something that it may fill: a cache, a list, an output?"""
    for argument in [*call.args, *(k.value for k in call.keywords)]:
        if isinstance(argument, (ast.Name, ast.Attribute)):
            if _STATE.search(last_name(argument)):
                return True
            if file.values.of(argument).kind == "list" and _is_container(argument, file):
                return True
    return any(k.arg is not None and (k.arg == "out" or _STATE.search(k.arg)) for k in call.keywords)


def _is_container(argument: ast.expr, file: SourceFile) -> bool:
    """Was the name given an empty list or dictionary, for others to fill?"""
    binding = file.bindings.last_before(argument) if isinstance(argument, ast.Name) else None
    value = binding.value if binding is not None else None
    return isinstance(value, (ast.List, ast.Dict)) and not (
        getattr(value, "elts", None) or getattr(value, "keys", None)
    )


def _has_no_effect(call: ast.Call, file: SourceFile) -> bool:
    name, func = called_name(call), call.func
    if name.endswith("_") and not name.endswith("__"):
        return False
    if expensive(call, file) is not None or cost(call, file) or is_module_call(call, file):
        return True
    qualified = file.imports.qualified(func)
    if qualified:
        return qualified.rpartition(".")[0] in _TENSOR_LIBRARIES and not _LIBRARY_EFFECTS.search(name)
    if isinstance(func, ast.Name):
        return name in _BUILTINS or _is_light_module(func, file) or _pure_function(call, file)
    if name in _METHODS:
        return True
    return _is_light_module(func, file) or _pure_function(call, file)


def _is_light_module(func: ast.expr, file: SourceFile) -> bool:
    made = _maker(func, file)
    return bool(made) and bool(_LIGHT.search(made)) and not _KEEPS.search(made)


def _pure_function(call: ast.Call, file: SourceFile) -> bool:
    target = file.calls.resolve(call)
    return target is not None and _only_computes(target, file)


@remembered
def _only_computes(function: FunctionNode, file: SourceFile) -> bool:
    known = file.once(_in_progress)
    if function in known:
        return False
    known.add(function)
    try:
        found = changes(function, file)
        parameters = {a.arg for a in [*function.args.args, *function.args.kwonlyargs]}
        return (
            not function.decorator_list
            and not any(key.startswith("self.") for key in found.at)
            and parameters.isdisjoint(found.in_place)
            and not any(
                isinstance(n, (ast.Yield, ast.YieldFrom, ast.Global, ast.Nonlocal, ast.Await))
                for n in own_nodes(function)
            )
            and all(_has_no_effect(c, file) for c in file.calls.calls_in(function))
        )
    finally:
        known.discard(function)


def removable(expr: ast.expr, file: SourceFile) -> bool:
    """Has the expression no effect but its value?"""
    for node in walk(expr):
        if isinstance(node, (ast.Await, ast.Yield, ast.YieldFrom, ast.NamedExpr)):
            return False
        if isinstance(node, ast.Call) and not _has_no_effect(node, file):
            return False
    return True


def is_only_work(expr: ast.expr, file: SourceFile) -> bool:
    """Has the expression no effect but its value, the arguments of its expensive calls left aside?"""
    stack: list[ast.AST] = [expr]
    while stack:
        node = stack.pop()
        if isinstance(node, (ast.Await, ast.Yield, ast.YieldFrom, ast.NamedExpr)):
            return False
        if isinstance(node, ast.Call):
            if expensive(node, file) is not None:
                continue
            if not _has_no_effect(node, file):
                return False
        stack += children_of(node)
    return True


def works_in(expr: ast.expr, file: SourceFile) -> list[Work]:
    """The expensive calls that the expression makes."""
    calls = (n for n in walk(expr) if isinstance(n, ast.Call))
    return [w for c in calls if (w := expensive(c, file)) is not None and not is_deferred(c, file)]


@remembered
def what_matters(function: FunctionNode, file: SourceFile) -> Liveness | None:
    """The liveness of the function's names."""
    return liveness(function, lambda expr: removable(expr, file))


def runs_for_effect(function: FunctionNode, file: SourceFile) -> bool:
    """Are networks run here for what happens in them: to warm up, to measure, to calibrate, to fill a cache, for hooks?"""
    cls = file.index.class_of(function)
    named = [function.name, cls.name if cls is not None else ""]
    return any(_FOR_EFFECT.search(name) for name in named) or file.search(_MEASURES)
