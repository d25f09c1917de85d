"""The data files of measurements: names of machines, and claims."""

from __future__ import annotations

import json
import platform
import re
from pathlib import Path
from typing import Any

import torch

from ptopt.impact.machine import processor

ROOT = Path(__file__).resolve().parents[2]
MEASURED = ROOT / "ptopt" / "impact" / "measured"


def cpu() -> str:
    """Processor, torch and Python, in words."""
    return f"{processor()}, 1 thread, torch {torch.__version__}, Python {platform.python_version()}"


def slug(machine: str) -> str:
    """A file name for a machine, without the ending."""
    return re.sub(r"[^a-z0-9]+", "-", machine.lower()).strip("-")


def write_claims(file: Path, device: str, rule: str, claims: list[dict[str, Any]]) -> None:
    """Put the claims of one rule into the file of a machine, in the place of older ones; none removes it."""
    known = json.loads(file.read_text(encoding="utf-8"))["gains"] if file.exists() else {}
    known.pop(rule, None)
    if claims:
        known[rule] = claims
    file.parent.mkdir(parents=True, exist_ok=True)
    text = json.dumps({"device": device, "gains": dict(sorted(known.items()))}, indent=2)
    file.write_text(text + "\n", encoding="utf-8")
