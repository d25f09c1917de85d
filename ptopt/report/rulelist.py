"""The rules as a table, and as pages."""

from __future__ import annotations

import json
from collections.abc import Sequence

from ptopt.rules.base import Rule


def as_table(rules: Sequence[type[Rule]], width: int, color: bool) -> str:
    import io

    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for title in ("id", "name", "family", "default"):
        table.add_column(title, no_wrap=True)
    table.add_column("what it does")
    for rule in rules:
        cells = (rule.id, rule.name, rule.family, "on" if rule.default else "off", rule.summary())
        table.add_row(*(Text(cell) for cell in cells), style=None if rule.default else "dim")
    console = Console(
        file=io.StringIO(),
        width=max(width, 60),
        force_terminal=color,
        color_system="standard" if color else None,
        legacy_windows=False,
        highlight=False,
        _environ={},
    )
    with console.capture() as captured:
        console.print(table)
    lines = [line.rstrip() for line in captured.get().split("\n")]
    return "\n".join(line for line in lines if line) + "\n"


def as_json(rules: Sequence[type[Rule]]) -> str:
    found = [
        {
            "id": rule.id,
            "name": rule.name,
            "family": rule.family,
            "severity": str(rule.severity),
            "default": rule.default,
            "since": dict(rule.since),
            "until": dict(rule.until),
            "summary": rule.summary(),
        }
        for rule in rules
    ]
    return json.dumps(found, indent=2) + "\n"


def as_markdown(rules: Sequence[type[Rule]], link: str = "") -> str:
    """A table; `link` is put before the file name of each page, and "" means no links."""
    lines = ["| id | name | family | default | what it does |", "| --- | --- | --- | --- | --- |"]
    for rule in rules:
        name = f"[{rule.name}]({link}{rule.name}.md)" if link else rule.name
        default = "on" if rule.default else "off"
        cells = (rule.id, name, rule.family, default, rule.summary().replace("|", "\\|"))
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def pages(rules: Sequence[type[Rule]]) -> dict[str, str]:
    """File name -> text: a page per rule, and `README.md` that lists them."""
    index = f"# Rules\n\nWritten by `ptopt rules --docs`.\n\n{as_markdown(rules, './')}"
    return {"README.md": index, **{f"{rule.name}.md": rule.page() for rule in rules}}
