"""Fixes that are offered on commits of tiny clones are applied, and what they leave is checked."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks.quality import applied
from benchmarks.quality.applied import Applied, unused
from tests.benchmarks.clones import SLOW, Repository

EMPTY = "import torch\n\n\ndef train(model, loader, optimizer, device):\n    return 0.0\n"


def test_each_fix_is_applied_and_counted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    repository = Repository(tmp_path / "clones" / "acme+net" / "repo")
    repository.commit("start", EMPTY)
    sha = repository.commit("slow", SLOW)
    commits, out = tmp_path / "commits.jsonl", tmp_path / "out.jsonl"
    commits.write_text(json.dumps({"repo": "acme/net", "sha": sha}) + "\n")
    options = ["--clones", tmp_path / "clones", "--cache", tmp_path / "cache", "--commits-from", commits]
    assert applied.main([*map(str, options), "--out", str(out), "--all-rules", "--min-confidence", "0"]) == 0
    rows = [json.loads(line) for line in out.read_text("utf-8").splitlines()]
    (row,) = [row for row in rows if row["rule"] == "item-every-step"]
    assert row["parses"] and row["gone"] and row["stale"] == []
    assert "+        total += loss.detach()" in row["fix"]
    printed = capsys.readouterr().out
    assert f"comments with a fix     {len(rows)}, taken {len(rows)}" in printed
    assert f"  nothing stale         {len(rows)}" in printed


def test_what_a_fix_leaves_unused_is_named() -> None:
    row = {"id": "1"}
    before = "import os\n\nprint(os.name)\n"
    stale = Applied(row, before, "import os\n\nprint(1)\n", parses=True, gone=True)
    clean = Applied(row, before, "print(1)\n", parses=True, gone=True)
    old = Applied(row, "import os\n", "import os\n", parses=True, gone=True)
    found = unused([stale, clean, old])
    assert [bool(names) for names in found] == [True, False, False] and "os" in found[0][0]
