from __future__ import annotations

import pytest

from ptopt import impact
from ptopt.findings import Impact
from ptopt.report.rulelist import as_markdown, as_table, page, pages
from ptopt.rules import all_rules, find_rule


def test_a_page_holds_every_section_of_its_rule() -> None:
    for rule in all_rules():
        text = page(rule)
        assert text.startswith(f"# {rule.id} {rule.name}\n\n{rule.summary()}\n")
        for title, body in rule.sections().items():
            assert f"\n## {title}\n\n{body}\n" in text


def test_a_page_holds_what_was_measured_on_each_device(monkeypatch: pytest.MonkeyPatch) -> None:
    rule = find_rule("cat-in-loop")
    assert rule is not None
    gains = tuple(
        Impact("time", 2.0, high, "the loop", machine, "measured", "https://example.org", device)
        for high, machine, device in ((3.0, "a Xeon", "cpu"), (5.0, "an H100", "cuda"))
    )
    monkeypatch.setattr(impact, "_tables", lambda: {rule.name: gains})
    text = page(rule)
    assert (
        "- 2–3× faster on the loop (95 % interval) — measured: a Xeon\n- 2–5× faster on the loop (95 % interval) — measured: an H100\n"
        in text
    )
    assert f"`python -m benchmarks.impact --rule {rule.name}`, " in text
    assert f"`python -m benchmarks.impact --device cuda --rule {rule.name}`." in text


def test_the_index_links_every_page() -> None:
    written = pages(all_rules())
    for name in set(written) - {"README.md"}:
        assert f"(./{name})" in written["README.md"]
    assert "](" not in as_markdown(all_rules())


def test_the_table_fits_the_terminal() -> None:
    for width in (80, 120):
        assert max(map(len, as_table(all_rules(), width, color=False).splitlines())) <= width
    assert "\x1b[" in as_table(all_rules(), 130, color=True)


def test_in_a_narrow_terminal_the_text_has_a_line_of_its_own() -> None:
    text = as_table(all_rules(), 80, color=False)
    assert (
        "PTO101 item-every-step (sync)\n  A tensor is read back to Python in code that runs often.\n" in text
    )
    assert ", off by default)\n" in text
