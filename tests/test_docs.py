"""What is generated is current: `make docs` writes it."""

from __future__ import annotations

import re
from pathlib import Path

from ptopt.report.rulelist import pages
from ptopt.rules import all_rules

ROOT = Path(__file__).resolve().parents[1]


def test_rule_pages_are_current() -> None:
    folder = ROOT / "docs" / "rules"
    written = {file.name: file.read_text(encoding="utf-8") for file in folder.iterdir()}
    assert written == pages(all_rules()), "run `make docs`"


def test_readme_links_lead_somewhere() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    links = re.findall(r"\]\((?!https?:)([^)#]+)", text)
    assert links
    assert [link for link in links if not (ROOT / link).exists()] == []
