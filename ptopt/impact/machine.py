"""The machine that measures."""

from __future__ import annotations

import platform
import re
from pathlib import Path


def processor() -> str:
    """The processor's name, in words."""
    info = Path("/proc/cpuinfo")
    model = re.search(r"model name\s*:\s*(.+)", info.read_text(encoding="utf-8")) if info.exists() else None
    return model.group(1).strip() if model else platform.processor() or platform.machine()
