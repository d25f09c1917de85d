"""Which convolutions a script runs: what the memory format and cuDNN's search for algorithms are for."""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator

from ptopt.audit.modules import Module, qualified, text_of
from ptopt.audit.setup import READ, Setup
from ptopt.audit.values import Measure, State
from ptopt.source.bindings import is_self

_CONV = re.compile(r"^(Conv[23]d|ConvTranspose[23]d|conv[23]d|LazyConv2d)$")
_ALSO_1D = re.compile(r"^((Lazy)?Conv[123]d|(Lazy)?ConvTranspose[123]d|conv(_transpose)?[123]d)$")
_CONV_NAMES = re.compile(
    r"resnet|convnext|efficientnet|unet|vgg|yolo|regnet|densenet|mobilenet|wide_resnet|alexnet|googlenet|inception_?v\d|squeezenet|shufflenet|mnasnet",
    re.I,
)
_OF_DIFFUSERS = re.compile(r"^diffusers\.(\w+\.)*\w*(UNet|Autoencoder|VQModel|ControlNet)\w*\.from_\w+$")
NONE_SEEN = "no convolution seen"
ONLY_PATCHES = "the only convolution cuts an image into patches, which is a matrix product"
ONLY_FILTERS = "the only convolution is a filter with fixed weights"
NETWORKS = frozenset({"torchvision", "timm", "segmentation_models_pytorch"})
# Classes of timm without a convolution, and those whose only one cuts an image into patches.
_WITHOUT_ATTENTION = re.compile(
    r"PatchEmbed$|Mlp$|SwiGLU|DropPath$|LayerScale$|PatchDropout$|Norm\w*$|Act\w*$|Pool\w*$|Conv\w*$|Classifier\w*$|RelPos|Rotary|Mixer|Cfg$|Format$"
)
_TIMM_WITHOUT = re.compile(
    r"\.(Block|ParallelScalingBlock|Attention\w*|Mlp|GluMlp|SwiGLU\w*|DropPath|LayerScale|PatchDropout|LayerNorm|RmsNorm|RelPos\w*|Rotary\w*|"
    r"WindowAttention|SwinTransformerBlock)$"
)
_TIMM_PATCHES = re.compile(
    r"\.(PatchEmbed|VisionTransformer(Distilled|RelPos)?|DistilledVisionTransformer|SwinTransformer(V2)?|Beit|Eva|Cait|Deit\w*|vit_\w*patch\w*|deit_\w+|"
    r"beit\w*_patch\w*)$"
)
_FILTER_NAME = re.compile(r"window|kernel|filter|gauss|blur|sobel|laplac|\bw\b", re.I)
_NO_NUMBERS = frozenset({"device", "dtype", "shape", "ndim", "size"})
_KEEPS_NUMBERS = frozenset(
    "to type type_as cuda cpu float half expand expand_as repeat view view_as reshape unsqueeze squeeze contiguous".split()
)
_MAKES_LAYER = re.compile(r"(^|\.)(?!\w*Tensor$|Variable$)[A-Z]\w*$")  # `nn.Parameter`, `nn.Conv2d`
_LIBRARIES = (
    "timm.models.", "timm.layers.", "torchvision.models.", "segmentation_models_pytorch.", "monai.networks.", "efficientnet_pytorch.",
)  # fmt: skip
_NO_NETWORK = re.compile(r"Loss$|Weights$|\.(losses|metrics|utils|datasets)\.")
# What multiplies matrices and is no convolution.
_PRODUCT = re.compile(
    r"^(Lazy)?Linear$|^Bilinear$|^(LSTM|GRU|RNN)(Cell)?$|^MultiheadAttention$|^Transformer\w*$|^scaled_dot_product_attention$|"
    r"^(b?mm|matmul|baddbmm|addmm|einsum|linear|tensordot|chain_matmul)$"
)
# The same in text, with what may hold or make one.
_MAY_MULTIPLY = re.compile(
    r"[Ll]inear|[Cc]onv|LSTM|GRU|RNN|Attention|attention|Transformer|\b\w*mm\w*\(|\b\w*mv\(|matmul|einsum|tensordot|\bdot\(|\binner\(|\bouter\(|"
    r"linalg|inverse|\bsvd|\bqr\(|eigh?\b|cholesky|cdist|kron|corr|cov\(|fft|stft|torch\.ops|torch\.hub|jit|load_inline|cpp_extension|getattr\(nn"
)
_WITHOUT_NETWORKS = frozenset(sys.stdlib_module_names) | frozenset(
    "torch numpy scipy sklearn pandas tqdm yaml matplotlib seaborn tensorboard tensorboardX wandb six imp distutils".split()
)
_LAYERS_OF_HEADS = ("Linear", ".linear")
_FEW_HEADS = 2  # beside convolutions of a library, which are not counted
# Their networks may attend, which is not seen here.
_MAY_ATTEND = frozenset(
    {"transformers", "diffusers", "timm", "clip", "open_clip", "monai", "xformers", "flash_attn"}
)
_OTHER_STEM = re.compile(r"\b(embed_layer|hybrid_backbone)\s*=|Hybrid")  # a network before the patches


def for_convolutions(setup: Setup, key: str, title: str, off: str, *, also_1d: bool = False) -> Measure:
    """Off where convolutions run, not applicable where none does, unknown where the network was not seen.

    `also_1d`: 1-d ones count, as for cuDNN, which computes them as 2-d ones of height 1.
    """
    convolutions = setup.of_trained(setup.named(_ALSO_1D if also_1d else _CONV))
    learned = [pair for pair in convolutions if not _is_filter(setup, *pair)]
    every = [pair for pair in learned if not _cuts_patches(setup, pair[1])]
    first = next((pair for pair in every if setup.runs(*pair).truth), None)
    first = first or next((pair for pair in every if setup.runs(*pair).truth is None), None)
    if first is None and every and not setup.packages.isdisjoint(NETWORKS):
        first = every[0]  # another network takes their place
    if first is not None:
        if setup.framework not in READ:  # which may well switch it on: fastai and homura do
            return Measure(key, title, State.UNKNOWN, f"not seen; {setup.blind_loop}", (setup.place(*first),))
        return Measure(key, title, State.OFF, off, (setup.place(*first),))
    for module, call in setup.of_trained(
        setup.calls("create_model", "get_model", "from_pretrained", *_models_of_torchvision(setup))
    ):
        name = setup.qualified(module, call.func)
        if setup.live.registers and name.endswith("create_model"):
            continue  # it makes the networks of the repository
        if name.startswith(("torchvision", "timm", "models.")) and setup.is_external(module, call.func):
            return Measure(key, title, State.OFF if _CONV_NAMES.search(text_of(call)) else State.UNKNOWN,
                           off if _CONV_NAMES.search(text_of(call)) else "the network comes from a library",
                           (setup.place(module, call),))  # fmt: skip
    for module, call in setup.of_trained(setup.calls("from_pretrained", "from_config")):
        external = setup.is_external(module, call.func)
        of_diffusers = external and _OF_DIFFUSERS.search(setup.qualified(module, call.func))
        if of_diffusers and setup.runs(module, call).truth is not False:
            return Measure(key, title, State.OFF, off, (setup.place(module, call),))
    of_libraries = list(_of_libraries(setup))
    for state in (State.OFF, State.UNKNOWN):
        named = next((each for each in of_libraries if each[3] is state), None)
        if named is not None:
            detail = off if state is State.OFF else f"`{named[2]}` is not in the repository"
            return Measure(key, title, state, detail, (setup.place(named[0], named[1]),))
    if setup.blind_model:
        return Measure(key, title, State.UNKNOWN, f"{NONE_SEEN}{setup.seen_where}; {setup.blind_model}")
    by_timm = [(module, node) for module, node, name, _ in of_libraries if _TIMM_PATCHES.search(name)]
    if learned or by_timm:
        places = [setup.place(*pair) for pair in (*learned, *by_timm)]
        return Measure(key, title, State.NOT_APPLICABLE, ONLY_PATCHES, tuple(dict.fromkeys(places))[:4])
    if convolutions:
        return setup.not_applicable(key, title, ONLY_FILTERS)
    return setup.not_applicable(
        key, title, f"no {'' if also_1d else '2-d or 3-d '}convolution {setup.where_trained}"
    )


def nearly_all_convolve(setup: Setup) -> bool:
    """Are convolutions nearly all that multiplies matrices in what is trained? A classifier behind them, or a gate of channels, is little."""
    if setup.blind_model or not _MAY_ATTEND.isdisjoint(setup.packages):
        return False
    if for_convolutions(setup, "", "", "").state is not State.OFF:
        return False
    products = setup.of_trained(setup.named(_PRODUCT))
    others = [pair for pair in products if not text_of(pair[1].func).endswith(_LAYERS_OF_HEADS)]
    if others or _multiplies(setup):
        return False
    convolutions = [
        pair for pair in setup.of_trained(setup.named(_CONV)) if not _cuts_patches(setup, pair[1])
    ]
    return 2 * len(products) <= (len(convolutions) or 2 * _FEW_HEADS)


def without_products(setup: Setup) -> bool:
    """Is nothing that runs a product of matrices or a convolution: embeddings, element-wise products and sums alone?

    Asked of the text of what runs, as layers are also held by name; and only where no other package may hold a network.
    """
    if setup.blind_model or not setup.packages <= _WITHOUT_NETWORKS:
        return False
    if not setup.calls("Parameter", "Embedding", "EmbeddingBag"):
        return False  # what is trained was not seen
    if any(module.file.search(_MAY_MULTIPLY) for module in setup.live.read.values()):
        return False
    return not _multiplies(setup)


def _multiplies(setup: Setup) -> bool:
    """`a @ b` in a function that runs"""
    return any(
        isinstance(node.op, ast.MatMult) and setup.live.runs(module, node)
        for module in setup.live.read.values()
        for node in module.file.index.of_type(ast.BinOp)
    )


def _cuts_patches(setup: Setup, call: ast.Call) -> bool:
    """Is the stride as wide as the kernel, as of the first layer of a vision transformer: one matrix product?"""
    if "Transpose" in text_of(call.func):
        return False
    kernel, stride = setup.keyword(call, "kernel_size", 2), setup.keyword(call, "stride", 3)
    if kernel is None or stride is None:
        return False
    sizes = [
        [text_of(part) for part in size.elts] if isinstance(size, (ast.Tuple, ast.List)) else [text_of(size)]
        for size in (kernel, stride)
    ]
    longest = max(map(len, sizes))
    kernels, strides = (size * longest if len(size) == 1 else size for size in sizes)
    return kernels == strides and set(kernels) != {"1"}


def _models_of_torchvision(setup: Setup) -> tuple[str, ...]:
    return tuple({name for _, _, name in setup.live.found(_model_of_torchvision)})


def _model_of_torchvision(module: Module, call: ast.Call) -> str | None:
    func = call.func
    ours = isinstance(func, ast.Attribute) and qualified(module, func).startswith("torchvision.models")
    return func.attr if ours and isinstance(func, ast.Attribute) else None


def _of_libraries(setup: Setup) -> Iterator[tuple[Module, ast.expr, str, State]]:
    """Networks and layers of libraries that are made, or are the base of a class that runs; and whether convolutions are in them."""
    for module, node, name in setup.made_of(*_LIBRARIES):
        if _NO_NETWORK.search(name) or setup.trained.leaves_out(module, made_by(module, node)):
            continue
        last = name.rpartition(".")[2]
        if _TIMM_WITHOUT.search(name):
            state = State.NOT_APPLICABLE
        elif _TIMM_PATCHES.search(name):
            state = State.UNKNOWN if setup.says(_OTHER_STEM) else State.NOT_APPLICABLE
        elif _CONV_NAMES.search(last):
            state = State.OFF
        elif last[0].isupper():
            state = State.UNKNOWN
        else:
            continue  # `trunc_normal_`, `register_model`
        yield module, node, name, state


def made_by(module: Module, node: ast.expr) -> ast.AST:
    """The call of what is called; the base of a class itself."""
    parent = module.file.index.parent(node)
    return parent if isinstance(parent, ast.Call) and parent.func is node else node


def attends_by_timm(setup: Setup) -> Iterator[tuple[Module, ast.expr, str]]:
    """Networks and layers of timm that may attend: all but those that are known to have no attention."""
    for module, node, name in setup.made_of("timm.models.", "timm.layers."):
        if setup.trained.leaves_out(module, made_by(module, node)):
            continue
        last = name.rpartition(".")[2]
        known = _WITHOUT_ATTENTION.search(last) or _CONV_NAMES.search(last)
        if not known and (last[0].isupper() or _TIMM_PATCHES.search(name)):
            yield module, node, name


def _is_filter(setup: Setup, module: Module, call: ast.Call) -> bool:
    """Is it a filter with fixed weights, as of a blur, of edges or of a structural similarity: nothing that is trained?"""
    name = call.func.attr if isinstance(call.func, ast.Attribute) else text_of(call.func)
    if not name.startswith("conv"):
        return module.once(_is_layer_set_by_hand, call)
    weight = setup.keyword(call, "weight", 1)
    groups = setup.keyword(call, "groups", 6)
    depthwise = groups is not None and text_of(groups) != "1"
    return weight is not None and _is_fixed(module, weight, depthwise)


def _is_layer_set_by_hand(module: Module, call: ast.Call) -> bool:
    """`sobel = nn.Conv2d(1, 1, 3)`, whose weight is set and not trained."""
    assigned = module.file.index.parent(call)
    if not isinstance(assigned, ast.Assign):
        return False
    around = module.file.index.class_of(call) or module.file.index.function_of(call) or module.file.tree
    text = module.file.text if isinstance(around, ast.Module) else module.file.source(around)
    for target in assigned.targets:
        held = re.escape(text_of(target))
        weight = rf"\b{held}\.weight"
        given = re.search(rf"{weight}(\.data)?\s*=[^=]|{weight}(\.data)?\.copy_\(", text)
        still = re.search(
            rf"{weight}\.requires_grad\s*=\s*False|{weight}\.requires_grad_\(False|{weight}\s*=[^\n]*requires_grad\s*=\s*False",
            text,
        )
        if given and still:
            return True
    return False


def _is_fixed(module: Module, weight: ast.expr, depthwise: bool, seen: frozenset[str] = frozenset()) -> bool:
    """Is the tensor made of numbers alone: no parameter, and nothing that a network computed?

    `depthwise`: it filters each channel for itself; then an argument that is called a window or kernel is no weight either.
    """
    for node in _parts(weight):
        values: list[ast.expr | None] = []
        if (
            isinstance(node, ast.Attribute)
            and is_self(node)
            and node.attr != "weight"
            and f"self.{node.attr}" not in seen
        ):
            seen |= {f"self.{node.attr}"}
            values = [*_of_self(module, node)] or [None]
        elif isinstance(node, ast.Name) and node.id != "self" and node.id not in seen:
            seen |= {node.id}
            function = module.file.index.function_of(node)
            bound = module.file.bindings.of(function, node.id)
            named = depthwise and _FILTER_NAME.search(node.id)
            # Without any it is of the module: a library, a function, a constant.
            values = [b.value for b in bound if not (named and b.kind == "parameter")]
        elif isinstance(node, ast.Call) and _MAKES_LAYER.search(text_of(node.func)):
            return False
        elif isinstance(node, ast.Attribute) and node.attr == "weight":
            return False
        if not all(value is not None and _is_fixed(module, value, depthwise, seen) for value in values):
            return False
    return True


def _parts(weight: ast.expr) -> Iterator[ast.AST]:
    """What the numbers come from: without the device, the type and the shape that they are brought to."""
    waiting: list[ast.AST] = [weight]
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.Attribute) and node.attr in _NO_NUMBERS:
            continue
        yield node
        if (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Attribute)
            and node.func.attr in _KEEPS_NUMBERS
        ):
            waiting.append(node.func.value)
        elif isinstance(node, ast.Call):
            waiting += [node.func, *node.args, *(k.value for k in node.keywords if k.arg not in _NO_NUMBERS)]
        else:
            waiting += ast.iter_child_nodes(node)


def _of_self(module: Module, attribute: ast.Attribute) -> list[ast.expr]:
    """What the class assigns to the attribute, or registers as a buffer of its name."""
    cls = module.file.index.class_of(attribute)
    nodes = list(ast.walk(cls)) if cls is not None else []
    found = [
        node.value
        for node in nodes
        if isinstance(node, ast.Assign)
        and any(
            isinstance(t, ast.Attribute) and is_self(t) and t.attr == attribute.attr for t in node.targets
        )
    ]
    for node in nodes:
        if isinstance(node, ast.Call) and text_of(node.func) == "self.register_buffer" and len(node.args) > 1:
            name, value = node.args[:2]
            if isinstance(name, ast.Constant) and name.value == attribute.attr:
                found.append(value)
    return found
