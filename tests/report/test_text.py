from __future__ import annotations

import dataclasses
import re

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from ptopt.findings import Condition, Finding, Impact, Review, Severity, Span
from ptopt.report.text import (
    code_fence,
    code_span,
    gain,
    markdown_text,
    missed_line,
    one_line,
    split_code,
    visible,
    weighed,
)

NASTY = st.text(alphabet=st.sampled_from("ab1 `*_[]()!<>#@|~&$\\-+=.:/\n\twwgh"), max_size=40) | st.text(
    max_size=40
)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("größer 中\u3000文 🔥", "größer 中\u3000文 🔥"),
        ("\x1b[31m", "\\x1b[31m"),
        ("a\u202eb", "a\\u202eb"),
        ("a\nb", "a\\nb"),
        ("\udc80", "\\udc80"),
        ("\U000e0041", "\\U000e0041"),
        ("a\u3164b\U000e0101", "a\\u3164b\\U000e0101"),
        ("✔\ufe0f", "✔\ufe0f"),
    ],
)
def test_visible(text: str, shown: str) -> None:
    assert visible(text) == shown


def test_code_spans_are_found_as_markdown_finds_them() -> None:
    assert split_code("a `b` ``c`d`` `e") == [
        ("a ", False),
        ("b", True),
        (" ", False),
        ("c`d", True),
        (" `e", False),
    ]


@given(NASTY)
@example("1. x")
@example("- x")
@example("`a` - [x](http://a.example) ![i](j) <b> @me #1 www.a.example GH-12 \\")
def test_prose_renders_as_itself(text: str) -> None:
    found = MarkdownIt("commonmark").parse(markdown_text(text))
    assert {token.type for token in found} <= {"paragraph_open", "inline", "paragraph_close"}
    children = [child for token in found for child in token.children or ()]
    spans = {"<span>", "</span>"}  # around a dollar sign
    assert {child.content for child in children if child.type == "html_inline"} <= spans
    children = [child for child in children if child.type != "html_inline"]
    assert {child.type for child in children} <= {"text", "text_special", "code_inline"}
    rendered = "".join(child.content for child in children).replace("\u200b", "")
    plain = "".join(part for part, _ in split_code(one_line(text)))
    assert rendered.replace(" ", "") == plain.replace(" ", "")


@given(NASTY)
def test_prose_holds_nothing_that_github_links(text: str) -> None:
    found = MarkdownIt("commonmark").parse(markdown_text(text))
    spoken = "".join(c.content if c.type != "code_inline" else "\0" for t in found for c in t.children or ())
    links = r"@\w|#\d|://|:[+\w-]+:|(?<![a-z0-9])(www\.|gh-\d|[0-9a-f]{7,40}(?![a-z0-9]))"
    assert not re.search(links, spoken, re.I | re.A)


@given(NASTY)
def test_a_code_span_holds_its_text(text: str) -> None:
    (paragraph,) = [t for t in MarkdownIt("commonmark").parse(f"x {code_span(text)}") if t.type == "inline"]
    assert [child.type for child in paragraph.children or ()] == ["text", "code_inline"]
    assert (paragraph.children or [])[1].content.strip() == visible(text).strip()


@given(NASTY)
def test_a_fence_ends_where_it_should(text: str) -> None:
    (token,) = MarkdownIt("commonmark").parse(code_fence(text, "python"))
    assert token.type == "fence"
    assert token.info == "python"


@pytest.mark.parametrize(
    ("impact", "text"),
    [
        (Impact("time", 1.0, 1.5, "the step", "a V100", "published", "x"), "1–1.5× faster on the step — published: a V100"),
        (Impact("memory", 2.0, 2.0, "the step", "a V100", "measured", "x"), "2× less memory for the step — measured: a V100"),
        (Impact("time", 7580.1, 8423.99, "it", "a Xeon", "measured", "x"), "7,580–8,424× faster on it (95 % interval) — measured: a Xeon"),
        (Impact("time", 0.985, 1.07, "it", "a Xeon", "measured [1]", "x"), "0.985–1.07× as fast on it (95 % interval) — measured [1]: a Xeon"),
        (Impact("time", 1.0, 1.0, "training", "YOLOv5", "published", "x"), "no gain on training — published: YOLOv5"),
    ],
)  # fmt: skip
def test_a_gain_names_its_conditions(impact: Impact, text: str) -> None:
    assert gain(impact) == text


def test_a_probability_that_misses_its_bound_is_shown_below_it(review: Review) -> None:
    near = dataclasses.replace(review.findings[0], right=0.85, missed=(Condition.RIGHT,))
    assert missed_line(near, {Condition.RIGHT: 0.85}) == "true with a probability of 0.84, needs 0.85"
    far = dataclasses.replace(near, right=0.5)
    assert missed_line(far, {Condition.RIGHT: 0.85}) == "true with a probability of 0.50, needs 0.85"


def test_weights_say_what_a_finding_lacks() -> None:
    found = Finding(
        "PTO101", "item-every-step", "sync", Severity.HIGH, "a.py", Span(1, 1), "", "m", "w", 0.4, "f",
        reasons=(("not often:step", -0.25),),
    )  # fmt: skip
    assert weighed(found).endswith("by how often it runs: not step -0.25")


@pytest.mark.parametrize(
    ("feature", "words"),
    [
        ("fix", "has a fix"),
        ("not fix", "has no fix"),
        ("other waits", "other waits"),
        ("not other waits", "no other waits"),
        ("not in a loop", "not in a loop"),
        ("not layers:batch", "no batch size in the file"),
        ("often:evaluation", "how often it runs: each batch, in a loop that does not train"),
        ("symbol:evaluate", "the name of its function or class tells of: evaluate"),
        ("guard:none", "condition around it: a test for None"),
        ("not callers:none seen", "a caller is seen"),
        ("made:one number", "the tensor it makes: a number or a short list"),
        ("not often:in training", "its own line is in no training step"),
        ("not guard:the process", "condition around it: not the process"),
    ],
)
def test_what_a_weight_is_of_holds_as_it_is_worded(feature: str, words: str) -> None:
    """`MetricLogger.update` is not named evaluate, and a finding without a fix is not weighed by its fix."""
    found = Finding(
        "PTO101", "item-every-step", "sync", Severity.HIGH, "a.py", Span(1, 1), "", "m", "w", 0.4, "f",
        reasons=((feature, 0.25),),
    )  # fmt: skip
    assert weighed(found).endswith(f"by {words} +0.25")


def test_weights_name_the_severity_of_the_rule_as_such() -> None:
    """The finding may have another one."""
    reasons = (("severity:low", -0.5), ("often:step", 0.25), ("new:odd", 0.1), ("lines", 0.1))
    found = Finding(
        "PTO101", "item-every-step", "sync", Severity.HIGH, "a.py", Span(1, 1), "", "m", "w", 0.4, "f",
        reasons=reasons,
    )  # fmt: skip
    assert weighed(found) == (
        "confidence (worth acting on) 0.40; moved most, in log-odds, by usual severity of the rule: low -0.50, "
        "how often it runs: step +0.25, new: odd +0.10, lines +0.10"
    )
