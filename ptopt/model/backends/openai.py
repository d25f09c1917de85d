"""A model behind a server that speaks the OpenAI protocol: vLLM, llama.cpp, and those that follow them."""

from __future__ import annotations

import json
import logging
import math
import os
import threading
from collections.abc import Callable, Iterable, Sequence
from itertools import accumulate
from typing import Any, Literal, TypeVar

from ptopt.model.backends.encoding import NO, TEMPLATE_INPUTS, YES
from ptopt.model.backends.http import Http, RefusedError
from ptopt.model.backends.logprobs import TOP, log_odds, said_odds, word_odds
from ptopt.model.backends.parallel import Threads, ThreadsClosedError
from ptopt.model.backends.usage import Usage
from ptopt.model.interface import TEMPERATURE, ChatPrompt, JudgePrompt, ModelUnavailableError

log = logging.getLogger(__name__)

API_KEY = "PTOPT_MODEL_API_KEY"
Dialect = Literal["auto", "vllm", "llama.cpp", "openai"]
_LLAMA_OWNERS = frozenset({"llamacpp", "me"})  # llama-server; llama_cpp.server
_CHARACTERS_A_TOKEN = 32
_P = TypeVar("_P")
_A = TypeVar("_A")


class OpenAIBackend:
    """`model` as the server at `url` names it: the base model, or an adapter that was loaded into it.

    dialect: how a JSON schema is asked for; "auto" looks at who the server says it is. timeout: seconds for one
    attempt of one request; concurrency: requests under way at once. The key comes from the environment where it
    is not given. No request is sent before the first call; a server that is back is used again.
    """

    def __init__(
        self,
        url: str,
        model: str,
        *,
        api_key: str | None = None,
        dialect: Dialect = "auto",
        timeout: float = 20.0,
        concurrency: int = 64,
        attempts: int = 3,
    ) -> None:
        key = api_key or os.environ.get(API_KEY)
        self._http = Http(url, api_key=key, timeout=timeout, attempts=attempts, connections=concurrency)
        self._model = model
        self._dialect = dialect
        self._connected = False
        self._logprob_options: dict[str, Any] = {}  # further fields of a judge request
        self._connecting = threading.Lock()
        self.usage = Usage()
        self._threads = Threads(concurrency)
        self._together = False  # may a request hold several prompts?

    @property
    def name(self) -> str:
        return f"{self._model}, served"

    def score(self, prompts: Sequence[JudgePrompt]) -> list[tuple[float, ...]]:
        """All questions at once: a server that caches prefixes reads what they share once. Those of a prompt are one
        request, where the server takes several texts in one.
        """
        if prompts:
            self._connect()
        if self._together:
            return self._map(self._scores, prompts)
        scores = iter(
            self._map(self._score, (text for prompt in prompts for text in accumulate(prompt.pieces)))
        )
        return [tuple(value for _ in prompt.pieces for value in next(scores)) for prompt in prompts]

    def complete(self, prompts: Sequence[ChatPrompt]) -> list[str]:
        if prompts:
            self._connect()
        return self._map(self._complete, prompts)

    def yes_or_no(self, prompts: Iterable[ChatPrompt]) -> list[float]:
        """The log-odds of yes over no as the first word of each answer, all at once."""
        self._connect()
        return self._map(self._yes_or_no, prompts)

    def close(self) -> None:
        self._threads.close()
        self._http.close()

    def served_models(self) -> list[str]:
        """The names that the server answers to, adapters included."""
        return [str(model["id"])[:500] for model in self._models()]

    def load_adapter(self, name: str, path: str) -> None:
        """Have vLLM load the adapter folder at `path` (on the server's disk) as `name`. It may be loaded already.

        A name must never mean other weights, so name it by its content.
        """
        try:
            self._http.text("POST", "/v1/load_lora_adapter", {"lora_name": name, "lora_path": path})
        except RefusedError as error:
            if not (error.status == 400 and name in self.served_models()):
                raise ModelUnavailableError(
                    f"the server cannot load the adapter {name}: {error.detail}"
                ) from None

    def unload_adapter(self, name: str) -> None:
        """Unload the adapter from the server; fine where it is not loaded."""
        try:
            self._http.text("POST", "/v1/unload_lora_adapter", {"lora_name": name})
        except RefusedError as error:
            if name in self.served_models():
                raise ModelUnavailableError(f"the server cannot unload {name}: {error.detail}") from None

    def _scores(self, prompt: JudgePrompt) -> tuple[float, ...]:
        texts = list(accumulate(prompt.pieces))
        if self._together and len(texts) > 1:
            try:
                return self._score(texts)
            except RefusedError:
                self._together = False
        return tuple(self._score(text)[0] for text in texts)

    def _score(self, text: str | list[str]) -> tuple[float, ...]:
        """Of each text."""
        body = {"model": self._model, "prompt": text, "max_tokens": 1, "temperature": 0, "logprobs": TOP}
        answer = self._http.json("POST", "/v1/completions", body | self._logprob_options)
        self.usage.count(answer.get("usage"))
        if isinstance(text, str):
            return (log_odds(_top_logprobs(_choice(answer).get("logprobs")), YES, NO),)
        found = [_choice(answer, at).get("logprobs") for at in range(len(text))]
        return tuple(log_odds(_top_logprobs(one), YES, NO) for one in found)

    def _yes_or_no(self, prompt: ChatPrompt) -> float:
        body = self._chat(prompt) | {"logprobs": True, "top_logprobs": TOP}
        choice = self._choice_of("/v1/chat/completions", body)
        try:
            return word_odds(_top_logprobs(choice.get("logprobs")))
        except ModelUnavailableError:  # not every server returns them; some models answer with a word alone
            message = choice.get("message")
            return said_odds(message.get("content") if isinstance(message, dict) else None)

    def _complete(self, prompt: ChatPrompt) -> str:
        body = self._chat(prompt)
        if prompt.schema is not None:
            body["response_format"] = self._response_format(dict(prompt.schema))
        message = self._choice_of("/v1/chat/completions", body).get("message")
        text = message.get("content") if isinstance(message, dict) else None
        if not isinstance(text, str):
            raise ModelUnavailableError("the model server answered without a text")
        if len(text) > prompt.max_tokens * _CHARACTERS_A_TOKEN:
            raise ModelUnavailableError("the model server answered with more than was requested")
        return text if prompt.schema is None else _strict_json(text)

    def _chat(self, prompt: ChatPrompt) -> dict[str, Any]:
        body: dict[str, Any] = {
            "model": self._model,
            "messages": [
                {"role": "system", "content": prompt.system},
                {"role": "user", "content": prompt.user},
            ],
            "max_tokens": prompt.max_tokens,
            "temperature": 0,
        }
        if prompt.seed is not None:
            body |= {"temperature": TEMPERATURE, "seed": prompt.seed}
        if self._dialect == "vllm":
            body["chat_template_kwargs"] = dict(TEMPLATE_INPUTS)
        return body

    def _choice_of(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        """The first choice; what the request took is counted."""
        answer = self._http.json("POST", path, body)
        self.usage.count(answer.get("usage"))
        return _choice(answer)

    def _response_format(self, schema: dict[str, Any]) -> dict[str, Any]:
        if self._dialect == "llama.cpp":
            return {"type": "json_object", "schema": schema}
        return {"type": "json_schema", "json_schema": {"name": "answer", "schema": schema, "strict": True}}

    def _map(self, call: Callable[[_P], _A], prompts: Iterable[_P]) -> list[_A]:
        try:
            return self._threads.map(call, prompts)
        except ThreadsClosedError:
            raise ModelUnavailableError("the model was closed") from None

    def _connect(self) -> None:
        """Once: check that the server has the model (llama.cpp answers for any name), and find its dialect."""
        with self._connecting:
            if self._connected:
                return
            models = self._models()
            mine = [model for model in models if model["id"] == self._model]
            if not mine:
                raise ModelUnavailableError(f"the model server does not serve {self._model!r:.100}")
            if self._dialect == "auto":
                owner = mine[0].get("owned_by")
                self._dialect = (
                    "llama.cpp" if owner in _LLAMA_OWNERS else "vllm" if owner == "vllm" else "openai"
                )
            if self._dialect == "vllm":
                self._logprob_options = self._answer_token_options()
                self._together = True
            self._connected = True

    def _answer_token_options(self) -> dict[str, Any]:
        """vLLM returns the log-probabilities of the two answers themselves when a request names their token ids."""
        ids = []
        for word in (YES, NO):
            body = {"model": self._model, "prompt": word, "add_special_tokens": False}
            try:
                tokens = self._http.json("POST", "/tokenize", body).get("tokens")
            except RefusedError:  # another server of the protocol: the most likely tokens are used
                return {}
            if not isinstance(tokens, list) or len(tokens) != 1 or not isinstance(tokens[0], int):
                raise ModelUnavailableError(
                    f"the served model has no single token for {word!r}: it cannot judge"
                )
            ids += tokens
        return {"logprob_token_ids": ids}

    def _models(self) -> list[dict[str, Any]]:
        data = self._http.json("GET", "/v1/models").get("data")
        if not isinstance(data, list):
            raise ModelUnavailableError("the model server does not list its models")
        return [model for model in data if isinstance(model, dict) and isinstance(model.get("id"), str)]


def _strict_json(text: str) -> str:
    """The same JSON without the bare line breaks that llama.cpp's grammar lets into strings."""
    try:
        return json.dumps(json.loads(text, strict=False))
    except (ValueError, RecursionError):
        return text


def _choice(answer: dict[str, Any], at: int = 0) -> dict[str, Any]:
    """The answer to the prompt of this number."""
    choices = answer.get("choices")
    for choice in choices if isinstance(choices, list) else []:
        if isinstance(choice, dict) and choice.get("index", 0) == at:
            return choice
    raise ModelUnavailableError("the model server answered without a choice")


def _top_logprobs(logprobs: Any) -> dict[str, float]:
    """The most likely first tokens, in the form of /v1/completions or (llama-server) that of chats."""
    found: list[tuple[Any, Any]] = []
    if isinstance(logprobs, dict):
        first = logprobs.get("top_logprobs") or logprobs.get("content")
        entry = first[0] if isinstance(first, list) and first else None
        if isinstance(entry, dict) and isinstance(entry.get("top_logprobs"), list):
            found = [(e.get("token"), e.get("logprob")) for e in entry["top_logprobs"] if isinstance(e, dict)]
        elif isinstance(entry, dict):
            found = list(entry.items())
    top = {
        token: float(value)
        for token, value in found
        if isinstance(token, str) and isinstance(value, int | float) and math.isfinite(value)
    }
    if not top:
        raise ModelUnavailableError("the model server does not return log-probabilities, which judging needs")
    return top
