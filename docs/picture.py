"""Draws docs/review.svg: the review of the pull request in examples/, as a terminal shows it.

python docs/picture.py
"""

from __future__ import annotations

import io
from pathlib import Path

from rich.console import Console
from rich.text import Text

from ptopt.config import Config
from ptopt.inputs import change_from_patch
from ptopt.project.facts import NO_FACTS
from ptopt.report import render
from ptopt.review import review_change

WIDTH = 106
ROOT = Path(__file__).resolve().parents[1]
EXAMPLE = ROOT / "examples" / "pull-request"


def main() -> None:
    (ROOT / "docs" / "review.svg").write_text(picture(), encoding="utf-8")


def picture() -> str:
    """The picture as SVG."""
    change = change_from_patch((EXAMPLE / "change.patch").read_bytes(), EXAMPLE / "head")
    review = review_change(change, config=Config(), facts=NO_FACTS)
    text = render("terminal", review, width=WIDTH, color=True)
    console = Console(record=True, width=WIDTH, file=io.StringIO(), force_terminal=True)
    console.print(Text.from_ansi("$ ptopt review --base main\n\n" + text))
    return console.export_svg(title="ptopt", unique_id="ptopt")


if __name__ == "__main__":
    main()
