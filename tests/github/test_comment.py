from __future__ import annotations

import dataclasses
import re

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from markdown_it import MarkdownIt
from markdown_it.token import Token

from ptopt.change import Hunk
from ptopt.findings import Edit, Evidence, Finding, Fix, Impact, Place, Proof, Safety, Span
from ptopt.github import markers
from ptopt.github.comment import LIMIT, Suggestion, body_section, draft, offers, size, suggestion
from ptopt.verify import apply_edits
from tests.github.reviews import HOSTILE, SOURCE, change_of, changed, finding, reviewed

ITEM = finding(SOURCE, "total += loss.item()", "total += loss.detach()")
AGAIN = dataclasses.replace(ITEM.as_place(), span=Span(11, 11))


FAST_END = "        total += loss.detach()\n        print(loss.item())\n    return float(total)\n"


def body_of(found: Finding, source: str = SOURCE, hunks: tuple[Hunk, ...] | None = None) -> str:
    comment = draft(reviewed(found, source=source), change_of(changed(source, hunks)), found)
    assert comment is not None
    return comment.body


def offered(found: Finding, source: str = SOURCE, hunks: tuple[Hunk, ...] | None = None) -> Suggestion | None:
    return suggestion(reviewed(found, source=source), changed(source, hunks), found)


def tokens(text: str) -> list[Token]:
    found = []
    for token in MarkdownIt("commonmark").enable(["table", "strikethrough"]).parse(text):
        found += [token, *(token.children or ())]
    return found


def assert_inert(text: str) -> None:
    """Nothing but our own markup, and nothing that GitHub makes a link, a mention or a reference of."""
    found = tokens(text)
    assert not {t.type for t in found} & {"image", "table_open", "s_open", "heading_open", "hr"}
    links = [t.attrs["href"] for t in found if t.type == "link_open"]
    assert set(links) <= {"https://github.com/ptopt/ptopt/blob/main/docs/rules/item-every-step.md"}
    html = {t.content.strip() for t in found if t.type in ("html_block", "html_inline")}
    ours = r"<!-- ptopt:[a-z]+( \w+)+ -->|</?sub>|</?span>|</?details>(<summary>[\w ()]+</summary>)?"
    assert all(re.fullmatch(ours, part) for part in html)
    said = "\n".join(
        "".join("\0" if c.type == "code_inline" else c.content for c in t.children)
        for t in found
        if t.children
    ).replace("\u200b", "\0")
    assert not re.search(r"@\w|#\d|\w://|\bwww\.|\bgh-\d|:\w+:", said, re.I)
    assert text.replace("\t", "").replace("\n", "").replace("\r", "").replace("\u3000", "").isprintable()


# -- suggestions for the same lines --------------------------------------------------------------------------------

SUM = finding(SOURCE, SOURCE[SOURCE.index("        total +=") :], FAST_END, fingerprint="a")
PRINT = finding(SOURCE, "        print(loss.item())\n", "", fingerprint="b")


@pytest.mark.parametrize(("first", "second"), [(SUM, PRINT), (PRINT, SUM)])
def test_of_suggestions_for_the_same_lines_the_first_is_offered(first: Finding, second: Finding) -> None:
    """The other comment shows what it changes, without a button."""
    review, change = reviewed(first, second), change_of(changed(SOURCE))
    one, other = draft(review, change, first), draft(review, change, second)
    assert one is not None and offers(one.body)
    assert other is not None and not offers(other.body)
    assert "Fix, which `ptopt fix` applies:" in other.body and "```diff" in other.body
    alone = draft(reviewed(second), change, second)
    assert alone is not None and offers(alone.body)


def test_what_is_not_offered_keeps_no_other_from_it() -> None:
    old = "        optimizer.step()\n        total += loss.item()"
    above = finding(SOURCE, old, "        total += loss\n        optimizer.step()", fingerprint="c")
    review, change = reviewed(above, SUM, PRINT), change_of(changed(SOURCE))
    drafts = [draft(review, change, each) for each in review.findings]
    assert [each is not None and offers(each.body) for each in drafts] == [True, False, True]


# -- what it says ------------------------------------------------------------------------------------------------


def test_a_comment_in_full() -> None:
    gain = Impact("time", 1.0, 1.2, "the step", "an A100", "published", "https://example.org/a_b")
    conditions = "a Xeon, 1 thread, torch 2.13, 2026-11-20; batch 32"
    page = "https://github.com/ptopt/ptopt/blob/main/docs/rules/item-every-step.md"
    ours = Impact("time", 2.0, 3.0, "this operation", conditions, "measured", page)
    found = dataclasses.replace(ITEM, impact=(ours, gain), also=(AGAIN,), assumes="torch >= 2.4")
    comment = draft(reviewed(found), change_of(changed(SOURCE)), found)
    assert comment is not None
    assert (comment.path, comment.start_line, comment.line) == ("train.py", None, 10)
    assert (
        comment.body
        == f"""\
<!-- ptopt:finding PTO101 {ITEM.fingerprint} -->

**[PTO101 item-every-step](<{page}>)** · high severity

`loss.item()` makes Python wait for the GPU.

```suggestion
        total += loss.detach()
```

- The suggestion does not change behaviour
- Gain: 2–3× faster on this operation (measured with batch 32, [how](<{page}>))
- Gain: up to 1.2× faster on the step (published: an A100, [source](<https://example.org/a_b>))
- Wrong if: the value is needed on every step
- Assumes: torch &gt;= 2.4
- See line 8 (the training step: `loss.backward()`)
- Also at line 11

<sub>Reply `/ptopt explain` for details, or `/ptopt ignore here` to dismiss. 👍, 👎 and dismissals count as feedback on the rule.</sub>
"""
    )


def test_only_a_proof_is_worth_a_line() -> None:
    proved = dataclasses.replace(ITEM, proof=Proof(31, 1.25, 1.5, "`@x` float32[9]"))
    body = body_of(proved)
    assert "- The fix was run: proved on 31 inputs: the same results, 1.25–1.5× faster (`@x` float32" in body
    assert_inert(body)
    assert body_of(dataclasses.replace(ITEM, proof=Proof(refused="no-input", why="none runs"))) == body_of(
        ITEM
    )


def test_a_place_of_another_rule_is_named_with_its_rule_and_its_statement() -> None:
    printed = Place(
        Span(11, 11),
        "PTO104",
        "tensor-logged-every-step",
        "sync",
        "`print(loss)` waits, too.",
        "it is `rare`",
    )
    here = Place(Span(10, 10), "PTO999", "rule_of_others", "others", "`total` grows.")
    text = body_of(dataclasses.replace(ITEM, also=(here, printed, AGAIN)))
    page = "https://github.com/ptopt/ptopt/blob/main/docs/rules/tensor-logged-every-step.md"
    assert (
        "- Also at line 11\n"
        "- Also PTO999 rule\\_of\\_others here\n  - `total` grows.\n"
        f"- Also [PTO104 tensor-logged-every-step](<{page}>) at line 11\n  - `print(loss)` waits, too.\n  - Wrong if: it is `rare`\n"
    ) in text


def test_an_unsafe_fix_states_its_assumption() -> None:
    edits = ITEM.fix.edits if ITEM.fix else ()
    found = dataclasses.replace(ITEM, fix=Fix(Safety.UNSAFE, edits, "nobody reads it before the epoch ends"))
    text = body_of(found)
    assert "- The suggestion assumes that nobody reads it before the epoch ends\n" in text
    assert "```suggestion\n" in text


def test_a_fix_for_reading_is_a_diff() -> None:
    edits = ITEM.fix.edits if ITEM.fix else ()
    text = body_of(dataclasses.replace(ITEM, fix=Fix(Safety.DISPLAY, edits)))
    assert "suggestion" not in text
    assert (
        "Fix, to apply by hand:\n\n```diff\n@@ -10 +10 @@\n"
        "-        total += loss.item()\n+        total += loss.detach()\n```" in text
    )


@pytest.mark.parametrize(("safety", "flag"), [(Safety.SAFE, ""), (Safety.UNSAFE, " --unsafe")])
def test_a_fix_that_is_no_suggestion_says_what_applies_it(safety: Safety, flag: str) -> None:
    edits = ITEM.fix.edits if ITEM.fix else ()
    text = body_of(dataclasses.replace(ITEM, fix=Fix(safety, edits, "all is well", postable=False)))
    assert f"Fix, which `ptopt fix{flag}` applies:\n\n```diff\n" in text and "by hand" not in text


def test_a_finding_without_a_fix() -> None:
    assert "```" not in body_of(dataclasses.replace(ITEM, fix=None))


def test_long_evidence_is_counted() -> None:
    found = dataclasses.replace(ITEM, evidence=tuple(Evidence(n, f"step {n}") for n in range(1, 9)))
    assert (
        "- See line 1 (step 1), line 2 (step 2), line 3 (step 3), line 4 (step 4), and 4 more\n"
        in body_of(found)
    )


# -- where it stands ---------------------------------------------------------------------------------------------


def test_several_lines() -> None:
    old = "        total += loss.item()\n        print(loss.item())\n"
    found = finding(SOURCE, old, "        total += loss.detach()\n")
    comment = draft(reviewed(found), change_of(changed(SOURCE)), found)
    assert comment is not None
    assert (comment.start_line, comment.line) == (10, 11)
    assert "```suggestion\n        total += loss.detach()\n```\n" in comment.body


def test_a_comment_away_from_its_finding_names_the_line() -> None:
    found = finding(SOURCE, "def train", "@torch.no_grad()\ndef train", span=Span(10, 11))
    comment = draft(reviewed(found), change_of(changed(SOURCE)), found)
    assert comment is not None
    assert (comment.start_line, comment.line) == (None, 4)
    assert (
        "\nOn lines 10-11 (the comment stands where its suggestion changes the code): `loss.item()` makes"
        in comment.body
    )


def test_off_the_hunks_the_line_of_the_change_that_proves_it() -> None:
    file = changed(SOURCE, (Hunk(7, 2),))
    comment = draft(reviewed(ITEM), change_of(file), ITEM)
    assert comment is not None
    assert comment.line == 8
    assert (
        "\nOn line 10 (the comment stands where the change brings it about): `loss.item()` makes"
        in comment.body
    )
    assert "```diff\n" in comment.body


@pytest.mark.parametrize("hunk", [Hunk(1, 2), Hunk(12, 1)])
def test_nowhere(hunk: Hunk) -> None:
    assert draft(reviewed(ITEM), change_of(changed(SOURCE, (hunk,))), ITEM) is None


def test_another_file() -> None:
    assert draft(reviewed(ITEM), change_of(changed(SOURCE, path="other.py")), ITEM) is None


# -- suggestions -------------------------------------------------------------------------------------------------


def test_deleted_lines_are_an_empty_suggestion() -> None:
    found = finding(SOURCE, "        print(loss.item())\n", "")
    assert offered(found) == Suggestion(11, 11, ())
    assert "\n```suggestion\n```\n" in body_of(found)


def test_inserted_lines_take_a_neighbour_along() -> None:
    found = finding(SOURCE, "import torch\n", "import torch\nimport math\n")
    assert offered(found) == Suggestion(2, 2, ("import math", "")) or offered(found) == Suggestion(
        1, 1, ("import torch", "import math")
    )
    assert offered(found, hunks=(Hunk(1, 1),)) == Suggestion(1, 1, ("import torch", "import math"))
    assert offered(found, hunks=(Hunk(5, 4),)) is None


def test_line_ends_and_tabs_stay() -> None:
    source = "if x:\r\n\ty = 1\r\n\tz = `2`\r\n"
    found = finding(source, "\ty = 1\r\n\tz = `2`", "\ty = ```3```\n\n\tz = 2")
    offer = offered(found, source)
    assert offer == Suggestion(2, 3, ("\ty = ```3```\r", "\r", "\tz = 2\r"))
    assert "\n````suggestion\n\ty = ```3```\r\n\r\n\tz = 2\r\n````\n" in body_of(found, source)


@pytest.mark.parametrize(
    ("source", "old", "new"),
    [
        ("x = 1\n", "x = 1", "x = '\u202e'"),  # what is seen is not what is committed
        ("x = 1\n", "x = 1", "x = '\x0c'"),
        ("x = '\u200b' + a\n", "a", "b"),
        ("x = 1\n", "x = 1\n", "\n"),  # a blank line may be taken for none
        ("x = 1", "x = 1", "x = 2\n"),  # the end of the file changes
        ("x = 1\n", "x = 1", "x = 1"),
    ],
)
def test_no_suggestion(source: str, old: str, new: str) -> None:
    found = finding(source, old, new, span=Span(1, 1), evidence=())
    assert offered(found, source) is None
    text = body_of(found, source)
    assert "suggestion" not in text
    assert_inert(text)


def test_only_what_is_utf8_on_disk_is_suggested() -> None:
    source = "x = 1\ny = 'é'\n"
    found = finding(source, "x = 1", "x = 2")
    review, file = reviewed(found, source=source), changed(source)
    assert suggestion(review, file, found) is not None
    latin = dataclasses.replace(file, head=source.encode("latin-1"))
    assert suggestion(review, latin, found) is None
    marked = dataclasses.replace(file, head=source.encode("utf-8-sig"))
    assert suggestion(review, marked, found) is None
    second = finding(source, "y = 'é'", "y = 'e'")
    assert suggestion(reviewed(second, source=source), marked, second) is not None


LINE = st.text(alphabet=st.sampled_from("ab \t`~'é#@<🔥"), max_size=12)


@given(
    lines=st.lists(LINE, min_size=1, max_size=8),
    end=st.sampled_from(["\n", "\r\n"]),
    last=st.booleans(),
    cuts=st.lists(st.tuples(st.integers(0, 120), st.integers(0, 120)), min_size=1, max_size=3),
    new=st.lists(st.text(alphabet=st.sampled_from("cd \t`\né"), max_size=12), min_size=3, max_size=3),
    hunk=st.tuples(st.integers(1, 8), st.integers(1, 8)),
)
def test_a_suggestion_makes_the_file_that_the_fix_makes(
    lines: list[str],
    end: str,
    last: bool,
    cuts: list[tuple[int, int]],
    new: list[str],
    hunk: tuple[int, int],
) -> None:
    source = end.join(lines) + (end if last else "")
    data = source.encode()
    edits = []
    for (a, b), replacement in zip(sorted(cuts), new, strict=False):
        start = max(a, edits[-1].end if edits else 0)
        edits.append(Edit(min(start, len(data)), min(max(start, b), len(data)), replacement))
    first = min(hunk[0], len(lines))
    hunks = (Hunk(first, min(hunk[1], len(lines) - first + 1)),)
    found = dataclasses.replace(ITEM, fix=Fix(Safety.SAFE, tuple(edits)))
    try:
        fixed = apply_edits(source, edits)
    except UnicodeError:
        fixed = ""
    offer = offered(found, source, hunks)
    if offer is None:
        return
    assert set(range(offer.start, offer.end + 1)) <= set(hunks[0].lines())
    on_disk = source.split("\n")
    committed = "\n".join([*on_disk[: offer.start - 1], *offer.lines, *on_disk[offer.end :]])
    assert committed.replace("\r\n", "\n") == fixed.replace("\r\n", "\n")
    if end == "\r\n" and "\n" in source:
        assert "\n" not in committed.replace("\r\n", "")
    body = body_of(found, source, hunks)
    block = "".join(f"{line}\n" for line in offer.lines)
    (fence,) = (t for t in tokens(body) if t.type == "fence")
    assert fence.info == "suggestion"
    assert fence.content == block.replace("\r\n", "\n")
    assert f"\n{fence.markup}suggestion\n{block}{fence.markup}\n" in body


# -- hostile texts -----------------------------------------------------------------------------------------------


NASTY = st.text(
    alphabet=st.sampled_from("ab1 `*_[]()!<>#@|~&$\\-+=.:/\n\r\twwgh\u202e"), max_size=60
) | st.text(max_size=60)


@settings(max_examples=150)
@given(message=NASTY, other=NASTY, new=NASTY, path=NASTY.filter(bool))
@example(message=HOSTILE, other=HOSTILE, new=HOSTILE, path=HOSTILE)
@example(message="<!-- ptopt:finding PTO1 0 -->", other="</sub>\n\n# x", new="```\n@me", path="../`a`\n# x")
def test_nothing_of_the_pull_request_becomes_markup(message: str, other: str, new: str, path: str) -> None:
    found = finding(
        SOURCE,
        "total += loss.item()",
        new,
        path=path,
        name=other,
        message=message,
        when_wrong=other,
        assumes=other,
        evidence=(Evidence(1, other),),
        impact=(Impact("time", 1.0, 2.0, other, other, "measured", other),),
    )
    assert found.fix is not None
    for fix in (found.fix, Fix(Safety.UNSAFE, found.fix.edits, other), Fix(Safety.DISPLAY, found.fix.edits)):
        at = dataclasses.replace(found, fix=fix)
        review = reviewed(at)
        comment = draft(review, change_of(changed(SOURCE, path=path)), at)
        assert comment is not None
        assert comment.path == path
        assert markers.read(comment.body) == (markers.finding("PTO101", at.fingerprint),)
        assert_inert(comment.body)
        assert sum(t.type == "fence" for t in tokens(comment.body)) <= 1
        assert_inert(body_section(review, at))
        assert markers.read(body_section(review, at)) == ()


# -- sizes -------------------------------------------------------------------------------------------------------


def test_a_huge_suggestion_is_left_out() -> None:
    found = finding(SOURCE, "total += loss.item()", "\n".join(["x = 1"] * 20_000))
    assert offered(found) is not None
    text = body_of(found)
    assert size(text) < 5_000
    assert markers.first(text, "finding") is not None
    assert text.endswith("</sub>\n")


def test_huge_texts_are_cut() -> None:
    long = "\x00" * 100_000
    found = dataclasses.replace(
        ITEM,
        message=long,
        when_wrong=long,
        assumes=long,
        name="x",
        evidence=tuple(Evidence(n, long) for n in range(1, 9)),
        also=tuple(Place(Span(n, n), f"PTO{n % 20 + 100}", "x", "sync", long) for n in range(1, 500)),
        fix=Fix(Safety.UNSAFE, ITEM.fix.edits if ITEM.fix else (), long),
    )
    text = body_of(found)
    assert size(text) <= LIMIT
    assert text.startswith("<!-- ptopt:finding ")
    assert text.endswith("</sub>\n")


def test_size_counts_as_github_may() -> None:
    assert size("aé🔥") == 4


def test_a_suggestion_of_another_rule_says_so() -> None:
    text = body_of(dataclasses.replace(ITEM, fix_rule="PTO601"))
    assert "- The suggestion is that of PTO601\n- The suggestion does not change behaviour\n" in text
    assert "is that of" not in body_of(ITEM)


def test_what_the_suggestion_assumes_is_not_said_again() -> None:
    edits = ITEM.fix.edits if ITEM.fix else ()
    fix = Fix(Safety.UNSAFE, edits, "the host has memory to spare for page-locked batches")
    wrong = "the host is short of memory, training runs on the CPU, or batches are small"
    text = body_of(
        dataclasses.replace(ITEM, fix=fix, when_wrong="host memory to spare is short, or it is rare")
    )
    assert "- Wrong if: it is rare\n" in text
    assert f"Wrong if: {wrong}" in body_of(dataclasses.replace(ITEM, when_wrong=wrong))
