"""The words by which lines of code, commands and configurations have to do with a row of the table."""

from __future__ import annotations

import re
from collections.abc import Mapping
from types import MappingProxyType

_NETWORK = r"Conv[123]d|ConvTranspose|nn\.Module\)|create_model|from_pretrained|torchvision\.models|timm\."

_WORDS: Mapping[str, str] = MappingProxyType(
    {
        "precision": r"autocast|GradScaler|\bscaler\b|\.half\(|bfloat16|\bfloat16|fp16|bf16|\bamp\b|_amp|precision|apex|opt_level",
        "tf32": r"tf32|matmul_precision|cudatoolkit|\bcu1[0-9]{2}\b",
        "attention": r"attention|attn|sdpa|flash|xformers|softmax|baddbmm|BertModel|AutoModel",
        "compile": r"torch\.compile|\.compile\(|torch_compile|use_compile|--compile|dynamo|jit\.(script|trace)",
        "workers": r"workers?\b|DataLoader|create_loader|loader_kwargs|\bkwargs = ",
        "pin_memory": r"pin_mem",
        "persistent_workers": r"persistent_workers",
        "prefetch": r"prefetch",
        "non_blocking": r"non_blocking|\.to\([^)]*(device|cuda|rank)|\.cuda\(|\.prepare\(|send_to_device|to_device",
        "padding": r"\bpad|_pad|collate|pack(ed|ing|_)|max_?len|max_seq|seq_len|seq_length|block_size|context_length|tokeni[sz]e|bucket",
        "fused_optimizer": r"optim\.|optimi[sz]er\w* ?=|Adam|\bSGD\b|RMSprop|LBFGS|Lamb\b|Muon|fused|foreach|8bit",
        "set_to_none": r"zero_grad|set_to_none|\.grad\b ?=|grad\.zero_",
        "accumulation": r"accum|micro_?batch|no_sync|accumulate|update_freq|iter_size|batch_split",
        "gradient_checkpointing": r"checkpoint\(|use_checkpoint|grad\w*_checkpoint|activation_checkpoint|checkpoint_sequential|"
        r"use_reentrant|remat|checkpoint_activations",
        "distributed": r"DistributedDataParallel|\bDDP\b|DataParallel|FSDP|FullyShard|deepspeed|init_process_group|world_size|"
        r"local_rank|Accelerator\(|torchrun|torch\.distributed|nproc|multi_?gpu|all_reduce|launch",
        "channels_last": rf"channels_last|memory_format|{_NETWORK}",
        "cudnn_benchmark": r"cudnn|deterministic",
        "evaluation": r"no_grad|inference_mode|set_grad_enabled|\.eval\(|def \w*(eval|valid|test|sample|predict|infer)\w*\(|"
        r"\b(evaluate|validate|validation|eval_\w+|test)\(|eval_strategy|\.detach\(",
        "saving": r"torch\.save|save_pretrained|save_state|save_checkpoint|save_model|\bsave\w*\(|save_(freq|every|steps|interval)|"
        r"pickle\w*\.dump|ckpt|state_dict\(\)|checkpoint_?(path|dir|freq|every)|saver",
        "monitoring": r"wandb|SummaryWriter|tensorboard|mlflow|comet|neptune|swanlab|profile|Logger\(|log_with|report_to|log_dir|logging_dir|"
        r"add_scalar|nvtx|tb_logger|use_tb",
    }
)
# What every row needs: the loop itself, who reads the options, what is pinned.
_COMMON = (
    r"\.backward\(|\.step\(|for .* in .*(loader|dataset|range\(.*epoch|epochs)|parse_args|set_defaults|"
    r"def main|__main__|torch\W{0,2}[=~<>]=|python\W{0,2}=|from_yaml|yaml\.(safe_)?load|hydra|getattr\(\w+, \w*(args|cfg|config|name)"
)
LOOP = "loop"
PATTERNS: Mapping[str, re.Pattern[str]] = MappingProxyType(
    {key: re.compile(words, re.I if key != "set_to_none" else 0) for key, words in _WORDS.items()}
    | {LOOP: re.compile(_COMMON)}
)
"""Key of a measure -> what a line about it holds."""

# Parts, in lower case, of which a line needs one for the pattern to match: they are found much faster.
_PARTS: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "precision": ("autocast", "scaler", ".half(", "float16", "fp16", "bf16", "amp", "precision", "apex", "opt_level"),
        "tf32": ("tf32", "matmul_precision", "cudatoolkit", "cu1"),
        "attention": ("attention", "attn", "sdpa", "flash", "xformers", "softmax", "baddbmm", "bertmodel", "automodel"),
        "compile": ("compile", "dynamo", "jit."),
        "workers": ("worker", "dataloader", "create_loader", "kwargs"),
        "pin_memory": ("pin_mem",),
        "persistent_workers": ("persistent_workers",),
        "prefetch": ("prefetch",),
        "non_blocking": ("non_blocking", ".to(", ".cuda(", ".prepare(", "to_device"),
        "padding": ("pad", "collate", "pack", "max_", "maxlen", "seq_len", "block_size", "context_length", "token", "bucket"),
        "fused_optimizer": ("optim", "adam", "sgd", "rmsprop", "lbfgs", "lamb", "muon", "fused", "foreach", "8bit"),
        "set_to_none": ("zero_grad", "set_to_none", ".grad", "grad.zero_"),
        "accumulation": ("accum", "micro", "no_sync", "update_freq", "iter_size", "batch_split"),
        "gradient_checkpointing": ("checkpoint", "use_reentrant", "remat"),
        "distributed": ("ddp", "dataparallel", "fsdp", "fullyshard", "deepspeed", "process_group", "world_size", "local_rank",
                        "accelerator(", "torchrun", "torch.distributed", "nproc", "multi", "all_reduce", "launch"),
        "channels_last": ("channels_last", "memory_format", "conv", "nn.module)", "create_model", "from_pretrained",
                          "torchvision.models", "timm."),
        "cudnn_benchmark": ("cudnn", "deterministic"),
        "evaluation": ("grad", "inference_mode", "eval", "valid", "test", "sample", "predict", "infer", ".detach("),
        "saving": ("save", "dump", "ckpt", "state_dict()", "checkpoint"),
        "monitoring": ("wandb", "summarywriter", "tensorboard", "mlflow", "comet", "neptune", "swanlab", "profile", "logger", "log",
                       "report_to", "add_scalar", "nvtx", "use_tb"),
        LOOP: (".backward(", ".step(", "for ", "parse_args", "set_defaults", "def main", "__main__", "torch", "python", "yaml",
               "hydra", "getattr"),
    }
)  # fmt: skip
_SEARCHED = tuple((key, _PARTS[key], pattern) for key, pattern in PATTERNS.items())

# Words whose absence from a whole repository says something.
TELLING: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "precision": ("autocast", "GradScaler", ".half(", "bfloat16", "fp16", "apex"),
        "tf32": ("allow_tf32", "set_float32_matmul_precision"),
        "attention": (
            "scaled_dot_product_attention",
            "flash_attn",
            "MultiheadAttention",
            "xformers",
            "softmax",
        ),
        "compile": ("torch.compile", ".compile(", "dynamo"),
        "workers": ("num_workers", "DataLoader"),
        "pin_memory": ("pin_memory",),
        "persistent_workers": ("persistent_workers",),
        "prefetch": ("prefetch",),
        "non_blocking": ("non_blocking",),
        "padding": ("pad_sequence", "collate", "tokenizer", "padding"),
        "fused_optimizer": ("fused", "foreach"),
        "set_to_none": ("zero_grad", "set_to_none"),
        "accumulation": ("accum", "no_sync"),
        "gradient_checkpointing": ("checkpoint(", "gradient_checkpointing", "use_checkpoint"),
        "distributed": ("DistributedDataParallel", "DataParallel", "init_process_group", "FSDP"),
        "channels_last": ("channels_last", "Conv2d", "Conv3d"),
        "cudnn_benchmark": ("cudnn.benchmark",),
        "evaluation": ("no_grad", "inference_mode", "set_grad_enabled"),
        "saving": ("torch.save", "save_pretrained", "save_checkpoint"),
        "monitoring": ("wandb", "SummaryWriter", "tensorboard", "mlflow", "profiler"),
    }
)


def rows_of(line: str) -> tuple[str, ...]:
    """The keys of the measures that the line has to do with; LOOP where it tells of the training as a whole."""
    low = line.lower()
    return tuple(
        key
        for key, parts, pattern in _SEARCHED
        if any(part in low for part in parts) and pattern.search(line) is not None
    )
