"""Activation checkpointing, memory format, cuDNN's search for algorithms."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from ptopt.audit.arguments import TrainerArguments, lightning_argument
from ptopt.audit.modules import Module, qualified, text_of
from ptopt.audit.setup import Candidate, Setup
from ptopt.audit.values import Measure, State

_CONV = re.compile(r"^(Conv[23]d|ConvTranspose[23]d|conv[23]d|LazyConv2d)$")
_CONV_NAMES = re.compile(
    r"resnet|convnext|efficientnet|unet|vgg|yolo|regnet|densenet|mobilenet|wide_resnet", re.I
)


_OF_DIFFUSERS = re.compile(r"^diffusers\.(\w+\.)*\w*(UNet|Autoencoder|VQModel|ControlNet)\w*\.from_\w+$")
ONLY_PATCHES = "the only convolution cuts an image into patches"
_LAYERS = ("Linear", "LSTM", "GRU", "Embedding", "Conv1d")
_NETWORKS = frozenset({"torchvision", "timm", "segmentation_models_pytorch"})


def checkpointing(setup: Setup) -> Measure:
    key, title = "gradient_checkpointing", "Activation checkpointing"
    found = list(_checkpoints(setup))
    if setup.framework in ("transformers", "TRL") and not any(c.value.truth for c in found):
        name = "activation_checkpointing"  # since transformers 5, where it goes before the older name
        value = TrainerArguments(setup).of(name)
        if not (value.known and value.value is not None):
            name = "gradient_checkpointing"
            value = TrainerArguments(setup).of(name)
        places = () if value.place is None else (value.place,)
        if not value.known:
            return Measure(key, title, State.UNKNOWN, f"`{name}`: {value.note}", places)
        if value.lacking is not None:
            detail = f"activations are kept; {value.note}"
            return Measure(key, title, State.OFF, detail, places, lacking=value.lacking)
        note = f" ({value.note})" if value.note else ""
        state = State.ON if value.value else State.OFF
        return Measure(key, title, state, f"`{name}` is {value.value}{note}", places)
    return setup.decide(key, title, found, "activations are kept", blind=setup.blind_model)


def _checkpoints(setup: Setup) -> Iterator[Candidate]:
    for module, call in setup.calls(
        "checkpoint", "checkpoint_sequential", "checkpoint_wrapper", "apply_activation_checkpointing"
    ):
        name = setup.qualified(module, call.func)
        if name.startswith(("torch.", "deepspeed.", "fairscale.", "xformers.")) or name in (
            "checkpoint.checkpoint",
            "cp.checkpoint",
        ):
            yield setup.site(module, call, f"`{text_of(call.func)[:60]}`")
    for module, call in setup.calls("apply"):
        receiver = text_of(call.func.value) if isinstance(call.func, ast.Attribute) else ""
        if receiver.rpartition(".")[2] in _checkpoint_functions(setup):
            yield setup.site(module, call, f"`{receiver}` of the repository")
    for module, call in setup.calls("gradient_checkpointing_enable", "enable_gradient_checkpointing"):
        yield setup.site(module, call, f"`{text_of(call.func)[:60]}()`")
    for module, call in setup.calls("prepare_model_for_kbit_training", "prepare_model_for_int8_training"):
        given = setup.keyword(call, "use_gradient_checkpointing", 1)
        yield setup.site(
            module,
            call,
            f"`{text_of(call.func)[:60]}`",
            None if given is None else setup.value(module, given),
        )


def _checkpoint_functions(setup: Setup) -> frozenset[str]:
    """Classes of the repository that compute the forward pass again in the backward pass."""
    return frozenset(
        cls.name
        for cls in setup.live.classes
        if "checkpoint" in cls.name.lower() and any(text_of(b).endswith("Function") for b in cls.bases)
    )


def channels_last(setup: Setup) -> Measure:
    key, title = "channels_last", "channels_last"
    found = [
        setup.site(module, node, "`torch.channels_last`")
        for module in setup.live.read.values()
        for node in module.file.index.attributes_named("channels_last", "channels_last_3d")
        if setup.live.runs(module, node) and _sets_format(setup, module.file.index.parent(node))
    ]
    if found:
        return setup.decide(key, title, found, "")
    return _for_convolutions(setup, key, title, "convolutions run in the default memory format")


def _sees_layers(setup: Setup) -> bool:
    """Is the network made of layers that are seen, and of none of a library?"""
    made = any(setup.qualified(m, c.func).startswith(("torch.nn.", "nn.")) for m, c in setup.calls(*_LAYERS))
    return made and setup.packages.isdisjoint({*_NETWORKS, "transformers", "diffusers", "monai"})


def _sets_format(setup: Setup, parent: ast.AST | None) -> bool:
    return isinstance(parent, (ast.keyword, ast.Call, ast.IfExp, ast.Assign))


def _for_convolutions(setup: Setup, key: str, title: str, off: str) -> Measure:
    """Off where convolutions run, not applicable where none does, unknown where the network was not seen."""
    convolutions = setup.named(_CONV)
    every = [pair for pair in convolutions if not _cuts_patches(setup, pair[1])]
    first = next((pair for pair in every if setup.runs(*pair).truth), None)
    first = first or next((pair for pair in every if setup.runs(*pair).truth is None), None)
    if first is None and every and not setup.packages.isdisjoint(_NETWORKS):
        first = every[0]  # another network takes their place
    if first is not None:
        return Measure(key, title, State.OFF, off, (setup.place(*first),))
    for module, call in setup.calls(
        "create_model", "get_model", "from_pretrained", *_models_of_torchvision(setup)
    ):
        name = setup.qualified(module, call.func)
        if name.startswith(("torchvision", "timm", "models.")) and setup.is_external(module, call.func):
            return Measure(key, title, State.OFF if _CONV_NAMES.search(text_of(call)) else State.UNKNOWN,
                           off if _CONV_NAMES.search(text_of(call)) else "the network comes from a library",
                           (setup.place(module, call),))  # fmt: skip
    for module, call in setup.calls("from_pretrained", "from_config"):
        ours = not _OF_DIFFUSERS.search(setup.qualified(module, call.func)) or not setup.is_external(
            module, call.func
        )
        if not ours and setup.runs(module, call).truth is not False:
            return Measure(key, title, State.OFF, off, (setup.place(module, call),))
    if setup.blind_model:
        return Measure(key, title, State.UNKNOWN, f"no convolution seen; {setup.blind_model}")
    if convolutions:
        return setup.not_applicable(key, title, ONLY_PATCHES)
    return setup.not_applicable(key, title, "no 2-d or 3-d convolution in the code that runs")


def _cuts_patches(setup: Setup, call: ast.Call) -> bool:
    """Is the stride as wide as the kernel, as of the first layer of a vision transformer: one matrix product?"""
    if "Transpose" in text_of(call.func):
        return False
    kernel, stride = setup.keyword(call, "kernel_size", 2), setup.keyword(call, "stride", 3)
    if kernel is None or stride is None:
        return False
    sizes = [
        {text_of(part) for part in (size.elts if isinstance(size, (ast.Tuple, ast.List)) else [size])}
        for size in (kernel, stride)
    ]
    return sizes[0] == sizes[1] and len(sizes[0]) == 1 and sizes[0] != {"1"}


def _models_of_torchvision(setup: Setup) -> tuple[str, ...]:
    return tuple({name for _, _, name in setup.live.found(_model_of_torchvision)})


def _model_of_torchvision(module: Module, call: ast.Call) -> str | None:
    func = call.func
    ours = isinstance(func, ast.Attribute) and qualified(module, func).startswith("torchvision.models")
    return func.attr if ours and isinstance(func, ast.Attribute) else None


def cudnn_benchmark(setup: Setup) -> Measure:
    key, title = "cudnn_benchmark", "cuDNN autotuning"
    stated = [
        (setup.value(module, assign.value), module, assign)
        for module, assign in setup.assignments("benchmark")
        if "cudnn" in text_of(assign.targets[0])
    ]
    stated.sort(key=lambda each: each[0].truth is False)  # why one that asks for it does not run says most
    found = [setup.site(m, assign, f"`{text_of(assign.targets[0])}`", value) for value, m, assign in stated]
    if setup.framework == "Lightning" and not found:
        value = lightning_argument(setup, "benchmark", None)
        if not value.known or value.value:
            state = State.ON if value.known else State.UNKNOWN
            places = () if value.place is None else (value.place,)
            return Measure(
                key, title, state, f"`benchmark`: {value.value if value.known else value.note}", places
            )
    measure = _for_convolutions(setup, key, title, "off by default")
    if any(c.value.truth is not False for c in found):
        if measure.state is State.NOT_APPLICABLE and _sees_layers(setup):
            why = f"{measure.detail}, so that `torch.backends.cudnn.benchmark` has nothing to search"
            return setup.not_applicable(key, title, why)
        return setup.decide(key, title, found, "")
    if found and measure.state is not State.NOT_APPLICABLE:
        return setup.decide(key, title, found, "")
    return measure
