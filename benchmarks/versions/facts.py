"""What rules say of a library beyond the names that their examples use: defaults, and settings that exist."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from ptopt.audit.known import TRANSFORMERS, TRANSFORMERS_ADDED
from ptopt.rules import config_rules
from ptopt.rules.configs import SettingRule
from ptopt.rules.optim.kernel_per_parameter import _FOREACH


@dataclass(frozen=True, slots=True)
class Fact:
    """Of a library, what the rules rely on. It holds where the answer is one of `expected`, each as `repr` gives it.

    `since` and `until` are the versions between which it is relied on, besides those of the rules themselves.
    """

    rules: tuple[str, ...]
    library: str
    says: str
    question: str
    expected: tuple[str, ...] = ("True", "None")
    since: str = ""
    until: str = ""
    given: bool = False  # the code under review names it, so that an older version without it is no matter


_LOADER = "torch.utils.data.DataLoader"
_ARGUMENTS = "transformers.TrainingArguments"
_TRAINER = "lightning.pytorch.Trainer"
_ZERO = "deepspeed.runtime.zero.config.DeepSpeedZeroConfig"
_OFFLOAD = "deepspeed.runtime.zero.offload_config.DeepSpeedZeroOffloadOptimizerConfig"


def _default(rules: str, library: str, owner: str, name: str, *expected: object, since: str = "") -> Fact:
    shown = " or ".join(map(repr, expected))
    return Fact(
        tuple(rules.split()), library, f"`{name}` of `{owner.rpartition('.')[2]}` defaults to {shown}",
        f"default({owner!r}, {name!r})", tuple(map(repr, expected)), since,
    )  # fmt: skip


def _value(rules: str, library: str, says: str, question: str, *expected: object, since: str = "") -> Fact:
    return Fact(tuple(rules.split()), library, says, question, tuple(map(repr, expected)), since)


_RENAMED = ("packing", "group_by_length", "activation_checkpointing")  # of trl; until 5.2; since 5.23


def _off(name: str, since: str = "", until: str = "") -> Fact:
    """A default that the audit reads as off, or as the value of its own table."""
    value = TRANSFORMERS[name]
    added = TRANSFORMERS_ADDED[name].version if name in TRANSFORMERS_ADDED else ""
    same = (
        f"default({_ARGUMENTS!r}, {name!r}) == {value!r}"
        if value
        else f"default({_ARGUMENTS!r}, {name!r}) in (False, None, '', 0, [])"
    )
    return Fact(
        ("audit",), "transformers", f"`{name}` of `TrainingArguments` is {value or 'off'} by default", same, ("True",),
        since or added, until,
    )  # fmt: skip


BY_HAND: tuple[Fact, ...] = (
    # torch
    _default("loader-without-workers", "torch", _LOADER, "num_workers", 0),
    _default("loader-without-pinning pinning-removed audit", "torch", _LOADER, "pin_memory", False),
    _default("workers-restarted-each-epoch persistent-workers-removed audit", "torch", _LOADER, "persistent_workers", False),
    _default("audit", "torch", _LOADER, "prefetch_factor", None, since="2.0"),
    _default("zero-grad-keeps-tensors set-to-none-removed audit", "torch", "torch.optim.Optimizer.zero_grad", "set_to_none", True, since="2.0"),
    _default("zero-grad-fills-zeros", "torch", "torch.nn.Module.zero_grad", "set_to_none", True, since="2.0"),
    _default("optimizer-not-fused fused-or-foreach-disabled", "torch", "torch.optim.AdamW", "fused", None, since="2.0"),
    _default("fused-or-foreach-disabled", "torch", "torch.optim.AdamW", "foreach", None),
    _default("find-unused-parameters", "torch", "torch.nn.parallel.DistributedDataParallel", "find_unused_parameters", False),
    _default("find-unused-parameters", "torch", "torch.nn.parallel.DistributedDataParallel", "gradient_as_bucket_view", False),
    _default("attention-weights-discarded", "torch", "torch.nn.MultiheadAttention.forward", "need_weights", True),
    _default("graph-retained", "torch", "torch.Tensor.backward", "retain_graph", None),
    _value("audit", "torch", "TF32 of matrix products is off by default", "find('torch.backends.cuda.matmul').allow_tf32", False),
    _value("audit", "torch", "TF32 of convolutions is on by default", "find('torch.backends.cudnn').allow_tf32", True),
    _value("audit", "torch", "the precision of float32 products is highest by default", "find('torch.get_float32_matmul_precision')()", "highest"),
    _value("cudnn-autotune-off cudnn-benchmark-removed", "torch", "cuDNN does not benchmark by default", "find('torch.backends.cudnn').benchmark", False),
    _value("deterministic-left-on", "torch", "deterministic algorithms are off by default", "find('torch.are_deterministic_algorithms_enabled')()", False),
    _value("anomaly-detection-on", "torch", "anomaly detection is off by default", "find('torch.is_anomaly_enabled')()", False),
    _value("key-value-repeated", "torch", "attention takes grouped heads with `enable_gqa`",
           "'enable_gqa' in (find('torch.nn.functional.scaled_dot_product_attention').__doc__ or '')", True),
    _value("attention-by-hand eager-attention", "torch", "attention has `is_causal` and `scale`",
           "all(w in (find('torch.nn.functional.scaled_dot_product_attention').__doc__ or '') for w in ('is_causal', 'scale'))", True, since="2.1"),
    _value("audit compile-removed compile-in-loop", "torch", "`torch.compile` exists", "exists('torch.compile')", True, since="2.0"),
    _value("debugging-environment", "torch", "TORCH_DISTRIBUTED_DEBUG is read",
           "find('torch.distributed').get_debug_level().name", "OFF", since="1.13"),
    *(Fact(("kernel-per-parameter",), "torch", f"`{name}` exists", f"exists({name!r})")
      for name in sorted({part for text in _FOREACH.values() for part in re.findall(r"torch\.\w+", text)} | {"torch._foreach_norm"})),
    # transformers, with what the audit relies on
    *(_off(name) for name in TRANSFORMERS if name not in _RENAMED),
    _off("group_by_length", until="5.2"),
    _off("activation_checkpointing", since="5.23"),
    _default("audit", "transformers", _ARGUMENTS, "train_sampling_strategy", "random", since="5.2"),
    _default("debugging-left-on", "transformers", _ARGUMENTS, "skip_memory_metrics", True),
    _value("debugging-left-on", "transformers", "`full_determinism` makes the host wait for each kernel",
           "'CUDA_LAUNCH_BLOCKING' in __import__('inspect').getsource(find('transformers.trainer_utils.enable_full_determinism'))", True),
    _value("eager-attention eager-attention-configured", "transformers", "a model is loaded with `attn_implementation`",
           "'attn_implementation' in __import__('inspect').getsource(find('transformers.modeling_utils'))", True, since="4.36"),
    _value("eager-attention eager-attention-configured", "transformers", "`sdpa` is one of the implementations of attention",
           "'\"sdpa\"' in __import__('inspect').getsource(find('transformers.modeling_utils'))", True, since="4.36"),
    _value("logits-of-unused-positions", "transformers", "the forward pass of a model takes `logits_to_keep`",
           "'logits_to_keep' in __import__('inspect').getsource(find('transformers.models.llama.modeling_llama'))", True),
    _default("trainer-in-full-precision", "transformers", _ARGUMENTS, "bf16", False),
    _default("trainer-in-full-precision", "transformers", _ARGUMENTS, "fp16", False),
    _default("trainer-without-workers loader-workers-off", "transformers", _ARGUMENTS, "dataloader_num_workers", 0),
    _default("pinning-off", "transformers", _ARGUMENTS, "dataloader_pin_memory", True),
    Fact(("pretrained-in-full-precision",), "transformers", "weights are loaded as float32 where no type is given",
         "'dtype = \"auto\"' in __import__('inspect').getsource(find('transformers.modeling_utils.PreTrainedModel.from_pretrained'))",
         ("False",), until="5.0"),
    # trl
    _default("audit packing-off", "trl", "trl.SFTConfig", "packing", False, since="0.8.7"),
    # lightning
    _default("full-precision audit", "lightning", _TRAINER, "precision", "32-true", None),
    _default("debugging-left-on", "lightning", _TRAINER, "detect_anomaly", False),
    _default("debugging-left-on", "lightning", _TRAINER, "profiler", None),
    _default("audit", "lightning", _TRAINER, "accumulate_grad_batches", 1),
    _default("audit", "lightning", _TRAINER, "benchmark", None),
    _default("audit", "lightning", _TRAINER, "strategy", "auto"),
    _default("audit", "lightning", _TRAINER, "accelerator", "auto"),
    _default("audit", "lightning", _TRAINER, "reload_dataloaders_every_n_epochs", 0),
    # accelerate
    _default("audit", "accelerate", "accelerate.Accelerator", "gradient_accumulation_steps", 1),
    _default("audit", "accelerate", "accelerate.Accelerator", "mixed_precision", None),
    _value("unknown-setting", "accelerate", "a configuration has `distributed_type`",
           "'distributed_type' in find('accelerate.commands.config.config_args.ClusterConfig').__annotations__ or "
           "'distributed_type' in find('accelerate.commands.config.config_args.BaseConfig').__annotations__", True),
    # deepspeed
    _value("communication-not-overlapped", "deepspeed", "communication of ZeRO stage 3 overlaps by default",
           f"find({_ZERO!r})(stage=3).overlap_comm", True),
    _value("communication-not-overlapped", "deepspeed", "communication of ZeRO stage 2 does not overlap by default",
           f"find({_ZERO!r})(stage=2).overlap_comm", False),
    _default("communication-not-overlapped", "deepspeed", _ZERO, "contiguous_gradients", True),
    _value("pinning-off", "deepspeed", "offload of the optimizer has `pin_memory`", f"default({_OFFLOAD!r}, 'pin_memory') in (True, False)", True),
    _value("debugging-left-on", "deepspeed", "`memory_breakdown` collects garbage",
           "'gc.collect' in __import__('inspect').getsource(find('deepspeed.runtime.utils.see_memory_usage'))", True),
)  # fmt: skip

_OWNERS = {"transformers": _ARGUMENTS, "lightning": _TRAINER}


def of_settings() -> Iterator[Fact]:
    """Each setting that a rule about configurations objects to exists, and its default is another value."""
    for rule in config_rules():
        if not isinstance(rule, SettingRule):
            continue
        for kind, settings in rule.settings.items():
            for setting in settings if kind in _OWNERS else ():
                name = setting.path[-1]
                if name == "attn_implementation":  # of the scripts of trl, and of models
                    continue
                yield Fact(
                    (rule.name,),
                    kind,
                    f"`{name}` exists, and is not {' or '.join(map(repr, setting.bad))} by default",
                    f"default({_OWNERS[kind]!r}, {name!r}) not in ('missing', *{tuple(v for v in setting.bad if v != 0 or v is False)!r})",
                    ("True",),
                    given=True,
                )
