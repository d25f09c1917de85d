from __future__ import annotations

import dataclasses
import json
from importlib import resources
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from ptopt.findings import Proof, Review
from ptopt.report import render
from ptopt.verify import apply_edits


@pytest.fixture(scope="module")
def schema() -> Any:
    return json.loads((resources.files("ptopt.report") / "review.schema.json").read_text(encoding="utf-8"))


def test_the_schema_is_a_schema(schema: Any) -> None:
    Draft202012Validator.check_schema(schema)


@pytest.mark.parametrize("case", ["review", "silent", "hostile"])
def test_reports_follow_the_schema(schema: Any, case: str, request: pytest.FixtureRequest) -> None:
    document = json.loads(render("json", request.getfixturevalue(case)))
    Draft202012Validator(schema).validate(document)


def test_the_schema_refuses_fields_it_does_not_know(schema: Any, review: Review) -> None:
    document = json.loads(render("json", review))
    document["findings"][0]["extra"] = 1
    assert not Draft202012Validator(schema).is_valid(document)


def test_the_fields_of_a_finding(review: Review) -> None:
    document = json.loads(render("json", review))
    finding = document["findings"][0]
    assert finding["rule"] == "PTO101"
    assert (finding["start_line"], finding["end_line"]) == (10, 10)
    assert finding["also"] == [
        {
            "rule": "PTO101",
            "name": "item-every-step",
            "family": "sync",
            "path": "src/train.py",
            "start_line": 9,
            "end_line": 9,
            "cell": None,
            "message": "`loss.item()` waits for the GPU on every step.",
            "when_wrong": "",
            "severity": None,
            "impact": [],
        }
    ]
    assert finding["impact"][0]["provenance"] == "measured"
    assert (finding["fix"]["safety"], finding["fix"]["rule"]) == ("safe", "PTO101")
    assert finding["fix"]["diff"].startswith("--- a/src/train.py\n+++ b/src/train.py\n@@ -7,6 +7,6 @@\n")
    assert document["over_limit"][0]["fix"] is None
    assert len(document["not_reviewed"]) == 42


def test_edits_count_bytes_of_the_utf8_text(review: Review) -> None:
    assert review.sources is not None
    (edit,) = json.loads(render("json", review))["findings"][0]["fix"]["edits"]
    data = review.sources["src/train.py"].encode()
    assert data[edit["start"] : edit["end"]].decode() == "total += loss.item()"
    assert review.findings[0].fix is not None
    after = apply_edits(review.sources["src/train.py"], review.findings[0].fix.edits)
    assert (data[: edit["start"]].decode() + edit["replacement"] + data[edit["end"] :].decode()) == after


def test_the_proof_of_a_fix(schema: Any, review: Review) -> None:
    proof = Proof(12, 1.4, 1.6, "x float32[9]")
    proved = dataclasses.replace(review, findings=(dataclasses.replace(review.findings[0], proof=proof),))
    document = json.loads(render("json", proved))
    Draft202012Validator(schema).validate(document)
    stated = document["findings"][0]["proof"]
    assert (stated["proved"], stated["inputs"], stated["low"], stated["high"]) == (True, 12, 1.4, 1.6)
