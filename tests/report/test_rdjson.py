from __future__ import annotations

import dataclasses
import json
from typing import Any

from ptopt.findings import Edit, Fix, Review, Safety
from ptopt.report import render
from ptopt.verify import apply_edits


def diagnostics(review: Review) -> Any:
    return json.loads(render("rdjson", review))["diagnostics"]


def test_a_diagnostic(review: Review) -> None:
    first, second = diagnostics(review)
    assert first["location"] == {
        "path": "src/train.py",
        "range": {"start": {"line": 10, "column": 1}, "end": {"line": 10, "column": 29}},
    }
    assert first["code"] == {"value": "PTO101"}
    assert (first["severity"], second["severity"]) == ("WARNING", "INFO")
    assert "suggestions" not in second


def test_columns_count_bytes(review: Review) -> None:
    wide = dataclasses.replace(
        review.findings[0], span=dataclasses.replace(review.findings[0].span, start=7, end=7)
    )
    (found,) = diagnostics(dataclasses.replace(review, findings=(wide,)))
    line = "        loss = model(x, y)  # größer"
    assert found["location"]["range"]["end"] == {"line": 7, "column": len(line.encode()) + 1}


def test_suggestions_replace_whole_lines(review: Review) -> None:
    assert review.sources is not None
    source = review.sources["src/train.py"]
    (suggestion,) = diagnostics(review)[0]["suggestions"]
    assert suggestion == {
        "range": {"start": {"line": 10, "column": 1}, "end": {"line": 11, "column": 1}},
        "text": "        total += loss.detach()\n",
    }
    inserted = Fix(Safety.SAFE, (Edit(0, 0, "import os\n"), Edit(0, 6, "from")))
    finding = dataclasses.replace(review.findings[0], fix=inserted)
    suggestions = diagnostics(dataclasses.replace(review, findings=(finding,)))[0]["suggestions"]
    lines = source.splitlines(keepends=True)
    for suggestion in reversed(suggestions):
        start, end = suggestion["range"]["start"]["line"], suggestion["range"]["end"]["line"]
        lines[start - 1 : end - 1] = [suggestion["text"]]
    assert "".join(lines) == apply_edits(source, inserted.edits)


def test_whole_lines_without_the_text(review: Review) -> None:
    found = diagnostics(dataclasses.replace(review, sources=None))[0]
    assert found["location"]["range"] == {"start": {"line": 10}, "end": {"line": 10}}
    assert "suggestions" not in found
