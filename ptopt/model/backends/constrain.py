"""A JSON schema enforced while `transformers` generates: xgrammar says which tokens may come next.

Every answer is whole: when few tokens are left, whatever closes a string, a list or an object goes before
whatever the model would rather say.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import torch
import xgrammar
from transformers import LogitsProcessor

RESERVE = 96  # tokens kept to close what is open; a finding has about 50 that are not its own words
_CLOSING = ('"', "]", "}")  # in this order: inside a string the brackets are just characters


class Grammars:
    """Compiled schemas of one tokenizer. The compiler keeps what it compiled."""

    def __init__(self, tokenizer: Any, vocab_size: int, stop: Sequence[int]) -> None:
        info = xgrammar.TokenizerInfo.from_huggingface(
            tokenizer, vocab_size=vocab_size, stop_token_ids=list(stop)
        )
        self._compiler = xgrammar.GrammarCompiler(info, max_threads=1, cache_limit_bytes=64 << 20)
        encoded = [tokenizer(text, add_special_tokens=False)["input_ids"] for text in _CLOSING]
        self._closing = [*stop, *(ids[0] for ids in encoded if len(ids) == 1)]

    def processor(self, schemas: Sequence[Mapping[str, Any]], start: int, limit: int) -> Constrained:
        """For one batch: a schema a row, the width of the prompts, and the most tokens an answer may have.

        Raises ValueError for a schema that cannot be enforced.
        """
        try:
            compiled = [
                self._compiler.compile_json_schema(json.dumps(schema), any_whitespace=False)
                for schema in schemas
            ]
        except RuntimeError as error:
            raise ValueError(f"the schema cannot be enforced: {error!s:.200}") from None
        matchers = [xgrammar.GrammarMatcher(grammar) for grammar in compiled]
        return Constrained(matchers, self._closing, start, limit)


class Constrained(LogitsProcessor):  # type: ignore[misc]
    """Serves one call of `generate`."""

    def __init__(
        self, matchers: list[xgrammar.GrammarMatcher], closing: Sequence[int], start: int, limit: int
    ) -> None:
        self._matchers = matchers
        self._closing = closing
        self._start = start
        self._close_from = limit - RESERVE

    def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        """The scores (rows, vocabulary), with -inf for what the grammar does not allow next."""
        written = input_ids.shape[1] - self._start
        mask = xgrammar.allocate_token_bitmask(len(self._matchers), scores.shape[1])
        for row, matcher in enumerate(self._matchers):
            if written and not matcher.is_terminated():
                matcher.accept_token(int(input_ids[row, -1]))
            if matcher.is_terminated():  # the row is padded until the others end
                mask[row] = -1
                continue
            matcher.fill_next_token_bitmask(mask, row)
            if written >= self._close_from:
                _prefer(mask[row], self._closing)
        xgrammar.apply_token_bitmask_inplace(scores, mask.to(scores.device))
        return scores


def _prefer(allowed: torch.Tensor, ids: Sequence[int]) -> None:
    """Leave only the first of `ids` that is allowed; all that was allowed where none is. One bit a token."""
    for token in ids:
        word, bit = divmod(token, 32)
        if int(allowed[word]) >> bit & 1:
            allowed.zero_()
            allowed[word] = 1 << bit if bit < 31 else -(1 << 31)
            return
