from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from ptopt.address import RANKING_PAGE
from ptopt.report.explained import render
from ptopt.report.rulelist import page
from ptopt.rules import all_rules
from tests.cli.command import run


def test_rules_lists_every_rule() -> None:
    listed = json.loads(run("rules", "--format", "json").stdout)
    keys = {
        "id",
        "name",
        "family",
        "severity",
        "default",
        "most_stated",
        "since",
        "until",
        "partly",
        "summary",
    }
    assert keys == set(listed[0])
    assert [rule["id"] for rule in listed] == sorted(rule["id"] for rule in listed)
    table = run("rules").stdout
    assert all(rule["id"] in table and rule["name"] in table for rule in listed)
    assert run("rules", "--format", "markdown").stdout.count("\n| PTO") == len(listed)


def test_rules_docs_writes_a_page_per_rule(tmp_path: Path) -> None:
    assert run("rules", "--docs", tmp_path / "pages").exit_code == 0
    written = (tmp_path / "pages" / "item-every-step.md").read_text()
    assert "](../ranking.md)" in written
    assert run("explain", "PTO101", "--format", "markdown").stdout == written.replace(
        "](../ranking.md)", f"]({RANKING_PAGE})"
    )
    assert "(./item-every-step.md)" in (tmp_path / "pages" / "README.md").read_text()


def test_explain_knows_ids_and_names_and_near_misses() -> None:
    page = run("explain", "PTO101").stdout
    assert page == run("explain", "item-every-step").stdout
    assert "Why it is slow" in page
    assert "## " not in page and "```" not in page and "](" not in page
    assert f"({RANKING_PAGE})" in page and "    loss.backward()\n" in page
    error = run("explain", "item-evry-step").stderr
    assert error.startswith("ptopt: error: unknown rule 'item-evry-step', did you mean item-every-step")
    error = run("explain", "loader-without").stderr
    assert error.endswith("did you mean loader-without-pinning or loader-without-workers?\n")


def test_explain_marks_code_where_there_is_no_colour() -> None:
    assert "Finds `if key not in cache:` before" in run("explain", "cache-never-hit").stdout


def test_explain_lists_the_rules_of_a_family() -> None:
    listed = run("explain", "sync").stdout
    assert "PTO101" in listed and "item-every-step" in listed
    assert "PTO501" not in listed


def test_explain_takes_several_rules() -> None:
    both = run("explain", "PTO705", "item-every-step").stdout
    assert both == run("explain", "PTO705").stdout + "\n" + run("explain", "PTO101").stdout


def test_explain_lists_the_rules_of_a_start_of_ids() -> None:
    listed = run("explain", "pto1").stdout
    assert "PTO101" in listed and "PTO102" in listed and "PTO201" not in listed
    assert run("explain", "PTO1", "--format", "markdown").stdout.startswith("|")
    assert "unknown rule 'PTO99999'" in run("explain", "PTO99999").stderr


@pytest.mark.parametrize("columns", [40, 80])
def test_explain_keeps_links_whole(columns: int) -> None:
    """A link in two parts cannot be followed."""
    for rule in all_rules():
        shown = render(rule, columns, color=False)
        links = re.findall(r"\]\((https://[^\s()]+)\)", page(rule))
        assert [link for link in links if link not in shown] == []
        assert "ptopt-link" not in shown
