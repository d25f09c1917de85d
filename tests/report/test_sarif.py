from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pytest
from jsonschema import Draft7Validator

from ptopt.address import RANKING_PAGE, URL, rule_page
from ptopt.findings import Review, Safety
from ptopt.report import render

SCHEMA = Path(__file__).parent / "data" / "sarif-schema-2.1.0.json"


@pytest.fixture(scope="module")
def validator() -> Draft7Validator:
    return Draft7Validator(json.loads(SCHEMA.read_text(encoding="utf-8")))


def run_of(review: Review, *, suppressed: bool = False) -> Any:
    (run,) = json.loads(render("sarif", review, suppressed=suppressed))["runs"]
    return run


@pytest.mark.parametrize("case", ["review", "silent", "hostile"])
def test_reports_follow_the_standard(
    validator: Draft7Validator, case: str, request: pytest.FixtureRequest
) -> None:
    for suppressed in (False, True):
        text = render("sarif", request.getfixturevalue(case), suppressed=suppressed)
        validator.validate(json.loads(text))


def test_a_result_points_at_its_lines_and_keeps_its_identity(review: Review) -> None:
    run = run_of(review)
    result = run["results"][0]
    place = result["locations"][0]["physicalLocation"]
    assert place["artifactLocation"] == {"uri": "src/train.py", "uriBaseId": "%SRCROOT%"}
    assert place["region"] == {"startLine": 10, "endLine": 10}
    assert result["partialFingerprints"] == {"ptopt/v1": review.findings[0].fingerprint}
    assert result["rank"] == 90
    assert (result["level"], run["results"][1]["level"]) == ("warning", "note")
    lines = [r["physicalLocation"]["region"]["startLine"] for r in result["relatedLocations"]]
    assert lines == [8, 9]


def test_a_rule_brings_its_text(review: Review) -> None:
    run = run_of(review)
    rules = run["tool"]["driver"]["rules"]
    for result in run["results"]:
        assert rules[result["ruleIndex"]]["id"] == result["ruleId"]
    assert "## Why it is slow" in rules[0]["help"]["markdown"]
    assert rules[0]["helpUri"] == rule_page("item-every-step")
    assert "](../" not in json.dumps(rules) and f"]({RANKING_PAGE})" in json.dumps(rules)
    assert run["tool"]["driver"]["informationUri"] == URL


def test_a_rule_that_is_not_ours_is_named_only(review: Review) -> None:
    foreign = dataclasses.replace(review.findings[0], rule="XX1", name="other")
    run = run_of(dataclasses.replace(review, findings=(foreign,), suppressed=()))
    assert run["tool"]["driver"]["rules"] == [{"id": "XX1", "name": "other"}]


def test_a_fix_tells_its_region_in_bytes_and_in_characters(review: Review) -> None:
    assert review.sources is not None
    source = review.sources["src/train.py"]
    (fix,) = run_of(review)["results"][0]["fixes"]
    (change,) = fix["artifactChanges"]
    (replacement,) = change["replacements"]
    region = replacement["deletedRegion"]
    data = source.encode()
    start = region["byteOffset"]
    assert data[start : start + region["byteLength"]].decode() == "total += loss.item()"
    assert region["startLine"] == region["endLine"] == 10
    line = source.split("\n")[9]
    assert line[region["startColumn"] - 1 : region["endColumn"] - 1] == "total += loss.item()"
    assert replacement["insertedContent"] == {"text": "total += loss.detach()"}


def test_a_fix_for_reading_is_not_offered(review: Review) -> None:
    first = review.findings[0]
    assert first.fix is not None
    shown = dataclasses.replace(first, fix=dataclasses.replace(first.fix, safety=Safety.DISPLAY))
    assert "fixes" not in run_of(dataclasses.replace(review, findings=(shown,)))["results"][0]


def test_suppressed_findings_are_results_that_say_so_on_demand(review: Review) -> None:
    assert ["suppressions" in r for r in run_of(review)["results"]] == [False, False]
    results = run_of(review, suppressed=True)["results"]
    assert [r.get("suppressions") for r in results] == [None, None, [{"kind": "inSource"}]]


def test_what_was_left_out_is_told(review: Review) -> None:
    notes = run_of(review)["invocations"][0]["toolExecutionNotifications"]
    texts = [note["message"]["text"] for note in notes]
    assert texts.count("Not reviewed: Python 2 code") == 42
    assert "Not shown (comment limit reached): PTO101 item-every-step at src/other.py:10" in texts
    assert "Unused suppression: PTO101" in texts


def test_paths_are_encoded_and_messages_hold_no_link_or_placeholder(hostile: Review) -> None:
    finding = dataclasses.replace(hostile.findings[0], message="f{0} and [x](1)", path="a b/ü#?%.py")
    result = run_of(dataclasses.replace(hostile, findings=(finding,)))["results"][0]
    uri = result["locations"][0]["physicalLocation"]["artifactLocation"]["uri"]
    assert uri == "a%20b/%C3%BC%23%3F%25.py"
    assert unquote(uri) == finding.path
    assert result["message"]["text"].startswith("f{{0}} and \\[x\\](1)\n")
