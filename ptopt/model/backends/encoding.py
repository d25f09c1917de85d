"""From prompts to token ids, the same for training and for serving, without torch.

A tokenizer is one of `transformers`; it is handed in, so that nothing heavy is imported here.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from ptopt.model.interface import ChatPrompt, JudgePrompt

YES, NO = " yes", " no"
TEMPLATE_INPUTS: Mapping[str, object] = MappingProxyType(
    {"enable_thinking": False, "date_string": "26 Jul 2024"}
)
"""What a chat template reads beside the messages; one that does not know an input ignores it. Llama 3's would put today's
date into the system message, and an adapter would read other prompts than it was trained on. The date is their default."""


def encode_judge(tokenizer: Any, prompt: JudgePrompt) -> tuple[list[int], list[int]]:
    """The ids of all pieces, and for each piece the index of its last token.

    Pieces are tokenised one by one and joined, so that each ends at a token border; the logits at that position are
    those of the answer. The tokenizer's BOS token, if any, comes first.
    """
    ids = opening(tokenizer)
    positions = []
    for piece in prompt.pieces:
        ids += _plain_ids(tokenizer, without_special(tokenizer, piece))
        positions.append(len(ids) - 1)
    return ids, positions


def answer_ids(tokenizer: Any) -> tuple[int, int]:
    """The ids of " yes" and " no". Raises ValueError where they are not one token each."""
    yes, no = _plain_ids(tokenizer, YES), _plain_ids(tokenizer, NO)
    if len(yes) != 1 or len(no) != 1 or yes == no:
        raise ValueError(f"this tokenizer has no single token for {YES!r} and {NO!r}: it cannot judge")
    return yes[0], no[0]


def encode_chat(tokenizer: Any, prompt: ChatPrompt) -> list[int]:
    """The ids of the conversation up to where the answer begins, in the model's own chat template.

    A base model without a template reads the two texts, one after the other.
    """
    system, user = without_special(tokenizer, prompt.system), without_special(tokenizer, prompt.user)
    if not tokenizer.chat_template:
        return opening(tokenizer) + _plain_ids(tokenizer, f"{system}\n\n{user}\n")
    text = tokenizer.apply_chat_template(
        [{"role": "system", "content": system}, {"role": "user", "content": user}],
        tokenize=False,
        add_generation_prompt=True,
        **TEMPLATE_INPUTS,
    )
    return _plain_ids(tokenizer, text)


def check_template(tokenizer: Any) -> None:
    """Raises ValueError for a chat template that writes the date into a prompt, whatever `TEMPLATE_INPUTS` say."""
    if not tokenizer.chat_template:
        return
    first, second = (
        tokenizer.apply_chat_template(
            [{"role": "system", "content": "s"}, {"role": "user", "content": "u"}],
            tokenize=False,
            add_generation_prompt=True,
            strftime_now=lambda _, day=day: day,
            **TEMPLATE_INPUTS,
        )
        for day in ("1 Jan 2024", "2 Feb 2025")
    )
    if first != second:
        raise ValueError(
            "its chat template writes today's date into each prompt: prompts would never be the same"
        )


def opening(tokenizer: Any) -> list[int]:
    """What this tokenizer puts before every text by itself: the BOS token, or nothing."""
    ids = list(tokenizer("")["input_ids"])
    return ids[:1] if ids and ids[0] == tokenizer.bos_token_id else []


def without_special(tokenizer: Any, text: str) -> str:
    """The text with a space in each special token of this tokenizer, which makes it plain text."""
    for token in _special(tokenizer):
        if token in text:
            text = text.replace(token, f"{token[0]} {token[1:]}")
    return text


def _special(tokenizer: Any) -> list[str]:
    added = [str(t) for t in tokenizer.added_tokens_decoder.values() if t.special]
    return sorted({t for t in (*added, *tokenizer.all_special_tokens) if len(t) > 1}, key=len, reverse=True)


def _plain_ids(tokenizer: Any, text: str) -> list[int]:
    return list(tokenizer(text, add_special_tokens=False)["input_ids"])
