"""A model in this process through vLLM: for workers with a GPU of their own.

vLLM starts processes and reads its settings from the environment when it is imported: use it in a process that
serves nothing else.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from vllm import LLM, SamplingParams, TokensPrompt
from vllm.lora.request import LoRARequest
from vllm.sampling_params import StructuredOutputsParams

from ptopt.model.backends.encoding import answer_ids, check_template, encode_chat, encode_judge
from ptopt.model.backends.loading import base_hash, rank, read_adapter, resolve_base
from ptopt.model.backends.logprobs import log_odds
from ptopt.model.interface import TEMPERATURE, ChatPrompt, JudgePrompt, ModelUnavailableError


class VLLMBackend:
    """A base model, and an adapter if one is given, which stays beside the weights.

    base: as `loading.resolve_base` takes it; None: what the adapter's card says. context: the longest prompt and
    answer together, in tokens. engine: further settings of `vllm.LLM`. Calls are serialised.
    Raises ModelUnavailableError for what cannot be loaded.
    """

    def __init__(
        self,
        base: str | None = None,
        adapter: str | Path | None = None,
        *,
        context: int = 4096,
        **engine: Any,
    ) -> None:
        folder = read_adapter(adapter) if adapter else None
        spec = base or (folder.base if folder else None)
        if not spec:
            raise ModelUnavailableError("no model given: neither a base model nor an adapter")
        path = resolve_base(spec)
        if folder and folder.card.get("base_hash") not in (None, base_hash(path)):
            raise ModelUnavailableError(
                f"{folder.path}: the adapter was trained on another base model than {spec}"
            )
        with_adapter = {"enable_lora": True, "max_loras": 1, "max_lora_rank": rank(folder)} if folder else {}
        settings = {
            "max_model_len": context,
            "enable_prefix_caching": True,
            "structured_outputs_config": {"backend": "xgrammar", "disable_any_whitespace": True},
            "load_format": "safetensors",
            "trust_remote_code": False,
            "disable_log_stats": True,
            **with_adapter,
            **engine,
        }
        try:
            self._llm: Any = LLM(model=str(path), **settings)
            self._tokenizer = self._llm.get_tokenizer()
            self._yes, self._no = answer_ids(self._tokenizer)
            check_template(self._tokenizer)
        except (OSError, ValueError, RuntimeError, ImportError) as error:
            why = str(error).strip().partition("\n")[0]
            raise ModelUnavailableError(
                f"{spec} cannot be loaded ({type(error).__name__}: {why:.200})"
            ) from None
        self._lora = LoRARequest(folder.served_name, 1, str(folder.path)) if folder else None
        named = f" + {folder.name} ({folder.served_name})" if folder else ""
        self._name = f"{spec}{named}, vllm"
        self._lock = threading.Lock()

    @property
    def name(self) -> str:
        return self._name

    def score(self, prompts: Sequence[JudgePrompt]) -> list[tuple[float, ...]]:
        """One request a question; the engine has the common prefix cached."""
        rows = [encode_judge(self._tokenizer, prompt) for prompt in prompts]
        wanted = SamplingParams(
            max_tokens=1, temperature=0.0, logprobs=2, logprob_token_ids=[self._yes, self._no]
        )
        outputs = iter(
            self._run([ids[: position + 1] for ids, positions in rows for position in positions], wanted)
        )
        return [tuple(self._log_odds(next(outputs)) for _ in positions) for _, positions in rows]

    def complete(self, prompts: Sequence[ChatPrompt]) -> list[str]:
        params = [
            SamplingParams(
                max_tokens=prompt.max_tokens,
                temperature=0.0 if prompt.seed is None else TEMPERATURE,
                seed=prompt.seed,
                structured_outputs=StructuredOutputsParams(json=dict(prompt.schema))
                if prompt.schema
                else None,
            )
            for prompt in prompts
        ]
        outputs = self._run([encode_chat(self._tokenizer, prompt) for prompt in prompts], params)
        return [str(output.outputs[0].text) for output in outputs]

    def close(self) -> None:
        with self._lock:
            if self._llm is not None:
                self._llm.llm_engine.engine_core.shutdown()
                self._llm = None

    def _run(self, rows: Sequence[list[int]], params: Any) -> list[Any]:
        if not rows:
            return []
        with self._lock:
            if self._llm is None:
                raise ModelUnavailableError("the model was closed")
            try:
                return list(
                    self._llm.generate(
                        [TokensPrompt(prompt_token_ids=ids) for ids in rows],
                        params,
                        lora_request=self._lora,
                        use_tqdm=False,
                    )
                )
            except Exception as error:  # the engine's own errors share no base class
                why = str(error).strip().partition("\n")[0]
                raise ModelUnavailableError(f"vLLM failed ({type(error).__name__}: {why:.200})") from error

    def _log_odds(self, output: Any) -> float:
        top = {token: found.logprob for token, found in output.outputs[0].logprobs[0].items()}
        return log_odds(top, self._yes, self._no)
