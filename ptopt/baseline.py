"""The baseline: a file with the findings that were there before, so that only new ones are reported."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path

from ptopt.findings import Finding

_VERSION = 1


class BaselineError(ValueError):
    """The file is no baseline."""


def as_baseline(findings: Iterable[Finding]) -> str:
    """One line for each place, without line numbers, so that the file changes only where findings come or go."""
    entries = sorted((f.path, f.rule, f.symbol, f.fingerprint) for f in findings)
    lines = [
        json.dumps({"path": path, "rule": rule, "symbol": symbol, "fingerprint": identity})
        for path, rule, symbol, identity in entries
    ]
    body = "".join(f"\n    {line}," for line in lines).removesuffix(",")
    return f'{{\n  "version": {_VERSION},\n  "findings": [{body}{chr(10) + "  " if lines else ""}]\n}}\n'


def _content(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except FileNotFoundError:
        raise BaselineError(
            f"{path}: no such file; write it with `ptopt check --write-baseline {path}`"
        ) from None


def read_baseline(path: Path | None) -> frozenset[str]:
    """The fingerprints in the file; none without one. Raises `BaselineError` and `OSError`."""
    if path is None:
        return frozenset()
    content = _content(path)
    try:
        data = json.loads(content)
        found = frozenset(entry["fingerprint"] for entry in data["findings"])
        if data["version"] == _VERSION and all(isinstance(text, str) for text in found):
            return found
    except (ValueError, TypeError, KeyError, RecursionError):
        pass
    raise BaselineError(
        f"{path}: not a baseline; write one to another file with `ptopt check --write-baseline FILE`"
    )
