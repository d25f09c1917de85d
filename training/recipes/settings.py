"""The YAML of a recipe: every switch with its type and its default, validated strictly.

An error is one line: the file and the line, the key, what is wrong, and the nearest known key.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from ptopt.model.region import JUDGE_TOKENS

HERE = Path(__file__).parents[1]
ALL_LINEAR = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")


class SettingsError(Exception):
    """A recipe's YAML, or data that it names, is wrong. The message is one line."""


class _Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=False, protected_namespaces=())


class Model(_Section):
    base: str  # a folder, package:NAME (weights in an installed package), or a hub name ORG/NAME
    adapter: Path | None = None  # train this adapter further instead of a new one
    attention: str = "auto"  # auto | sdpa | eager | flash_attention_2 | a kernel's hub name | ...
    dtype: Literal["auto", "bf16", "fp16", "fp32"] = "auto"  # of the frozen weights; auto: as `precision`
    four_bit: bool = False  # QLoRA: the frozen weights as NF4
    kernels: bool = False  # fused layer kernels (Liger and others) from the kernel hub


class Lora(_Section):
    r: int = Field(default=16, ge=1)
    alpha: int = Field(default=32, ge=1)
    dropout: float = Field(default=0.1, ge=0, lt=1)
    targets: tuple[str, ...] = Field(default=ALL_LINEAR, min_length=1)
    last: int | None = Field(
        default=None, ge=1
    )  # only in the last so many layers: no backward pass below them


class Views(_Section):
    """Shares of the rows, and of the loss, in which each row counts the same; 0 leaves a view out."""

    judge: float = Field(default=1.0, ge=0)
    advise: float = Field(default=0.0, ge=0)
    explain: float = Field(default=0.0, ge=0)

    @model_validator(mode="after")
    def _something(self) -> Views:
        if not (self.judge or self.advise or self.explain):
            raise ValueError("at least one view needs a share above 0")
        return self


class Data(_Section):
    folder: Path  # a dataset of `training data build`; for KTO a file of JSON lines
    views: Views = Views()
    decontaminated: bool = False  # refuse a dataset that was built without `--against`
    rows: int | None = Field(default=None, ge=1)  # at most so many rows
    max_tokens: int = Field(default=1024, ge=32)  # of a row
    judge_tokens: int = Field(
        default=JUDGE_TOKENS, ge=32
    )  # of code that the judge reads, in training and in use
    packing: bool = True  # several rows in one, without attention between them
    pack_to: int | None = Field(default=None, ge=32)  # tokens of a packed row; as `max_tokens` if not given
    multiple_of: int = Field(
        default=64, ge=1
    )  # lengths are padded to it: a CPU keeps memory for each new one
    order: Literal["shuffled", "by-length", "curriculum"] = "shuffled"  # curriculum: short rows first
    workers: int = Field(default=0, ge=0)  # processes that load batches
    prefetch: int = Field(default=2, ge=1)  # batches that each of them holds ready
    pin: bool = True  # page-locked memory, for faster copies to a GPU
    processes: int = Field(default=1, ge=1)  # processes that tokenise
    cache: Path | None = None  # of tokenised rows, for the next run; else in the user's cache folder

    @model_validator(mode="after")
    def _whole(self) -> Data:
        if self.pack_to is not None and self.pack_to < self.max_tokens:
            raise ValueError("data.pack_to must not be below data.max_tokens")
        if self.judge_tokens > self.max_tokens:
            raise ValueError("data.judge_tokens must not be above data.max_tokens: a row holds the code")
        return self


class Optimizer(_Section):
    name: Literal[
        "adamw_torch", "adamw_torch_fused", "adamw_8bit", "paged_adamw_32bit", "paged_adamw_8bit", "adafactor", "sgd"
    ] = "adamw_torch_fused"  # fmt: skip
    lr: float = Field(default=2e-4, gt=0)
    schedule: Literal[
        "linear", "cosine", "cosine_with_restarts", "polynomial", "constant", "constant_with_warmup", "inverse_sqrt"
    ] = "cosine"  # fmt: skip
    warmup: float = Field(default=0.03, ge=0)  # below 1: a share of the steps; else steps
    weight_decay: float = Field(default=0.0, ge=0)
    max_grad_norm: float = Field(default=1.0, ge=0)


class Batch(_Section):
    size: int = Field(default=4, ge=1)  # rows (packed rows) a device holds at once
    accumulation: int = Field(default=4, ge=1)  # forward and backward passes before an optimizer step
    auto: bool = True  # after out-of-memory: half the size, twice the accumulation, from the last checkpoint


class Limits(_Section):
    """`steps`, where given, stands in place of `epochs`. Where these do not fit into `minutes`, fewer steps are planned,
    with a schedule of their own; should they take longer, the session ends with a checkpoint.
    """

    epochs: float = Field(default=1.0, gt=0)
    steps: int | None = Field(default=None, ge=1)
    minutes: float | None = Field(default=None, gt=0)


class Checkpoint(_Section):
    every: int = Field(default=100, ge=1)  # steps
    keep: int = Field(default=2, ge=1)


class Evaluate(_Section):
    every: int = Field(default=100, ge=1)  # steps
    rows: int = Field(default=0, ge=0)  # of the validation split; 0: no evaluation while training


class Tracking(_Section):
    mlflow: bool = True
    experiment: str = "ptopt"
    every: int = Field(default=1, ge=1)  # steps between two lines
    target: float | None = Field(
        default=None, gt=0
    )  # tokens/s that the run should reach; the report compares
    trace: int = Field(default=0, ge=0, le=100)  # steps that are recorded for `ptopt profile`; 0: none


class Kto(_Section):
    """Weights that are not given make the good and the bad answers count the same in all."""

    beta: float = Field(
        default=0.1, gt=0
    )  # how far from the adapter it starts from it may go: larger is nearer
    desirable_weight: float | None = Field(default=None, gt=0)
    undesirable_weight: float | None = Field(default=None, gt=0)


class Settings(_Section):
    """What `training sft` and `training kto` read."""

    name: str = Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$")
    output: Path = Path("runs")
    seed: int = 0
    model: Model
    lora: Lora = Lora()
    data: Data
    optimizer: Optimizer = Optimizer()
    batch: Batch = Batch()
    limits: Limits = Limits()
    precision: Literal["bf16", "fp16", "fp32"] = "bf16"
    compile: Literal["off", "default", "reduce-overhead", "max-autotune"] = "off"
    activation_checkpointing: bool = False
    cpu_offload: Literal["none", "activations", "parameters"] = "none"
    distributed: Literal["ddp", "fsdp"] = "ddp"  # how `torchrun` shares the work
    threads: int | None = Field(default=None, ge=1)  # CPU threads of each process
    checkpoint: Checkpoint = Checkpoint()
    evaluate: Evaluate = Evaluate()
    tracking: Tracking = Tracking()
    kto: Kto = Kto()

    @field_validator("compile", mode="before")
    @classmethod
    def _off(cls, value: Any) -> Any:
        return "off" if value is False else value  # YAML reads `off` as false

    @model_validator(mode="after")
    def _together(self) -> Settings:
        if self.cpu_offload == "parameters" and self.distributed != "fsdp":
            raise ValueError("cpu_offload: parameters needs distributed: fsdp")
        if self.model.four_bit and self.distributed == "fsdp":
            raise ValueError("model.four_bit goes with distributed: ddp")
        if self.data.packing and self.data.order == "by-length":
            raise ValueError("data.order: by-length is for rows that are padded; packed rows need no order")
        return self

    def changed(self, **sections: Mapping[str, Any]) -> Settings:
        """The same settings with some keys of some sections replaced."""
        update = {name: getattr(self, name).model_copy(update=dict(new)) for name, new in sections.items()}
        return self.model_copy(update=update)


def find(path: str) -> Path:
    """The file that is meant: as given, or below this package. Raises SettingsError."""
    for place in (Path(path), HERE / path, HERE / "configs" / path):
        if place.is_file():
            return place
    known = ", ".join(sorted(f"configs/{p.name}" for p in (HERE / "configs").glob("*.yaml")))
    raise SettingsError(f"{path}: no such file; there are: {known}")


def read(path: Path, changes: Sequence[str] = ()) -> Settings:
    """The settings in a YAML file, with `key=value` changes (`lora.r=8`). Raises SettingsError."""
    try:
        text = path.read_text(encoding="utf-8")
        data = yaml.safe_load(text) or {}
        lines = _lines(yaml.compose(text, Loader=yaml.SafeLoader))
    except yaml.YAMLError as error:
        raise SettingsError(f"{path}: not YAML: {' '.join(str(error).split())}") from None
    if not isinstance(data, dict):
        raise SettingsError(f"{path}: a table of settings is expected, not {type(data).__name__}")
    for change in changes:
        _set(data, change)
        lines.pop(tuple(change.partition("=")[0].split(".")), None)
    try:
        return Settings.model_validate(data)
    except ValidationError as error:
        first = error.errors()[0]
        place = tuple(str(part) for part in first["loc"])
        line = lines.get(place) or lines.get(place[:-1])
        where = f"{path}:{line}" if line else str(path)
        more = "" if error.error_count() == 1 else f" (and {error.error_count() - 1} more)"
        raise SettingsError(f"{where}: {_message(first, place)}{more}") from None


def _message(error: Any, place: tuple[str, ...]) -> str:
    key = ".".join(place) or "settings"
    if error["type"] == "extra_forbidden":
        near = _nearest(place)
        if near:
            return f"{key}: unknown key; did you mean {near}?"
        beside = ", ".join(known[-1] for known in _keys(Settings) if known[:-1] == place[:-1])
        return f"{key}: unknown key; there are: {beside}"
    message = str(error["msg"]).removeprefix("Value error, ")
    if error["type"] == "missing":
        return f"{key}: is needed"
    return f"{key}: {message[0].lower()}{message[1:]}, not {error['input']!r}" if place else message


def _nearest(place: tuple[str, ...]) -> str | None:
    """The key that was probably meant, wherever it lives."""
    keys = list(_keys(Settings))
    siblings = [key for key in keys if key[:-1] == place[:-1]]
    close = difflib.get_close_matches(place[-1], [key[-1] for key in siblings], 1, 0.6)
    if close:
        return ".".join((*place[:-1], close[0]))
    same = [key for key in keys if key[-1] == place[-1]]
    if not same:
        close = difflib.get_close_matches(place[-1], [key[-1] for key in keys], 1, 0.7)
        same = [key for key in keys if close and key[-1] == close[0]]
    return ".".join(same[0]) if same else None


def _keys(model: type[BaseModel], above: tuple[str, ...] = ()) -> list[tuple[str, ...]]:
    found: list[tuple[str, ...]] = []
    for name, field in model.model_fields.items():
        found.append((*above, name))
        kind = field.annotation
        if isinstance(kind, type) and issubclass(kind, BaseModel):
            found += _keys(kind, (*above, name))
    return found


def _set(data: dict[str, Any], change: str) -> None:
    key, equals, value = change.partition("=")
    if not equals or not key:
        raise SettingsError(f"{change!r}: write key=value, for example lora.r=8")
    *above, last = key.split(".")
    table = data
    for part in above:
        table = table.setdefault(part, {})
        if not isinstance(table, dict):
            raise SettingsError(f"{key}: {part} is not a table")
    try:
        table[last] = yaml.safe_load(value)
    except yaml.YAMLError:
        raise SettingsError(f"{key}: {value!r} is not a YAML value") from None


def _lines(node: yaml.Node | None, above: tuple[str, ...] = ()) -> dict[tuple[str, ...], int]:
    """1-based line of each key."""
    found: dict[tuple[str, ...], int] = {}
    if isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            place = (*above, str(key.value))
            found[place] = key.start_mark.line + 1
            found |= _lines(value, place)
    return found


def to_yaml(settings: Settings) -> str:
    """The settings as YAML: what a run keeps, and resumes with."""
    text: str = yaml.safe_dump(settings.model_dump(mode="json"), sort_keys=False, allow_unicode=True)
    return text
