from __future__ import annotations

import dataclasses

import pytest
from markdown_it import MarkdownIt

from ptopt.address import rule_page
from ptopt.findings import NotReviewed, UnusedSuppression
from ptopt.github import markers
from ptopt.github.comment import LIMIT, size
from ptopt.github.summary import body_markers, later, overview, summary
from tests.github.reviews import HOSTILE, SOURCE, finding, reviewed
from tests.github.test_comment import assert_inert

HEAD = "a" * 40
TITLE = f"**[PTO101 item-every-step](<{rule_page('item-every-step')}>)** · high severity"
ITEM = finding(SOURCE, "total += loss.item()", "total += loss.detach()")
PRINT = finding(SOURCE, "print(loss.item())", "pass", rule="PTO104", name="tensor-logged-every-step")


def test_findings_with_comments_are_only_counted() -> None:
    review = reviewed(ITEM, PRINT, config_path=".ptopt.toml")
    assert (
        summary(review, (), body_markers(HEAD, ()))
        == f"""\
<!-- ptopt:review {HEAD} -->

ptopt: 2 performance findings in 1 file.

<sub>Configuration: `.ptopt.toml`. Commands: `/ptopt help`.</sub>
"""
    )


def test_what_is_left_unsaid() -> None:
    review = reviewed(
        ITEM,
        over_limit=(PRINT,),
        not_reviewed=tuple(NotReviewed(f"old{n}.py", "Python 2 code") for n in range(22)),
        unused_suppressions=(UnusedSuppression("train.py", 3, ("PTO101",)), UnusedSuppression("a.py", 1, ())),
    )
    text = summary(review, (), body_markers(HEAD, ()))
    assert (
        "<details><summary>1 finding not shown (comment limit reached)</summary>\n\n"
        "- `train.py:11` PTO104 tensor-logged-every-step\n\n</details>" in text
    )
    assert "<summary>22 files not reviewed</summary>\n\n- `old0.py`: Python 2 code\n" in text
    assert "- `old19.py`: Python 2 code\n- and 2 more\n\n</details>" in text
    assert "- `train.py:3` `PTO101`\n- `a.py:1` any rule\n" in text
    assert "Configuration: defaults." in text
    assert_inert(text)


def test_a_finding_without_a_comment_is_told_in_full() -> None:
    text = summary(reviewed(ITEM), (ITEM,), body_markers(HEAD, ()))
    assert (
        "Findings on lines that GitHub takes no comment on:\n\n"
        f"{TITLE} · `train.py:10`\n\n`loss.item()` makes Python wait for the GPU.\n\n"
        "Fix, which `ptopt fix` applies:\n\n```diff\n@@ -10 +10 @@\n" in text
    )
    assert "- Wrong if: the value is needed on every step\n" in text


def test_nothing_left() -> None:
    text = summary(reviewed(), (), body_markers(HEAD, ()))
    assert "\nptopt: all findings resolved: no performance findings in 1 file.\n" in text


def test_nothing_is_left_of_nothing() -> None:
    assert overview(reviewed(), ())[0] == "ptopt: No performance findings in 1 file."


@pytest.mark.parametrize("changes", [{"over_limit": (ITEM,)}, {"files_reviewed": 0}])
def test_something_may_be_left(changes: dict[str, object]) -> None:
    assert "resolved" not in summary(reviewed(**changes), (), body_markers(HEAD, ()))


def test_later_reviews_are_one_line() -> None:
    assert (
        later(reviewed(ITEM), HEAD, [ITEM], ())
        == f"<!-- ptopt:review {HEAD} -->\n\nptopt: 1 new performance finding.\n"
    )


def test_refused_findings_are_told_and_remembered() -> None:
    text = later(reviewed(ITEM), HEAD, [ITEM], [ITEM])
    assert markers.read(text) == (markers.review(HEAD), markers.finding("PTO101", ITEM.fingerprint))
    assert f"{TITLE} · `train.py:10`" in text


def test_hostile_texts_stay_texts() -> None:
    item = dataclasses.replace(ITEM, path=HOSTILE, name=HOSTILE, message=HOSTILE, when_wrong=HOSTILE)
    review = reviewed(
        item,
        over_limit=(item,),
        not_reviewed=(NotReviewed(HOSTILE, HOSTILE),),
        unused_suppressions=(UnusedSuppression(HOSTILE, 1, (HOSTILE,)),),
        config_path=HOSTILE,
    )
    for text in (summary(review, (item,), body_markers(HEAD, ())), later(review, HEAD, [item], [item])):
        assert_inert(text)
        assert [m.kind for m in markers.read(text)][:1] == ["review"]
    fences = [t for t in MarkdownIt("commonmark").parse(text) if t.type == "fence"]
    assert [t.info for t in fences] == ["diff"]


def test_a_body_is_never_too_long() -> None:
    long = "@" * 4096
    items = [
        dataclasses.replace(ITEM, path=f"{long}{n}", message=long, when_wrong=long, fingerprint=f"{n:032x}")
        for n in range(50)
    ]
    review = reviewed(
        *items,
        over_limit=tuple(items),
        not_reviewed=tuple(NotReviewed(f"{long}{n}", long) for n in range(50)),
        unused_suppressions=tuple(UnusedSuppression(f"{long}{n}", 1, (long,)) for n in range(50)),
        config_path=long,
    )
    text = summary(review, items, body_markers(HEAD, items))
    assert size(text) < LIMIT
    assert "\n\n50 findings not shown (comment limit reached).\n\n" in text
    assert text.endswith("</sub>\n")
    assert sum(text.count(f"{n}:10`") for n in range(10)) >= 50  # every place, in full or by name
