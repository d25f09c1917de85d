from __future__ import annotations

import json
from pathlib import Path

from ptopt.address import RANKING_PAGE
from tests.cli.command import run


def test_rules_lists_every_rule() -> None:
    listed = json.loads(run("rules", "--format", "json").stdout)
    keys = {"id", "name", "family", "severity", "default", "since", "until", "partly", "summary"}
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


def test_explain_lists_the_rules_of_a_family() -> None:
    listed = run("explain", "sync").stdout
    assert "PTO101" in listed and "item-every-step" in listed
    assert "PTO501" not in listed
