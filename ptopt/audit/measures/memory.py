"""Activation checkpointing, memory format, cuDNN's search for algorithms."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from ptopt.audit.arguments import TrainerArguments, lightning_argument
from ptopt.audit.measures.convolutions import NETWORKS, NONE_SEEN, for_convolutions
from ptopt.audit.modules import text_of
from ptopt.audit.setup import Candidate, Setup, aside
from ptopt.audit.values import Measure, State

_LAYERS = ("Linear", "LSTM", "GRU", "Embedding", "Conv1d")


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
    return setup.decide(key, title, found, "activations are kept", blind=setup.blind_network)


def _checkpoints(setup: Setup) -> Iterator[Candidate]:
    for module, call in setup.calls(
        "checkpoint", "checkpoint_sequential", "checkpoint_wrapper", "apply_activation_checkpointing"
    ):
        name = setup.qualified(module, call.func)
        if name.startswith(("torch.", "deepspeed.", "fairscale.", "xformers.")) or name in (
            "checkpoint.checkpoint",
            "cp.checkpoint",
        ):
            found = setup.site(module, call, f"`{text_of(call.func)[:60]}`")
            yield aside(found) if setup.trained.leaves_out(module, call) else found
    for module, call in setup.calls("apply"):
        receiver = text_of(call.func.value) if isinstance(call.func, ast.Attribute) else ""
        if receiver.rpartition(".")[2] in _checkpoint_functions(setup):
            yield setup.site(module, call, f"`{receiver}` of the repository")
    for module, call in setup.calls("gradient_checkpointing_enable", "enable_gradient_checkpointing"):
        found = setup.site(module, call, f"`{text_of(call.func)[:60]}()`")
        of_others = isinstance(call.func, ast.Attribute) and setup.trained.leaves_out_value(
            module, call.func.value
        )
        yield aside(found) if of_others else found
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
    measure = for_convolutions(setup, key, title, "convolutions run in the default memory format")
    lacking = setup.lacking("torch.channels_last") if measure.state is State.OFF else ""
    return setup.not_applicable(key, title, lacking) if lacking else measure


def _sees_layers(setup: Setup) -> bool:
    """Is the network made of layers that are seen, and of none of a library?"""
    made = any(setup.qualified(m, c.func).startswith(("torch.nn.", "nn.")) for m, c in setup.calls(*_LAYERS))
    return made and setup.packages.isdisjoint({*NETWORKS, "transformers", "diffusers", "monai"})


def _sets_format(setup: Setup, parent: ast.AST | None) -> bool:
    return isinstance(parent, (ast.keyword, ast.Call, ast.IfExp, ast.Assign))


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
    measure = for_convolutions(setup, key, title, "off by default", also_1d=True)
    if any(c.value.truth is not False for c in found):
        if measure.state is State.NOT_APPLICABLE and _sees_layers(setup):
            why = f"{measure.detail}, so that `torch.backends.cudnn.benchmark` has nothing to search"
            return setup.not_applicable(key, title, why)
        return setup.decide(key, title, found, "")
    if found and measure.state is not State.NOT_APPLICABLE and not measure.detail.startswith(NONE_SEEN):
        return setup.decide(key, title, found, "")
    return measure
