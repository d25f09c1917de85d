"""What a YAML or JSON file configures, decided by its content: parts of it that belong to a library each."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from ptopt.configs.values import Document, Entry, Mapping, Scalar, Sequence, walk

# Words of which each known kind has at least one: a file without any is not read further.
_MARKS = re.compile(
    rb"per_device_train_batch_size|base_model|model_name_or_path|finetuning_type|_component_|trainer|_target_|distributed_type|"
    rb"zero_optimization|train_micro_batch_size_per_gpu|apiVersion|services|jobs|tensor-parallel-size|"
    rb"gpu-memory-utilization|max-model-len|enforce-eager"
)
_JSON_MARKS = re.compile(
    rb'"(?:per_device_train_batch_size|finetuning_type|zero_optimization|train_micro_batch_size_per_gpu)"'
)
_LIGHTNING = re.compile(r"(?:pytorch_lightning|lightning(?:\.pytorch)?)\.(?:trainer\.)?(?:trainer\.)?Trainer")
_LOADER = re.compile(r"torch\.utils\.data\.(?:dataloader\.)?DataLoader")
_TRAINER_KEYS = frozenset(
    {
        "accelerator",
        "devices",
        "max_epochs",
        "max_steps",
        "precision",
        "strategy",
        "num_nodes",
        "val_check_interval",
    }
    | {"accumulate_grad_batches", "gradient_clip_val", "gpus", "log_every_n_steps", "check_val_every_n_epoch"}
)
_VLLM_KEYS = frozenset(
    {"tensor-parallel-size", "gpu-memory-utilization", "max-model-len", "enforce-eager", "max-num-seqs"}
)
_STAGES = frozenset({"sft", "pt", "rm", "dpo", "ppo", "kto"})


@dataclass(frozen=True, eq=False)
class Block:
    """A mapping whose keys are the settings of one library; `path` are the keys that lead to it."""

    kind: str
    mapping: Mapping
    path: tuple[str, ...] = ()


def may_be_known(data: bytes, format_: str) -> bool:
    """Whether reading the file can show anything: a search that takes microseconds."""
    return (_JSON_MARKS if format_ == "json" else _MARKS).search(data) is not None


def blocks(document: Document) -> list[Block]:
    """The parts of the file whose settings are known, in source order; empty for a file of another purpose."""
    root = document.root
    if root is None:
        return []
    found = list(_of_root(root))
    if not found:
        found = [*_nested(root), *_data_of(root)]
    return found


def _of_root(root: Mapping) -> Iterator[Block]:
    keys = root.keys()
    if "zero_optimization" in keys and root.mapping("zero_optimization") is not None:
        yield Block("deepspeed", root)
    elif "train_micro_batch_size_per_gpu" in keys and keys & {
        "fp16",
        "bf16",
        "optimizer",
        "gradient_clipping",
    }:
        yield Block("deepspeed", root)
    elif (
        "base_model" in keys
        and "datasets" in keys
        and keys & {"micro_batch_size", "num_epochs", "sequence_len"}
    ):
        yield Block("axolotl", root)
    elif "model_name_or_path" in keys and ("finetuning_type" in keys or root.scalar("stage") in _STAGES):
        yield Block("llamafactory", root)
    elif "distributed_type" in keys and keys & {"compute_environment", "num_processes", "mixed_precision"}:
        yield Block("accelerate", root)
    elif "model" in keys and "per_device_train_batch_size" not in keys and keys & _VLLM_KEYS:
        yield Block("vllm", root)
    elif any(_component(entry).startswith("torchtune.") for _, entry in walk(root)):
        yield Block("torchtune", root)


def _component(entry: Entry) -> str:
    value = entry.value
    if isinstance(value, Scalar) and entry.key.text == "_component_" and isinstance(value.value, str):
        return value.value
    return ""


def _nested(root: Mapping) -> Iterator[Block]:
    """Blocks that may stand anywhere: arguments of a trainer, what `_target_` and `class_path` name."""
    waiting: list[tuple[tuple[str, ...], Mapping]] = [((), root)]
    while waiting:
        path, mapping = waiting.pop()
        kind = _kind_of(path, mapping)
        if kind:
            yield Block(kind, mapping, path)
        for entry in reversed(mapping.entries):
            inner = (*path, entry.key.text)
            if isinstance(entry.value, Mapping):
                waiting.append((inner, entry.value))
            elif isinstance(entry.value, Sequence):
                waiting += [
                    (inner, item) for item in reversed(entry.value.items) if isinstance(item, Mapping)
                ]


def _kind_of(path: tuple[str, ...], mapping: Mapping) -> str:
    keys = mapping.keys()
    target = mapping.scalar("_target_")
    if isinstance(target, str):
        if _LIGHTNING.fullmatch(target):
            return "lightning"
        return "dataloader" if _LOADER.fullmatch(target) else ""
    if "per_device_train_batch_size" in keys:
        return "transformers"
    if path == ("trainer",) and len(keys & _TRAINER_KEYS) >= 2:
        return "lightning"
    return ""


def _data_of(root: Mapping) -> Iterator[Block]:
    """The data module of a file for Lightning's command line: arguments of `data`, or of what its `class_path` names."""
    trainer, data = root.mapping("trainer"), root.mapping("data")
    if trainer is None or data is None or _kind_of(("trainer",), trainer) != "lightning":
        return
    inner = data.mapping("init_args")
    if inner is not None:
        yield Block("datamodule", inner, ("data", "init_args"))
    elif data.scalar("_target_") is None:  # of Hydra, whose trainer is another group
        yield Block("datamodule", data, ("data",))


def is_kubernetes(node: object) -> bool:
    return isinstance(node, Mapping) and isinstance(node.scalar("apiVersion"), str) and "kind" in node


def is_compose(root: Mapping | None) -> bool:
    services = None if root is None else root.mapping("services")
    return services is not None and any(
        isinstance(entry.value, Mapping) and entry.value.keys() & {"image", "build"} for entry in services
    )


def is_workflow(root: Mapping | None) -> bool:
    jobs = None if root is None or "on" not in root else root.mapping("jobs")
    return jobs is not None and any(
        isinstance(entry.value, Mapping) and entry.value.keys() & {"runs-on", "uses"} for entry in jobs
    )
