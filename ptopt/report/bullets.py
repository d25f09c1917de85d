"""Items of a list in a terminal: lines that are wrapped start below the text, not below the dash."""

from __future__ import annotations

from rich.padding import Padding
from rich.table import Table
from rich.text import Text


def bullet(text: Text, by: int = 2) -> Padding:
    """The text behind a dash, `by` columns from the left."""
    grid = Table.grid(padding=(0, 1, 0, 0))
    grid.add_column(no_wrap=True)
    grid.add_column(overflow="fold")
    grid.add_row(Text("-", text.style), text)
    return Padding(grid, (0, 0, 0, by))
