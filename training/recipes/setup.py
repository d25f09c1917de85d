"""From settings to a model, a tokenizer and trainer arguments; and which settings this machine cannot apply."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import torch
from accelerate import PartialState
from peft import LoraConfig, PeftModel
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer, BitsAndBytesConfig

from ptopt.model.backends import attention
from ptopt.model.backends.encoding import check_template
from ptopt.model.backends.loading import base_hash, read_adapter, resolve_base
from training.recipes.run import Run
from training.recipes.settings import Settings, SettingsError

_DTYPES = {"bf16": torch.bfloat16, "fp16": torch.float16, "fp32": torch.float32}


class Setup:
    """The settings as this machine can apply them. `notes` says what is not applied, and why."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.cuda = torch.cuda.is_available()
        self.processes = PartialState(cpu=not self.cuda).num_processes
        self.notes: list[str] = []
        self.precision = settings.precision
        if not self.cuda:
            self._on_cpu(settings)
        elif settings.precision == "bf16" and not torch.cuda.is_bf16_supported(including_emulation=False):
            self.precision = "fp16"
            self.notes.append("precision bf16: this GPU has none; fp16 with a loss scaler is used")
        self.dtype = _DTYPES[self.precision if settings.model.dtype == "auto" else settings.model.dtype]
        if self.processes == 1:
            offload = ", cpu_offload" if settings.cpu_offload == "parameters" and self.cuda else ""
            self.notes.append(
                f"{settings.distributed}{offload}: one process; start with torchrun to use several"
            )
        elif settings.distributed == "fsdp" and not self.cuda:
            self.notes.append("fsdp: no CUDA device; ddp is used")
        if settings.batch.auto and self.processes > 1:
            self.notes.append(
                "batch.auto: with several processes an out-of-memory ends the run; set batch.size lower"
            )
        device = PartialState().device
        wanted = None if settings.model.attention == "auto" else settings.model.attention
        try:
            chosen = attention.select(device, self.dtype, wanted)
        except ValueError as error:
            raise SettingsError(f"model.attention: {error}") from None
        self.attention = chosen.implementation
        if self.attention == "sdpa" and wanted is None:
            self.notes.append(f"flash attention: {chosen.reason}; {self.attention} is used")
        self.base = resolve_base(settings.model.base)
        self.base_hash = base_hash(self.base)
        if not settings.data.workers:
            self.notes.append("data.prefetch: no workers that could (data.workers is 0)")
        if settings.model.adapter is not None:
            self.notes.append("lora: the adapter that is trained further has its own shape")
        self.parent = read_adapter(settings.model.adapter) if settings.model.adapter else None

    def _on_cpu(self, settings: Settings) -> None:
        if settings.threads is not None:
            torch.set_num_threads(settings.threads)
        without = {
            "data.pin": settings.data.pin,
            "model.kernels": settings.model.kernels,
            "cpu_offload": settings.cpu_offload != "none",
            "TF32": True,
        }
        named = ", ".join(name for name, wanted in without.items() if wanted)
        self.notes.append(f"{named}: no CUDA device")
        if settings.precision == "fp16":
            self.precision = "bf16"
            self.notes.append("precision fp16: no CUDA device; bf16 is used")
        native = torch.cpu._is_avx512_bf16_supported() or torch.cpu._is_amx_tile_supported()
        if self.precision == "bf16" and not native:
            self.notes.append("precision bf16: this CPU emulates it; fp32 may be faster")
        if settings.optimizer.name.startswith("paged"):
            self.notes.append(
                f"{settings.optimizer.name}: no GPU memory to page out of; its states stay where they are"
            )
        if settings.compile != "off":
            self.notes.append(
                "compile: applied, but compiling takes minutes on a CPU and gains a few percent"
            )
        if settings.compile in ("reduce-overhead", "max-autotune"):
            self.notes.append(f"compile {settings.compile}: CUDA graphs need a CUDA device")

    def tokenizer(self) -> Any:
        tokenizer = AutoTokenizer.from_pretrained(self.base, local_files_only=True, trust_remote_code=False)
        if tokenizer.pad_token_id is None:
            tokenizer.pad_token = tokenizer.eos_token
        try:
            check_template(tokenizer)
        except ValueError as error:
            raise SettingsError(f"model.base: {error}") from None
        return tokenizer

    def model(self) -> Any:
        """The frozen base model; a PEFT model where an adapter is to be trained further."""
        settings = self.settings.model
        options: dict[str, Any] = {"use_kernels": True} if settings.kernels and self.cuda else {}
        if settings.four_bit:
            compute = torch.bfloat16 if self.precision == "bf16" else self.dtype
            options["quantization_config"] = BitsAndBytesConfig(
                load_in_4bit=True,
                bnb_4bit_quant_type="nf4",
                bnb_4bit_use_double_quant=True,
                bnb_4bit_compute_dtype=compute,
            )
            options["device_map"] = {"": PartialState().device}
        model = AutoModelForCausalLM.from_pretrained(
            self.base,
            dtype=self.dtype,
            attn_implementation=self.attention,
            use_safetensors=True,
            local_files_only=True,
            trust_remote_code=False,
            **options,
        )
        model.config.use_cache = False
        if self.parent is not None:
            return PeftModel.from_pretrained(model, self.parent.path, is_trainable=True)
        return model

    def lora(self) -> LoraConfig | None:
        """None where an adapter is trained further: it brings its own."""
        if self.parent is not None:
            return None
        lora = self.settings.lora
        return LoraConfig(
            r=lora.r,
            lora_alpha=lora.alpha,
            lora_dropout=lora.dropout,
            target_modules=list(lora.targets),
            layers_to_transform=self._last_layers(lora.last),
            bias="none",
            task_type="CAUSAL_LM",
        )

    def _last_layers(self, number: int | None) -> list[int] | None:
        if number is None:
            return None
        layers = int(
            AutoConfig.from_pretrained(self.base, local_files_only=True).get_text_config().num_hidden_layers
        )
        return list(range(max(0, layers - number), layers))

    def arguments(self, run: Run) -> dict[str, Any]:
        """Keyword arguments that SFTConfig and KTOConfig share."""
        s = self.settings
        workers = s.data.workers
        compiled = s.compile if self.cuda or s.compile == "off" else "default"
        sharded = s.distributed == "fsdp" and self.processes > 1 and self.cuda
        return {
            "output_dir": str(run.scratch),  # whole checkpoints are moved out of it
            "seed": s.seed,
            "use_cpu": not self.cuda,
            "per_device_train_batch_size": s.batch.size,
            "per_device_eval_batch_size": s.batch.size,
            "gradient_accumulation_steps": s.batch.accumulation,
            "num_train_epochs": s.limits.epochs,
            "max_steps": s.limits.steps or -1,
            "learning_rate": s.optimizer.lr,
            "lr_scheduler_type": s.optimizer.schedule,
            "warmup_steps": s.optimizer.warmup,
            "optim": s.optimizer.name,
            "weight_decay": s.optimizer.weight_decay,
            "max_grad_norm": s.optimizer.max_grad_norm,
            "bf16": self.precision == "bf16",
            "fp16": self.precision == "fp16",
            "tf32": True if self.cuda and torch.cuda.get_device_capability() >= (8, 0) else None,
            "torch_compile": compiled != "off",
            "torch_compile_mode": compiled if compiled not in ("off", "default") else None,
            "gradient_checkpointing": s.activation_checkpointing,
            "activation_offloading": s.cpu_offload == "activations" and self.cuda,
            "max_length": s.data.max_tokens,
            "pad_to_multiple_of": s.data.multiple_of,
            "fsdp": True if sharded else None,
            "fsdp_config": {"version": 2, "cpu_offload": s.cpu_offload == "parameters"} if sharded else None,
            "ddp_find_unused_parameters": False,
            "dataloader_num_workers": workers,
            "dataloader_prefetch_factor": s.data.prefetch if workers else None,
            "dataloader_persistent_workers": workers > 0,
            "dataloader_pin_memory": s.data.pin and self.cuda,
            "logging_steps": s.tracking.every,
            "logging_nan_inf_filter": False,
            "eval_strategy": "steps" if s.evaluate.rows else "no",
            "eval_steps": s.evaluate.every,
            "save_strategy": "steps",
            "save_steps": s.checkpoint.every,
            "report_to": "none",
            "disable_tqdm": True,
            "log_level": "warning",
        }


def quiet() -> None:
    """Libraries log warnings and errors only."""
    import datasets
    import transformers

    transformers.utils.logging.disable_progress_bar()
    datasets.disable_progress_bars()
    for name in ("trl", "accelerate", "httpx", "alembic", "mlflow"):
        logging.getLogger(name).setLevel(logging.WARNING)
    logging.getLogger("bitsandbytes").setLevel(
        logging.ERROR
    )  # it looks for kernels on the hub; it works without


def broadcast(value: Any) -> Any:
    """The value of the first process, in all processes."""
    state = PartialState()
    if state.num_processes == 1:
        return value
    from accelerate.utils import broadcast_object_list

    return broadcast_object_list([value])[0]


def open_run(settings: Settings, resume: Path | None) -> Run:
    """The folder of a new run, or of the one that goes on; the same in all processes."""
    if resume is None:
        resume = Run.new(settings).folder if PartialState().is_main_process else None
    return Run(Path(broadcast(str(resume))))
