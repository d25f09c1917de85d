from __future__ import annotations

import dataclasses

import pytest
from rich.text import Text

from ptopt.findings import (
    Condition,
    Edit,
    Evidence,
    Fix,
    LeftOut,
    NotReviewed,
    Review,
    Safety,
    Severity,
    Span,
    UnusedSuppression,
)
from ptopt.report import render
from ptopt.report.places import other_places
from ptopt.rules import all_rules
from tests.report.conftest import AGAIN, OTHER


def test_what_a_reader_sees(review: Review) -> None:
    assert (
        render("terminal", review, width=110)
        == """\
src/train.py:10  PTO101 item-every-step  high severity, confidence 0.90
  `total += loss.item()` waits for the GPU on every step.

   9 │ optimizer.step()
  10 ┃ total += loss.item()
  11 │ print(loss.item())

  line 8: the training step: `loss.backward()`
  Also at line 9
  Fix (safe: same behaviour):
  10 - total += loss.item()
     + total += loss.detach()
  Gain: 1.3–3× faster on this operation (measured: torch 2.13, CPU, 1 thread)
  Wrong if: the value is needed on every step

src/train.py:11  PTO104 tensor-logged-every-step  low severity, confidence 0.90
  `print(loss.item())` waits for the GPU on every step.

  10 │     total += loss.item()
  11 ┃     print(loss.item())
  12 │ return total

  Fix (apply by hand)
  Gain: up to 2× less memory for the step (published: H100, https://example.org/a_b)
  Wrong if: the value is needed on every step
  Assumes: torch >= 2.4

2 performance findings at 3 places in 1 of 7 files, 1 not shown (comment limit reached), 1 place
suppressed, 1 with a safe fix (`ptopt fix`).
  src/other.py:10  PTO101 item-every-step
  --budget 3 shows it in full
42 files not reviewed (listed with -v): Python 2 code.
Unused suppressions:
  src/train.py:3  PTO101
"""
    )


def test_prose_keeps_to_a_readable_width_where_code_takes_the_whole_line(review: Review) -> None:
    words = "plain words that go on " * 20
    code = f"    total += loss.item()  # {'x' * 120}"
    finding = dataclasses.replace(
        review.findings[0], message=words, when_wrong=words, evidence=(Evidence(8, words),), explanation=words
    )
    lines = review.sources["src/train.py"].split("\n")
    lines[9] = code
    shown = dataclasses.replace(
        review, findings=(finding,), sources={**review.sources, "src/train.py": "\n".join(lines)},
        not_reviewed=tuple(NotReviewed(f"folder/of/files/number{n}.py", "Python 2 code") for n in range(40)),
    )  # fmt: skip
    text = render("terminal", shown, width=200, verbose=True, explain=True)
    wide = [line for line in text.splitlines() if len(line) > 100]
    assert wide and all("x" * 120 in line for line in wide)
    statistics = render("statistics", shown, width=200, verbose=True)
    assert max(map(len, statistics.splitlines())) <= 100


def test_on_demand_all_that_was_left_out_is_listed(review: Review) -> None:
    review = dataclasses.replace(review, reviewed=("src/a.py", "src/b\x1b.py"))
    assert "\nReviewed:\n" not in render("terminal", review)
    text = render("terminal", review, width=4000, verbose=True, suppressed=True)
    assert "\nReviewed:\n  src/a.py\n  src/b\\x1b.py\nNot reviewed:\n" in text
    assert "\nSuppressed:\n  src/train.py:12  PTO104 tensor-logged-every-step\n" in text
    names = ", ".join(f"old{n}.py" for n in range(42))
    assert f" Not reviewed: 42 files: Python 2 code: {names} " in " ".join(text.split())


def test_lines_in_texts_of_a_notebook_are_those_of_cells(review: Review) -> None:
    first = dataclasses.replace(
        review.findings[0],
        message="Waits in the loop at line 6; it also waits at lines 7, 8 and 70.",
        evidence=(Evidence(8, "the loop at line 6"),),
    )
    cells = {"src/train.py": {line: (2, line - 3) for line in range(4, 13)}}
    text = render("terminal", dataclasses.replace(review, findings=(first,), cells=cells), width=110)
    assert text.startswith("src/train.py:cell 2:7  PTO101")
    assert "loop at line 3 of cell 2; it also waits at lines 4 of cell 2, 5 of cell 2 and 70." in text
    assert "line 5 of cell 2: the loop at line 3 of cell 2\n" in text
    assert "\n  6 │ optimizer.step()\n  7 ┃ total += loss.item()\n" in text
    assert "Also at cell 2:6: `loss.item()` waits for the GPU on every step.\n" in text
    assert "\n  7 - total += loss.item()\n" in text


def test_a_place_of_another_rule_is_named_with_its_rule_and_its_statement(review: Review) -> None:
    elsewhere = dataclasses.replace(OTHER, span=Span(12, 12))
    finding = dataclasses.replace(review.findings[0], also=(OTHER, AGAIN, elsewhere))
    shown = dataclasses.replace(
        review, findings=(finding,), cells={"src/train.py": {n: (2, n) for n in range(5, 13)}}
    )
    said = "`loader` moves each item, see line 6"
    text = render("terminal", dataclasses.replace(shown, cells={}), width=150)
    assert "  Also at line 9\n  Fix (safe" in text
    wrong = "  Wrong if: the value is needed on every step\n"
    named = "  Also PTO205 device-move-in-dataset here and at line 12"
    assert (
        f"{wrong}{named}:\n    - {said}.\n    Wrong if: it must\n" in text
    )  # after the fix, which is not its own
    assert "1 performance finding at 3 places" in text
    text = render("terminal", shown, width=150)
    assert "  Also at cell 2:9\n" in text
    assert (
        "  Also PTO205 device-move-in-dataset here and at cell 2:12:\n"
        f"    - {said} of cell 2.\n    Wrong if: it must\n" in text
    )


def test_places_of_another_rule_that_say_different_things_stand_on_a_line_each(review: Review) -> None:
    places = [
        dataclasses.replace(OTHER, span=Span(line, line), message=f"the {word} is moved")
        for line, word in ((12, "image"), (13, "label"), (14, "label"), (15, "mask"), (16, "box"), (17, "id"))
    ]
    finding = dataclasses.replace(review.findings[0], also=tuple(places))
    shown = dataclasses.replace(review, findings=(finding,))
    assert (
        "  Also PTO205 device-move-in-dataset:\n"
        "    - at line 12: the image is moved\n"
        "    - at lines 13, 14: the label is moved\n"
        "    - at line 15: the mask is moved\n"
        "    - at lines 16, 17: likewise\n"
    ) in render("terminal", shown, width=80)
    text = render("markdown", shown)
    assert "device-move-in-dataset.md>)\n  - at line 12: the image is moved\n  - at lines 13, 14: the" in text
    (plain, *_) = [also.plain() for also in other_places(finding)]
    assert plain.startswith(
        "Also PTO205 device-move-in-dataset: at line 12: the image is moved\nat lines 13, 14"
    )


@pytest.mark.parametrize("color", [False, True])
@pytest.mark.parametrize("severity", list(Severity))
def test_the_severity_is_a_word_in_80_columns(review: Review, severity: Severity, color: bool) -> None:
    name = max((rule.name for rule in all_rules()), key=len)
    finding = dataclasses.replace(review.findings[0], name=name, severity=severity)
    text = render("terminal", dataclasses.replace(review, findings=(finding,)), width=80, color=color)
    line = next(line for line in Text.from_ansi(text).plain.splitlines() if name in line)
    assert line.endswith(f"{name}  {severity} severity, confidence 0.90")


def test_where_nothing_was_reviewed_the_reasons_are_listed(review: Review) -> None:
    text = render(
        "terminal", dataclasses.replace(review, findings=(), over_limit=(), files_reviewed=0), width=150
    )
    assert text.startswith(
        "No files reviewed, 1 place suppressed.\nNot reviewed:\n  42 files: Python 2 code: old0.py, "
    )
    assert "old4.py and 37 more (listed with -v)\n" in text


@pytest.mark.parametrize(("reasons", "end"), [(3, "b: 1; c: 1."), (4, "b: 1; other reasons: 2.")])
def test_one_more_reason_is_said_and_several_are_counted(silent: Review, reasons: int, end: str) -> None:
    left = tuple(NotReviewed(f"{name}.py", name) for name in "abcd"[:reasons])
    text = render("terminal", dataclasses.replace(silent, not_reviewed=left), width=150)
    assert f"{reasons} files not reviewed (listed with -v): a: 1; {end}\n" in text


def test_what_was_compared_stands_beside_the_outcome(silent: Review) -> None:
    text = render("terminal", dataclasses.replace(silent, compared="origin/main...working tree"))
    assert text == "No performance findings in 12 files (origin/main...working tree).\n"


def test_a_suppression_of_an_unknown_rule_names_the_nearest(silent: Review) -> None:
    comments = (
        UnusedSuppression("a.py", 1, ("item-every-stp", "PTO101")),
        UnusedSuppression("a.py", 2, ("zzz",)),
    )
    text = render("terminal", dataclasses.replace(silent, unused_suppressions=comments))
    assert "\n  a.py:1  unknown rule item-every-stp (did you mean item-every-step?), PTO101\n" in text
    assert "?), PTO101\n" in text
    assert text.endswith("\n  a.py:2  unknown rule zzz\n")


def test_silence(silent: Review) -> None:
    assert render("terminal", silent) == "No performance findings in 12 files.\n"


@pytest.mark.parametrize("width", [40, 60, 80, 200])
def test_lines_fit_the_terminal(width: int, review: Review, hostile: Review) -> None:
    for case in (review, hostile):
        assert max(map(len, render("terminal", case, width=width).splitlines())) <= width


@pytest.mark.parametrize("width", [60, 80, 200])
def test_a_long_link_is_whole(width: int, review: Review) -> None:
    link = f"https://example.org/{'abcdefghij' * 9}"
    gain = dataclasses.replace(review.findings[0].impact[0], provenance="published", source=link)
    finding = dataclasses.replace(review.findings[0], impact=(gain,))
    text = render("terminal", dataclasses.replace(review, findings=(finding,)), width=width)
    assert link in text
    assert "…" not in text


@pytest.mark.parametrize("width", [40, 80])
def test_a_long_path_is_whole(width: int, review: Review) -> None:
    path = f"src/{'long_name/' * 9}train.py"
    finding = dataclasses.replace(review.findings[0], path=path)
    other = dataclasses.replace(finding, fix=None)
    shown = dataclasses.replace(
        review,
        findings=(finding,),
        over_limit=(other,),
        not_reviewed=(NotReviewed(path, "binary"),),
        unused_suppressions=(UnusedSuppression(path, 3, ()),),
        sources={},
    )
    text = render("terminal", shown, width=width, verbose=True)
    assert text.count(path) == 4
    assert all(len(line) <= width for line in text.splitlines() if path not in line)


@pytest.mark.parametrize(("number", "noun", "them"), [(1, "place", "it"), (2, "places", "them")])
def test_what_is_left_out_and_why_stands_below_the_outcome(
    silent: Review, number: int, noun: str, them: str
) -> None:
    left = LeftOut(
        {Condition.CONFIDENCE: number},
        dict.fromkeys(Condition, 0.43),
        1,
        number,
        5,
        {"PTO101 item-every-step": number},
        also={Condition.RIGHT: 1},
    )
    shown = dataclasses.replace(silent, left_out=left)
    counted = f"{number} {noun} left out: seldom worth a change (confidence below 0.43)"
    rules = f"  PTO101 item-every-step{' (2)' if number > 1 else ''}\n"
    how = f"  --min-confidence 0 --budget 50 shows {them}, and what rules are unsure of"
    text = render("terminal", shown, width=80)
    assert f"\n{counted}.\n{rules}{how}\n" in text
    for option in ("verbose", "explain"):
        asked = render("terminal", shown, width=200, **{option: True})
        several = f"({'some miss' if number > 1 else 'it misses'} other conditions, too)"
        assert f"\n{counted} {several}.\n{rules}{how} (estimate below 0.43)" in asked


@pytest.mark.parametrize(
    ("rules", "line"),
    [
        ({"PTO999 other": 1}, "PTO999 other"),
        ({"PTO101 item-every-step": 2, "PTO999 other": 1}, "PTO101 item-every-step (2), PTO999 other"),
        (
            {f"PTO10{number} a-name-of-thirty-letters-{number:04}": 1 for number in range(3)},
            "PTO100 a-name-of-thirty-letters-0000 and 2 other rules",
        ),
        ({"PTO999 " + "longer-than-a-line-" * 4: 1}, None),
    ],
)
def test_below_findings_the_rules_left_out_are_named_in_one_line(
    review: Review, rules: dict[str, int], line: str | None
) -> None:
    left = LeftOut({Condition.CONFIDENCE: 1}, dict.fromkeys(Condition, 0.43), 1, 1, rules=rules)
    shown = render("terminal", dataclasses.replace(review, left_out=left), width=80).splitlines()
    at = next(number for number, text in enumerate(shown) if text.startswith("1 place left out: "))
    how = next(number for number, text in enumerate(shown) if text.startswith("  --min-confidence 0 "))
    assert shown[at + 1 : how] == ([] if line is None else [f"  {line}"])
    assert line is None or len(f"  {line}") <= 80


def test_files_with_findings_are_counted(review: Review) -> None:
    assert "\n2 performance findings at 3 places in 1 of 7 files, " in render("terminal", review, width=200)
    alone = dataclasses.replace(review, files_reviewed=1)
    assert "\n2 performance findings at 3 places in 1 file, " in render("terminal", alone, width=200)


def test_what_the_fix_assumes_is_not_said_again(review: Review) -> None:
    fix = Fix(Safety.UNSAFE, (), "no loss is computed from what `total` holds")
    wrong = "a loss is computed from what is stored, or all callers turn autograd off"
    finding = dataclasses.replace(review.findings[0], fix=fix, when_wrong=wrong)
    text = render("terminal", dataclasses.replace(review, findings=(finding,)), width=200)
    assert "assumes that no loss is computed from what `total` holds" in text
    assert "Wrong if: all callers turn autograd off\n" in text
    alone = dataclasses.replace(finding, fix=None)
    assert f"Wrong if: {wrong}\n" in render(
        "terminal", dataclasses.replace(review, findings=(alone,)), width=200
    )


def test_a_fix_of_another_rule_says_so(review: Review) -> None:
    finding = dataclasses.replace(review.findings[0], fix_rule="PTO999")
    assert "\n  Fix of PTO999 (safe: same behaviour)" in render(
        "terminal", dataclasses.replace(review, findings=(finding,))
    )


def test_colour_changes_nothing_but_colour(review: Review) -> None:
    colored = render("terminal", review, color=True)
    assert "\x1b[" in colored
    plain = Text.from_ansi(colored).plain
    expected = render("terminal", review).replace("`", "")
    assert [line.rstrip() for line in plain.splitlines()] == expected.replace("(ptopt", "(`ptopt").replace(
        "fix).", "fix`)."
    ).splitlines()


def test_markup_in_code_is_shown_as_it_is(hostile: Review) -> None:
    assert "[bold]x[/bold]" in render("terminal", hostile, width=200)


def test_long_code_is_cut(review: Review) -> None:
    source = "".join(f"line{n}()\n" for n in range(1, 41))
    finding = dataclasses.replace(review.findings[0], span=Span(1, 40))
    text = render(
        "terminal", dataclasses.replace(review, findings=(finding,), sources={"src/train.py": source})
    )
    assert "line12()" in text
    assert "line13()" not in text
    assert "28 more lines" in text


def test_code_that_is_not_at_hand_is_left_out(review: Review) -> None:
    finding = dataclasses.replace(review.findings[0], path="a.ipynb", fix=None)
    shown = dataclasses.replace(review, findings=(finding,), sources={"a.ipynb": "x\n" * 200})
    assert "┃" in render("terminal", shown)
    assert "┃" not in render("terminal", dataclasses.replace(shown, sources={}))


def test_an_added_line_tells_its_place(review: Review) -> None:
    inserted = Fix(Safety.SAFE, (Edit(0, 0, "import os\n"),))
    finding = dataclasses.replace(review.findings[0], fix=inserted)
    assert "\n  1 + import os\n" in render("terminal", dataclasses.replace(review, findings=(finding,)))


def test_a_heading_that_is_too_wide_breaks_after_the_place(review: Review) -> None:
    lines = render("terminal", review, width=70).split("\n")
    assert lines[:2] == ["src/train.py:10", "  PTO101 item-every-step  high severity, confidence 0.90"]
    lines = render("terminal", review, width=50).split("\n")
    assert lines[0] == "src/train.py:10"
    assert lines[1] == "  PTO101 item-every-step"
    assert lines[2] == "  high severity, confidence 0.90"


LONG = """\
def train(model, loader, optimizer, criterion, schedule):
    total += criterion(model(inputs), targets).item() + penalty(model)
                                                    .mean().sum().item() + another_penalty(model)
"""


def test_lines_of_code_that_are_too_long_keep_their_bar_or_are_cut_off(review: Review) -> None:
    finding = dataclasses.replace(
        review.findings[0], span=Span(2, 2), also=(), evidence=(), missed=(Condition.CONFIDENCE,),
        fix=Fix(Safety.SAFE, (Edit(62, 67, "accumulated"),)),
    )  # fmt: skip
    shown = dataclasses.replace(
        review,
        findings=(finding,),
        sources={"src/train.py": LONG},
        conditions={Condition.CONFIDENCE: 0.55},
    )
    text = render("terminal", shown, width=40, explain=True)
    assert (
        "\n  1 │ def train(model, loader, optimiz…\n"
        "  2 ┃     total +=\n"
        "    ┃       criterion(model(inputs),\n"
        "    ┃       targets).item() +\n"
        "    ┃       penalty(model)\n"
        "  3 │            .mean().sum().item() …\n"
    ) in text
    assert (
        "\n  2 - total += criterion(model(inputs),\n        targets).item() +\n        penalty(model)\n    + acc"
        in text
    )
    assert "\n  Not shown by default: confidence" in text
    assert max(len(line) for line in text.splitlines() if "https://" not in line) <= 40


def test_a_suppression_without_names_and_an_empty_review() -> None:
    bare = Review((), (), (), (), (UnusedSuppression("a.py", 3, ()),), 0, "", {})
    text = render("terminal", bare, width=80)
    assert (
        text
        == "No Python, notebooks or configurations to review.\nUnused suppressions:\n  a.py:3  any rule\n"
    )
    assert "- `a.py:3` any rule\n" in render("markdown", bare)
