"""Writes the snapshot of the rendered default: `python -m tests.helm.snapshot`."""

from __future__ import annotations

from tests.helm.rendering import template
from tests.helm.test_chart import SNAPSHOT

if __name__ == "__main__":
    SNAPSHOT.write_text(template().stdout, encoding="utf-8")
