from __future__ import annotations

import dataclasses

from markdown_it import MarkdownIt
from markdown_it.token import Token

from ptopt.findings import Condition, Edit, Finding, LeftOut, Proof, Review, Span
from ptopt.report import render
from ptopt.report.text import rule_link
from tests.report.conftest import AGAIN, OTHER


def tokens(text: str) -> list[Token]:
    found = []
    for token in MarkdownIt("commonmark").parse(text):
        found += [token, *(token.children or ())]
    return found


def test_the_parts_of_a_finding(review: Review) -> None:
    text = render("markdown", review)
    assert "### `src/train.py:10` PTO101 item-every-step\n" in text
    assert "waits for the GPU on every step. (high severity, confidence 0.90)\n" in text
    assert "```python\n        total += loss.item()\n```" in text
    assert "```diff\n-        total += loss.item()\n+        total += loss.detach()\n```" in text
    assert "- line 8: the training step: `loss.backward()`\n- Also at line 9\n" in text
    assert "**Wrong if:** the value is needed on every step" in text
    assert ", [source](<https://example.org/a_b>))" in text
    assert "- and 22 more" in text


def test_a_place_of_another_rule_is_named_with_a_link(review: Review) -> None:
    finding = dataclasses.replace(review.findings[0], also=(OTHER, AGAIN))
    name = f"PTO205 {OTHER.name}"
    page = rule_link("PTO205")
    assert page.endswith(".md")
    text = render("markdown", dataclasses.replace(review, findings=(finding,)))
    said = f"Also [{name}](<{page}>) here\n  - `loader` moves each item, see line 6.\n  - Wrong if: it must\n"
    assert "- Also at line 9\n" in text
    assert (
        f"**Wrong if:** the value is needed on every step\n\n- {said}" in text
    )  # after the fix, which is not its own


def test_code_with_windows_line_ends_is_shown_with_those_of_the_report(review: Review) -> None:
    assert review.sources is not None
    sources = {path: text.replace("\n", "\r\n") for path, text in review.sources.items()}
    windows = dataclasses.replace(review, sources=sources, findings=(in_windows_file(review),))
    unix = dataclasses.replace(review, findings=(review.findings[0],))
    assert render("markdown", windows) == render("markdown", unix)


def in_windows_file(review: Review) -> Finding:
    """The first finding, with the edits of its fix where they are once the lines above end in two bytes."""
    first = review.findings[0]
    assert review.sources is not None and first.fix is not None
    text = review.sources[first.path]
    edits = tuple(
        Edit(e.start + text.count("\n", 0, e.start), e.end + text.count("\n", 0, e.end), e.replacement)
        for e in first.fix.edits
    )
    return dataclasses.replace(first, fix=dataclasses.replace(first.fix, edits=edits))


def test_silence(silent: Review) -> None:
    assert render("markdown", silent) == "**ptopt**: No performance findings in 12 files.\n"


def test_what_is_not_shown_is_counted_as_in_the_terminal(review: Review) -> None:
    left = LeftOut({Condition.CONFIDENCE: 3}, {Condition.CONFIDENCE: 0.47}, 5, 6)
    text = render("markdown", dataclasses.replace(review, left_out=left))
    assert text.startswith(
        "**ptopt**: 2 performance findings at 3 places in 1 of 7 files, 1 not shown (comment limit reached), 1 place suppressed, "
    )
    assert (
        "\n\n3 places left out: seldom worth a change (confidence below 0.47); `--min-confidence 0` shows all: 5 findings at 6 "
        "places.\n\n<details>"
    ) in text


def test_hostile_text_stays_text(hostile: Review) -> None:
    found = tokens(render("markdown", hostile))
    kinds = {token.type for token in found}
    assert not kinds & {"link_open", "image"}
    html = {token.content.strip() for token in found if token.type in ("html_block", "html_inline")}
    assert all(part.startswith("<details><summary>1 ") or part == "</details>" for part in html)
    spoken = "".join(token.content for token in found if token.type == "text")
    assert "@torvalds" not in spoken
    assert "#1" not in spoken
    assert "http://" not in spoken


def test_a_fence_is_longer_than_any_in_the_code(hostile: Review) -> None:
    fences = [token for token in tokens(render("markdown", hostile)) if token.type == "fence"]
    assert [token.info for token in fences] == ["python", "diff"]
    assert fences[0].content.endswith("```\n@me\n")
    assert all(len(token.markup) > 3 for token in fences)


def test_a_source_that_is_no_plain_link_is_not_linked(review: Review) -> None:
    odd = dataclasses.replace(review.findings[0].impact[0], source="https://x.example/> <b>")
    finding = dataclasses.replace(review.findings[0], impact=(odd,))
    found = tokens(render("markdown", dataclasses.replace(review, findings=(finding,))))
    assert "link_open" not in {token.type for token in found}


def test_what_running_the_fix_has_shown(review: Review) -> None:
    proof = Proof(368, 1.4213, 1.66, "x float32[90]; a Xeon")
    proved = dataclasses.replace(review.findings[0], proof=proof)
    refused = dataclasses.replace(
        review.findings[0], proof=Proof(refused="different", why="the fix changes `x`")
    )
    text = render("markdown", dataclasses.replace(review, findings=(proved, refused)))
    assert "**Run:** proved on 368 inputs: the same results, 1.42–1.66× faster (x float32" in text
    assert "**Run:** not proved: the fix changes `x`" in text


def test_a_fix_that_begins_on_another_line_names_it(review: Review) -> None:
    finding = review.findings[0]
    assert finding.fix is not None
    text = render("markdown", review)
    assert ", at line" not in text, "it stands on the line of the finding"
    elsewhere = dataclasses.replace(finding, span=Span(8, 8))
    text = render("markdown", dataclasses.replace(review, findings=(elsewhere,)))
    assert ", at line 10:\n" in text
