"""Pull-request text made harmless for a tokenizer: no special tokens and no delimiters of a chat template."""

from __future__ import annotations

import re
import unicodedata

# Where a space goes in. The first covers `<|im_end|>`, `<s>`, `</think>`, `<start_of_turn>` and all that looks like
# them, known to us or not; the others `|>`, `[INST]`, `[/TOOL_CALLS]` and `>>TITLE<<`. A space never ends up inside
# an operator, so that code stays code.
_SPECIAL = re.compile(
    r"<(?=\||[^\s<>=][^\s<>]*>)"
    r"|\|(?=>)"
    r"|\[(?=/?(?:[A-Z][A-Z_]{2,}|control_\d+|[gs]MASK|[es]op)\])"
    r"|(?<=>)>(?=[A-Z_]+<<)"
)
# Letters and marks that render as nothing: a person would not see what the model reads.
_INVISIBLE = frozenset("\u034f\u115f\u1160\u17b4\u17b5\u3164\uffa0")
_BRACKETS = {c: c for c in "<>|[]"}


def neutralise(text: str) -> str:
    """The text without special tokens, turn delimiters, invisible characters and lone surrogates.

    Has the same number of lines (counted by line feeds), and is unchanged by a second pass. Plain code passes
    unchanged.
    """
    if not (text.isascii() and text.replace("\n", "").replace("\t", "").isprintable()):
        text = "".join(map(_visible, text))
    return _SPECIAL.sub(lambda match: f"{match[0]} ", text)


def _visible(char: str) -> str:
    if char in "\n\t" or " " <= char <= "~":
        return char
    category = unicodedata.category(char)
    if (
        category == "Cf"
        or char in _INVISIBLE
        or "\ufe00" <= char <= "\ufe0f"
        or "\U000e0100" <= char <= "\U000e01ef"
    ):
        return ""  # zero width, direction marks, tags, variation selectors
    if category[0] == "C":
        return " " if category == "Cc" else "\ufffd"  # controls; surrogates, private use, unassigned
    if category[0] == "Z":
        return " "  # every kind of blank and line end
    return _BRACKETS.get(unicodedata.normalize("NFKC", char), char)
