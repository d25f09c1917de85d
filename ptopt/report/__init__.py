"""Reports: one module per format, each with `render(review) -> str` that is deterministic and ends in a newline."""

from __future__ import annotations

import importlib
from typing import cast

from ptopt.findings import Review

FORMATS = {
    "terminal": "ptopt.report.terminal",
    "json": "ptopt.report.json",
    "sarif": "ptopt.report.sarif",
    "github": "ptopt.report.github",
    "rdjson": "ptopt.report.rdjson",
    "markdown": "ptopt.report.markdown",
}


def render(name: str, review: Review, *, width: int = 100, color: bool = False, explain: bool = False) -> str:
    """The review in the format `name`, a key of `FORMATS`; `width` (columns) and `color` are for the terminal."""
    module = importlib.import_module(FORMATS[name])
    if name == "terminal":
        return cast(str, module.render(review, width=width, color=color, explain=explain))
    return cast(str, module.render(review))
