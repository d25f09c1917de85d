"""Reports: one module per format, each with `render(review) -> str` that is deterministic and ends in a newline."""

from __future__ import annotations

import importlib
from typing import cast

from ptopt.findings import Review

FORMATS = {
    "terminal": "ptopt.report.terminal",
    "concise": "ptopt.report.concise",
    "statistics": "ptopt.report.statistics",
    "json": "ptopt.report.json",
    "sarif": "ptopt.report.sarif",
    "github": "ptopt.report.github",
    "gitlab": "ptopt.report.gitlab",
    "rdjson": "ptopt.report.rdjson",
    "markdown": "ptopt.report.markdown",
}

_BY_CELL = frozenset({"terminal", "markdown", "statistics", "json"})  # they name places in notebooks by cell


def render(
    name: str,
    review: Review,
    *,
    width: int = 100,
    color: bool = False,
    explain: bool = False,
    verbose: bool = False,
    suppressed: bool = False,
    quiet: bool = False,
) -> str:
    """The review in the format `name`, a key of `FORMATS`.

    `width` (columns), `color`, `explain` and `verbose` are for the terminal (statistics take the first and the last);
    `suppressed` puts findings that a comment silences into SARIF, on the terminal, and into the lines of `concise` and `github`. With `quiet` the terminal, concise lines
    and statistics hold the findings alone. Formats that always have them, or never, take no notice.
    """
    if review.disk_lines and name not in _BY_CELL:
        from ptopt.report.ondisk import on_disk

        review = on_disk(review)
    module = importlib.import_module(FORMATS[name])
    if name == "terminal":
        text = module.render(
            review,
            width=width,
            color=color,
            explain=explain,
            verbose=verbose,
            suppressed=suppressed,
            quiet=quiet,
        )
    elif name == "statistics":
        text = module.render(review, width=width, verbose=verbose, suppressed=suppressed, quiet=quiet)
    elif name == "concise":
        text = module.render(review, quiet=quiet, suppressed=suppressed)
    elif name in ("sarif", "github"):
        text = module.render(review, suppressed=suppressed)
    else:
        text = module.render(review)
    return cast(str, text)
