from __future__ import annotations

from pathlib import Path

import pytest

from ptopt.baseline import BaselineError, as_baseline, read_baseline
from ptopt.findings import Finding, Severity, Span


def finding(path: str, fingerprint: str) -> Finding:
    return Finding("PTO101", "a-b", "sync", Severity.LOW, path, Span(1, 1), "f", "m", "w", 0.5, fingerprint)


@pytest.mark.parametrize("number", [0, 1, 3])
def test_what_is_written_is_read(tmp_path: Path, number: int) -> None:
    found = [finding(f"{n}.py", f"{n}" * 32) for n in reversed(range(number))]
    place = tmp_path / "baseline.json"
    text = as_baseline(found)
    place.write_text(text)
    assert read_baseline(place) == {f.fingerprint for f in found}
    assert as_baseline(found[::-1]) == text  # the order is that of the paths
    assert len(text.splitlines()) == (4 if number == 0 else number + 5)


@pytest.mark.parametrize(
    "text", ["", "[]", "{", '{"version": 2, "findings": []}', '{"version": 1, "findings": [1]}']
)
def test_another_file_is_an_error(tmp_path: Path, text: str) -> None:
    place = tmp_path / "other.json"
    place.write_text(text)
    with pytest.raises(BaselineError, match=r"other.json: not a baseline; write one to another file with"):
        read_baseline(place)
