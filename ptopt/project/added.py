"""The first version of a library that has what advice names: what an older one lacks is not advised.

The versions are those of the oldest wheel that has the name; `python -m benchmarks.versions.added WHEEL...` looks again.
"""

from __future__ import annotations

import functools
import re
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Added:
    """`name`, and the first `version` of `package` that has it.

    A wheel has it where `pattern` occurs in a file whose path matches `path`. Texts name it as `text` says, by default as
    it stands. All three are regular expressions.
    """

    name: str
    package: str
    version: str
    path: str
    pattern: str
    text: str = ""

    def is_named_in(self, text: str) -> bool:
        return _expression(self).search(text) is not None


def _stub(name: str, arguments: str = "") -> tuple[str, str]:
    return r"torch/(?:__init__|_C/__init__|_C/_VariableFunctions)\.pyi", rf"def {name}\({arguments}"


_LINALG = r"torch/linalg/__init__\.py"
_FUNCTIONAL = r"torch/nn/functional\.pyi?"
_ARGUMENTS = r"transformers/training_args\.py"
_MODELS = r"transformers/modeling_utils\.py"

_ALL = (
    Added("torch.autocast", "torch", "1.10", r"torch/(?:autocast_mode|amp/autocast_mode)\.py", r"^class autocast"),
    Added("torch.amp.GradScaler", "torch", "2.3", r"torch/amp/grad_scaler\.py", r"^class GradScaler"),
    Added("torch.cuda.amp", "torch", "1.6", r"torch/cuda/amp/autocast_mode\.py", r"^class autocast"),
    Added("set_float32_matmul_precision", "torch", "1.12", r"torch/__init__\.py", r"^def set_float32_matmul_precision"),
    Added("allow_tf32", "torch", "1.7", r"torch/backends/cuda/__init__\.py", r"allow_tf32"),
    Added("inference_mode", "torch", "1.9", r"torch/autograd/grad_mode\.py", r"^class inference_mode"),
    Added("torch.compile", "torch", "2.0", r"torch/__init__\.py", r"^def compile\("),
    Added("torch.vmap", "torch", "2.0", r"torch/_functorch/(?:vmap|apis)\.py", r"^def vmap\("),
    Added("scaled_dot_product_attention", "torch", "2.0", r"torch/nn/functional\.pyi?", r"^(?:def )?scaled_dot_product_attention\b"),
    Added("enable_gqa", "torch", "2.5", _FUNCTIONAL, r"enable_gqa"),
    Added("persistent_workers", "torch", "1.7", r"torch/utils/data/dataloader\.py", r"persistent_workers"),
    Added("prefetch_factor", "torch", "1.7", r"torch/utils/data/dataloader\.py", r"prefetch_factor"),
    Added("set_to_none", "torch", "1.7", r"torch/optim/optimizer\.py", r"def zero_grad\(.*set_to_none"),
    Added("fused=True", "torch", "2.0", r"torch/optim/adamw\.py", r"\bfused\b"),
    Added("Adam(fused=True)", "torch", "1.13", r"torch/optim/adam\.py", r"\bfused\b"),
    Added("SGD(fused=True)", "torch", "2.3", r"torch/optim/sgd\.py", r"\bfused\b"),
    Added("Adagrad(fused=True)", "torch", "2.4", r"torch/optim/adagrad\.py", r"\bfused\b"),
    Added("torch.channels_last", "torch", "1.5", r"torch/nn/modules/module\.py", r"\bconvert_to_format\b"),
    Added("persistent=False", "torch", "1.6", r"torch/nn/modules/module\.py", r"_non_persistent_buffers_set"),
    Added("torchrun", "torch", "1.10", r"torch-[^/]*\.dist-info/entry_points\.txt", r"^torchrun\b"),
    Added("torch.profiler", "torch", "1.8", r"torch/profiler/profiler\.py", r"^class profile"),
    Added("profiler.schedule", "torch", "1.8", r"torch/profiler/profiler\.py", r"^def schedule"),
    Added("get_total_norm", "torch", "2.6", r"torch/nn/utils/__init__\.py", r"\bget_total_norm"),
    Added("all_gather_into_tensor", "torch", "1.13", r"torch/distributed/distributed_c10d\.py", r"^def all_gather_into_tensor"),
    Added("torch.linalg.solve", "torch", "1.8", _LINALG, r"^solve\b"),
    Added("left=False", "torch", "1.13", _LINALG, r"solve\(A, B, \*, left=True"),
    Added("torch.linalg.eigvalsh", "torch", "1.8", _LINALG, r"^eigvalsh\b", r"`(?:torch\.linalg\.|linalg\.)?eigvalsh\b"),
    Added("torch.linalg.eigvals", "torch", "1.9", _LINALG, r"^eigvals\b", r"`(?:torch\.linalg\.|linalg\.)?eigvals\b"),
    Added("torch.linalg.svdvals", "torch", "1.9", _LINALG, r"^svdvals\b", r"\bsvdvals\b"),
    Added("torch.linalg.vector_norm", "torch", "1.9", _LINALG, r"^vector_norm\b"),
    Added("rms_norm", "torch", "2.4", _FUNCTIONAL, r"^(?:def )?rms_norm\b", r"(?:F|functional)\.rms_norm\b"),
    Added("silu", "torch", "1.7", _FUNCTIONAL, r"^def silu\(", r"(?:F|functional)\.silu\b"),
    Added("mish", "torch", "1.9", _FUNCTIONAL, r"^def mish\(", r"(?:F|functional)\.mish\b"),
    Added("hardswish", "torch", "1.6", _FUNCTIONAL, r"^def hardswish\(", r"(?:F|functional)\.hardswish\b"),
    Added('approximate="tanh"', "torch", "1.12", _FUNCTIONAL, r"approximate"),
    Added("torch.aminmax", "torch", "1.10", *_stub("aminmax")),
    Added("torch.svd_lowrank", "torch", "1.5", r"torch/_lowrank\.py", r"^def svd_lowrank"),
    Added("torch.count_nonzero", "torch", "1.7", *_stub("count_nonzero")),
    Added("torch.maximum", "torch", "1.7", *_stub("maximum")),
    Added("torch.nan_to_num", "torch", "1.8", *_stub("nan_to_num")),
    Added("torch._assert_async", "torch", "1.9", *_stub("_assert_async")),
    Added("square()", "torch", "1.5", *_stub("square"), r"\.square\("),
    Added("scatter_reduce", "torch", "1.12", *_stub("scatter_reduce", ".*include_self")),
    Added("output_size=", "torch", "1.10", *_stub("repeat_interleave", ".*output_size")),
    Added("mT", "torch", "1.11", r"torch/_C/__init__\.pyi", r"^ +mT: ", r"[\w)\]]\.mT\b"),
    Added("torch._foreach_", "torch", "1.7", *_stub("_foreach_add_")),
    Added("torch._foreach_norm", "torch", "1.11", *_stub("_foreach_norm")),
    Added("torch._foreach_lerp_", "torch", "2.0", *_stub("_foreach_lerp_")),
    Added("torch._foreach_clamp_", "torch", "2.0", *_stub("_foreach_clamp_max_")),
    Added("attn_implementation", "transformers", "4.36", _MODELS, r"attn_implementation"),
    Added("torch_dtype", "transformers", "4.9", _MODELS, r"torch_dtype"),
    Added("bf16=True", "transformers", "4.13", _ARGUMENTS, r"\bbf16\b"),
    Added("dataloader_num_workers", "transformers", "3.3", _ARGUMENTS, r"dataloader_num_workers"),
    Added("dataloader_pin_memory", "transformers", "4.3", _ARGUMENTS, r"dataloader_pin_memory"),
    Added("dataloader_persistent_workers", "transformers", "4.36", _ARGUMENTS, r"dataloader_persistent_workers"),
    Added("TrainingArguments.gradient_checkpointing", "transformers", "4.11", _ARGUMENTS, r"^    gradient_checkpointing:"),
    Added("TrainingArguments.tf32", "transformers", "4.13", _ARGUMENTS, r"^    tf32:"),
    Added("TrainingArguments.optim", "transformers", "4.16", _ARGUMENTS, r"^    optim:"),
    Added("TrainingArguments.torch_compile", "transformers", "4.26", _ARGUMENTS, r"^    torch_compile:"),
    Added("TrainingArguments.dataloader_prefetch_factor", "transformers", "4.38", _ARGUMENTS, r"^    dataloader_prefetch_factor:"),
    Added("num_logits_to_keep", "transformers", "4.45", r"models/llama/modeling_llama\.py", r"logits_to_keep"),
    Added("logits_to_keep", "transformers", "4.45", r"models/llama/modeling_llama\.py", r"logits_to_keep"),
    Added("bf16-mixed", "lightning", "2.0", r".*\.py", r"bf16-mixed"),
    Added('precision="bf16"', "lightning", "1.5", r".*\.py", r"""["']bf16["']"""),
    Added("accelerator.no_sync", "accelerate", "0.10", r"accelerate/accelerator\.py", r"def no_sync"),
    Added(
        "DataLoaderConfiguration(non_blocking=True)", "accelerate", "0.30", r"accelerate/utils/dataclasses\.py", r"^    non_blocking: bool"
    ),
)  # fmt: skip
ADDED = {added.name: added for added in _ALL}


@functools.cache
def _expression(added: Added) -> re.Pattern[str]:
    name = added.name
    before, after = (r"(?<!\w)" if name[0].isalpha() else ""), (r"(?!\w)" if name[-1].isalnum() else "")
    return re.compile(added.text or before + re.escape(name) + after)


def named_in(text: str) -> frozenset[str]:
    """The names of `ADDED` that occur in the text."""
    return frozenset(name for name, added in ADDED.items() if added.is_named_in(text))
