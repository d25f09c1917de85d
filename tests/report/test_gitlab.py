from __future__ import annotations

import json

from ptopt.findings import Review
from ptopt.report import render


def test_the_fields_that_gitlab_reads(review: Review) -> None:
    first, second = json.loads(render("gitlab", review))
    assert first["check_name"] == "PTO101 item-every-step"
    assert first["description"].startswith("`total += loss.item()` waits for the GPU on every step. Gain: ")
    assert first["location"] == {"path": "src/train.py", "lines": {"begin": 10, "end": 10}}
    assert first["fingerprint"] == review.findings[0].fingerprint
    assert (first["severity"], second["severity"]) == ("major", "info")


def test_what_were_lines_are_sentences_of_one_paragraph(review: Review) -> None:
    first = json.loads(render("gitlab", review))[0]["description"]
    assert "\n" not in first
    assert first.endswith(". Also at line 9.")


def test_silence(silent: Review) -> None:
    assert render("gitlab", silent) == "[]\n"
