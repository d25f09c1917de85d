"""A model in this process, through `transformers`, on a CPU or a GPU."""

from __future__ import annotations

import contextlib
import logging
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, TypeVar

import torch
import transformers
from transformers import AutoModelForCausalLM, AutoTokenizer, BitsAndBytesConfig, GenerationConfig

from ptopt.model.backends import attention
from ptopt.model.backends.encoding import answer_ids, check_template, encode_chat, encode_judge
from ptopt.model.backends.loading import base_hash, read_adapter, resolve_base
from ptopt.model.interface import TEMPERATURE, ChatPrompt, JudgePrompt, ModelUnavailableError

log = logging.getLogger(__name__)
_T = TypeVar("_T")

BATCH_TOKENS_CPU = 1024  # larger ones do not fit the caches, and are no faster
BATCH_TOKENS_CUDA = 16384
ANSWERS_AT_ONCE = 8
CLOSE_TIMEOUT = 20.0  # seconds that `close` waits for a running call


class TransformersBackend:
    """A base model, and an adapter if one is given.

    base: as `loading.resolve_base` takes it; None: what the adapter's card says.
    merge: fold the adapter into the weights, which is several times faster on a CPU, where it is the default.
    four_bit: NF4 through bitsandbytes; the adapter then stays beside the weights.
    threads: of torch, for the whole process. batch_tokens: of one forward pass, padding included.
    Calls are serialised. Raises ModelUnavailableError for what cannot be loaded.
    """

    def __init__(
        self,
        base: str | None = None,
        adapter: str | Path | None = None,
        *,
        device: str | None = None,
        merge: bool | None = None,
        four_bit: bool = False,
        threads: int | None = None,
        batch_tokens: int | None = None,
        attention_override: str | None = None,
    ) -> None:
        transformers.utils.logging.disable_progress_bar()
        if threads:
            torch.set_num_threads(threads)
        folder = read_adapter(adapter) if adapter else None
        spec = base or (folder.base if folder else None)
        if not spec:
            raise ModelUnavailableError("no model given: neither a base model nor an adapter")
        self._device = torch.device(device or ("cuda" if torch.cuda.is_available() else "cpu"))
        on_cpu = self._device.type == "cpu"
        self._batch_tokens = batch_tokens or (BATCH_TOKENS_CPU if on_cpu else BATCH_TOKENS_CUDA)
        self._lock = threading.Lock()
        self._closed = False
        path = resolve_base(spec)
        if folder and folder.card.get("base_hash") not in (None, base_hash(path)):
            raise ModelUnavailableError(
                f"{folder.path}: the adapter was trained on another base model than {spec}"
            )
        dtype = compute_dtype(self._device)
        try:
            chosen = attention.select(self._device, dtype, attention_override)
            self._tokenizer = AutoTokenizer.from_pretrained(
                path, local_files_only=True, trust_remote_code=False
            )
            self._yes, self._no = answer_ids(self._tokenizer)
            check_template(self._tokenizer)
            model = AutoModelForCausalLM.from_pretrained(
                path,
                dtype=dtype,
                attn_implementation=chosen.implementation,
                quantization_config=_nf4(dtype) if four_bit else None,
                device_map={"": self._device},
                use_safetensors=True,
                local_files_only=True,
                trust_remote_code=False,
            )
            if folder:
                model = _with_adapter(
                    model, folder.path, merge=not four_bit and (on_cpu if merge is None else merge)
                )
        except ModelUnavailableError:
            raise
        except Exception as error:  # what a broken file raises depends on who reads it
            raise _unavailable(f"{spec} cannot be loaded", error) from None
        self._model = model.eval().requires_grad_(False)
        config = self._model.config.get_text_config()
        self._context = int(config.max_position_embeddings)
        self._stop = _stop_ids(self._tokenizer, self._model.generation_config)
        self._pad = (
            self._tokenizer.pad_token_id if self._tokenizer.pad_token_id is not None else self._stop[0]
        )
        self._model.generation_config = GenerationConfig(eos_token_id=self._stop, pad_token_id=self._pad)
        self._vocab_size = int(config.vocab_size)
        self._decoder, self._towards_yes, self._bias = _answer_head(self._model, self._yes, self._no)
        self._grammars: Any = None
        with_adapter = f" + {folder.name} ({folder.served_name})" if folder else ""
        self._name = f"{spec}{with_adapter}, transformers"
        log.info("loaded %s on %s in %s", self._name, self._device, "4 bit" if four_bit else dtype)

    @property
    def name(self) -> str:
        return self._name

    def score(self, prompts: Sequence[JudgePrompt]) -> list[tuple[float, ...]]:
        """One forward pass a batch. Of the vocabulary only the two answers are computed, in fp32: logits in
        bf16 come in steps of 1/8."""
        rows = [encode_judge(self._tokenizer, prompt) for prompt in prompts]
        found: list[tuple[float, ...]] = [()] * len(rows)
        with self._running(), torch.inference_mode():
            for batch in _batches(rows, lambda row: len(row[0]), self._batch_tokens):
                self._check_open()
                # Padding stands on the right, where causal attention does not look: no mask is needed, and
                # positions count from the first token of each row.
                width = self._fits(max(len(rows[i][0]) for i in batch))
                padded = [rows[i][0] + [self._pad] * (width - len(rows[i][0])) for i in batch]
                hidden = self._decoder(torch.tensor(padded, device=self._device), use_cache=False)[0]
                row = [n for n, i in enumerate(batch) for _ in rows[i][1]]
                at = [position for i in batch for position in rows[i][1]]
                log_odds = iter((hidden[row, at].float() @ self._towards_yes + self._bias).tolist())
                for i in batch:
                    found[i] = tuple(next(log_odds) for _ in rows[i][1])
        return found

    def complete(self, prompts: Sequence[ChatPrompt]) -> list[str]:
        rows = [encode_chat(self._tokenizer, prompt) for prompt in prompts]
        found = [""] * len(rows)
        # One limit and one seed, and all or none with a schema.
        groups: dict[tuple[int, int | None, bool], list[int]] = {}
        for i, prompt in enumerate(prompts):
            groups.setdefault((prompt.max_tokens, prompt.seed, prompt.schema is not None), []).append(i)
        with self._running(), torch.inference_mode():
            for (limit, seed, _), members in groups.items():
                room = limit + max(len(rows[i]) for i in members)
                size = min(ANSWERS_AT_ONCE, max(1, 4 * self._batch_tokens // room))
                members.sort(key=lambda i: len(rows[i]))
                for begin in range(0, len(members), size):
                    batch = members[begin : begin + size]
                    texts = self._generate(
                        [rows[i] for i in batch], [prompts[i].schema for i in batch], limit, seed
                    )
                    for i, text in zip(batch, texts, strict=True):
                        found[i] = text
        return found

    def close(self) -> None:
        """A running call ends after its batch or token: a thread that is still in torch would abort the exiting process."""
        self._closed = True
        if not self._lock.acquire(timeout=CLOSE_TIMEOUT):
            log.warning("%s hangs, and is left to the end of the process", self._name)
            return
        try:
            self._model = self._decoder = self._grammars = None
        finally:
            self._lock.release()
        if self._device.type == "cuda":
            torch.cuda.empty_cache()

    def _generate(self, rows: list[list[int]], schemas: list[Any], limit: int, seed: int | None) -> list[str]:
        width = max(map(len, rows))
        self._fits(width + limit)
        ids = torch.tensor([[self._pad] * (width - len(row)) + row for row in rows], device=self._device)
        mask = torch.tensor([[0] * (width - len(row)) + [1] * len(row) for row in rows], device=self._device)
        processors = []
        if schemas[0] is not None:
            processors.append(self._compiled().processor(schemas, width, limit))
        drawn = {} if seed is None else {"do_sample": True, "temperature": TEMPERATURE}
        with _seeded(seed, self._device):
            out = self._model.generate(
                ids,
                attention_mask=mask,
                max_new_tokens=limit,
                logits_processor=processors,
                stopping_criteria=[self._stop_when_closed],
                **{"do_sample": False, **drawn},
            )
        self._check_open()
        return list(self._tokenizer.batch_decode(out[:, width:], skip_special_tokens=True))

    def _stop_when_closed(self, ids: torch.Tensor, scores: object, **_: object) -> torch.Tensor:
        return torch.full((ids.shape[0],), self._closed, device=ids.device)

    def _check_open(self) -> None:
        if self._closed:
            raise ModelUnavailableError("the model was closed")

    def _compiled(self) -> Any:
        if self._grammars is None:
            from ptopt.model.backends.constrain import Grammars

            self._grammars = Grammars(self._tokenizer, self._vocab_size, self._stop)
        return self._grammars

    def _fits(self, tokens: int) -> int:
        if tokens > self._context:
            raise ModelUnavailableError(
                f"a prompt needs {tokens:,} tokens, the model reads {self._context:,}"
            )
        return tokens

    def _running(self) -> _Running:
        return _Running(self)


class _Running:
    """One call at a time, on an open model; an error of torch becomes a ModelUnavailableError."""

    def __init__(self, backend: TransformersBackend) -> None:
        self._backend = backend

    def __enter__(self) -> None:
        self._backend._lock.acquire()
        try:
            self._backend._check_open()
        except ModelUnavailableError:
            self._backend._lock.release()
            raise

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        self._backend._lock.release()
        if isinstance(error, RuntimeError | ValueError):  # out of memory is a RuntimeError too
            raise _unavailable("the model failed", error) from error


@contextlib.contextmanager
def _seeded(seed: int | None, device: torch.device) -> Iterator[None]:
    """Random numbers of this seed, without touching those of the process; None: as they are."""
    if seed is None:
        yield
        return
    with torch.random.fork_rng([device] if device.type == "cuda" else []):
        torch.manual_seed(seed)
        yield


def compute_dtype(device: torch.device) -> torch.dtype:
    """bf16 where the hardware multiplies it (on CPUs: AVX512_BF16 or AMX; measured 2 times faster), else fp32."""
    if device.type == "cuda":
        return torch.bfloat16 if torch.cuda.is_bf16_supported() else torch.float16
    fast = torch.cpu._is_avx512_bf16_supported() or torch.cpu._is_amx_tile_supported()
    return torch.bfloat16 if fast else torch.float32


def _nf4(dtype: torch.dtype) -> BitsAndBytesConfig:
    return BitsAndBytesConfig(
        load_in_4bit=True,
        bnb_4bit_quant_type="nf4",
        bnb_4bit_compute_dtype=dtype,
        bnb_4bit_use_double_quant=True,
    )


def _with_adapter(model: Any, path: Path, *, merge: bool) -> Any:
    from peft import PeftModel

    wrapped = PeftModel.from_pretrained(model, str(path), is_trainable=False)
    return wrapped.merge_and_unload() if merge else wrapped


def _answer_head(model: Any, yes: int, no: int) -> tuple[Any, torch.Tensor, float]:
    """The layers before the head, and the vector (and bias) that makes logit(yes) - logit(no) of their output."""
    config = model.config.get_text_config()
    for name in ("final_logit_softcapping", "logits_scaling", "logit_scale"):
        if getattr(config, name, None) not in (None, 1, 1.0):
            raise ModelUnavailableError(f"models with {name} are not supported")
    plain = model.get_base_model() if hasattr(model, "get_base_model") else model
    head = plain.get_output_embeddings()
    weight, bias = head.weight, getattr(head, "bias", None)
    offset = float(bias[yes] - bias[no]) if bias is not None else 0.0
    return plain.get_decoder(), weight[yes].float() - weight[no].float(), offset


def _stop_ids(tokenizer: Any, generation: Any) -> list[int]:
    of_model = generation.eos_token_id if generation is not None else None
    several = of_model if isinstance(of_model, list) else [of_model]
    ids = [i for i in dict.fromkeys([tokenizer.eos_token_id, *several]) if i is not None]
    if not ids:
        raise ModelUnavailableError("the tokenizer has no end-of-text token")
    return ids


def _batches(rows: Sequence[_T], size: Callable[[_T], int], limit: int) -> Iterator[list[int]]:
    """Indices, rows of like length together, so that a batch holds at most `limit` padded tokens (or one row)."""
    batch: list[int] = []
    for i in sorted(range(len(rows)), key=lambda i: size(rows[i])):
        if batch and size(rows[i]) * (len(batch) + 1) > limit:
            yield batch
            batch = []
        batch.append(i)
    if batch:
        yield batch


def _unavailable(what: str, error: BaseException) -> ModelUnavailableError:
    why = str(error).strip().partition("\n")[0]
    return ModelUnavailableError(f"{what} ({type(error).__name__}: {why:.200})")
