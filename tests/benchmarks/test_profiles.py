"""The benchmark of `ptopt profile` runs from start to end on small input."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from benchmarks.profiles import kinds, size


def test_kinds_prints_a_row_for_each(capsys: pytest.CaptureFixture[str]) -> None:
    kinds.main(1, recorded=False)
    rows = capsys.readouterr().out.splitlines()[2:]
    assert len(rows) == 5 and all("| 1 of 1 |" in row for row in rows)


def test_size_measures_a_file_of_the_size(capsys: pytest.CaptureFixture[str]) -> None:
    size.main(0.003, None)
    row = capsys.readouterr().out.splitlines()[-1]
    seconds, memory = re.findall(r"GB \| ([\d.]+) \| ([\d,]+) MB", row)[0]
    assert 0 < float(seconds) < 30 and 10 < int(memory.replace(",", "")) < 500


def test_a_large_trace_is_one_trace(tmp_path: Path) -> None:
    from ptopt.profiles.profile import Profile
    from ptopt.profiles.reading import profile_of

    path = tmp_path / "large.json"
    copies = size.write_large(path, 5_000_000, *size.of_gpu())
    found = profile_of(path)
    assert isinstance(found, Profile) and copies > 1
    assert found.steps == 40 * copies and found.shares["idle"] > 0.5
