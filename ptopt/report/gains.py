"""What a fix brings, in the few words that a comment has for it: the factor, what gets faster, and the condition that matters.

The machine, every size and the interval stand on the page of the rule.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from ptopt.findings import Impact
from ptopt.report.text import markdown_link, markdown_text, one_line

_SIZE = re.compile(r"(.+?): (\d[\d.,]*)( .+)?")  # `16 layers of 256, batch 64: 1.21`
_AS_FAST = 0.95  # below, the fix costs time on some of the sizes


def in_short(impact: Impact) -> str:
    """`1.1–1.4× faster on the training step`, or `up to 1.4×` where nothing is gained on some sizes."""
    if impact.high == 1:
        return one_line(f"no gain on {impact.scope}")
    low, high = (_rounded(factor, impact.high) for factor in (impact.low, impact.high))
    slower = impact.low < _AS_FAST
    what = "less memory for" if impact.gain == "memory" else "as fast on" if slower else "faster on"
    if float(low.replace(",", "")) <= 1 and not slower:
        factor = f"up to {high}"
    else:
        factor = high if low == high else f"{low}–{high}"
    return one_line(f"{factor}× {what} {impact.scope}")


def condition(impact: Impact) -> str:
    """How that is known: `measured with 16 layers of 256, batch 64`; of several sizes the one with the largest gain."""
    if impact.provenance != "measured":
        return one_line(f"{impact.provenance}: {impact.conditions}")
    on = " on a CPU" if impact.device == "cpu" else ""
    machine, _, sizes = impact.conditions.partition("; ")
    if not sizes:
        return one_line(f"measured: {machine}")
    sizes = re.sub(r",? on the CPU\b", "", sizes) if on else sizes
    found = [_SIZE.fullmatch(size) for size in sizes.split("; ")]
    known = [(float(m[2].replace(",", "")), m[1] + (m[3] or "")) for m in found if m is not None]
    if len(known) < 2:
        return one_line(f"measured{on} with {known[0][1] if known else sizes}")
    (least, small), (most, large) = min(known), max(known)
    if impact.low < _AS_FAST:
        parts = [f"{_rounded(factor, most)}× with {size}" for factor, size in ((most, large), (least, small))]
        return one_line(f"measured{on}: {'; '.join(parts)}")
    return one_line(f"measured{on}, most with {large}")


def gain_line(impact: Impact) -> str:
    """Both in plain text. Of what others measured with the source; our own stands on the page of the rule."""
    source = "" if impact.provenance == "measured" else f", {one_line(impact.source)}"
    return f"{in_short(impact)} ({condition(impact)}{source})"


def markdown_gain(impact: Impact, cut: Callable[[str], str] = str) -> str:
    """Both in Markdown, with a link; `cut` shortens what is too long for a comment."""
    how = "how" if impact.provenance == "measured" else "source"
    text = f"{in_short(impact)} ({condition(impact)}"
    return f"{markdown_text(cut(text))}, {markdown_link(how, impact.source)})"


def _rounded(factor: float, largest: float) -> str:
    """To one decimal; small gains to two, large ones to none."""
    if factor >= 10:
        return f"{factor:,.0f}"
    digits = 2 if largest < 1.1 else 1
    return f"{factor:.{digits}f}".rstrip("0").rstrip(".")
