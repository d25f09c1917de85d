from __future__ import annotations

import dataclasses
import re

from ptopt.findings import Condition, LeftOut, Review
from ptopt.report import render


def test_one_line_for_each_place_in_order(review: Review) -> None:
    assert render("concise", review).splitlines() == [
        "src/train.py:9: PTO101 item-every-step: `loss.item()` waits for the GPU on every step.",
        "src/train.py:10: PTO101 item-every-step: `total += loss.item()` waits for the GPU on every step.",
        "src/train.py:11: PTO104 tensor-logged-every-step: `print(loss.item())` waits for the GPU on every step.",
        "2 performance findings at 3 places in 1 of 7 files, 1 not shown (comment limit reached), 1 place suppressed, 1 with a safe fix (`ptopt fix`).",
        "42 files not reviewed.",
        "src/train.py, line 3: unused suppression of PTO101.",
    ]


def test_as_many_lines_as_there_are_places(review: Review) -> None:
    first = review.findings[0]
    twin = dataclasses.replace(first, rule="PTO103", name="tensor-to-python", also=())
    other = dataclasses.replace(twin, rule="PTO105", name="x", message="Something else.")
    both = dataclasses.replace(review, findings=(*review.findings, twin, other))
    *places, _, _, _ = render("concise", both).splitlines()
    assert len(places) == 3
    assert places[1] == (
        "src/train.py:10: PTO101 item-every-step, PTO103 tensor-to-python: `total += loss.item()` waits for the GPU on "
        "every step.; PTO105 x: Something else."
    )


def test_another_rule_without_words_means_what_the_first_one_says_on_that_line(review: Review) -> None:
    first = review.findings[0]
    silent = dataclasses.replace(first.also[0], rule="PTO105", name="x", message="")
    both = dataclasses.replace(first, also=(*first.also, silent))
    line = render("concise", dataclasses.replace(review, findings=(both,))).splitlines()[0]
    assert line == f"src/train.py:9: PTO101 item-every-step, PTO105 x: {first.also[0].message}"
    assert first.message not in line


def test_another_rule_without_words_on_another_line_names_the_line_where_they_stand(review: Review) -> None:
    first = review.findings[0]
    silent = dataclasses.replace(first.also[0], rule="PTO105", name="x", message="")
    both = dataclasses.replace(first, also=(silent,))
    line = render("concise", dataclasses.replace(review, findings=(both,))).splitlines()[0]
    assert line == "src/train.py:9: PTO105 x: The same as PTO101 says at line 10."


def test_what_the_ranker_left_out_is_counted_and_taken_for_no_place(silent: Review) -> None:
    left = LeftOut({Condition.CONFIDENCE: 3}, {Condition.CONFIDENCE: 0.47}, 2, 3, limit=1)
    text = render("concise", dataclasses.replace(silent, left_out=left, compared="main...working tree"))
    assert text.splitlines() == [
        "No performance findings in 12 files (main...working tree).",
        "3 places left out: seldom worth a change (confidence below 0.47); --min-confidence 0 --budget 2 shows all: 2 findings at 3 places.",
    ]
    assert not re.search(r":\d", text)


def test_no_text_of_a_stranger_makes_a_line(hostile: Review) -> None:
    assert (
        render("concise", hostile).count("\n") == 4
    )  # the place, the outcome, a file that is not reviewed, and an unused suppression


def test_places_in_a_notebook_are_those_of_its_cells(review: Review) -> None:
    cells = {"src/train.py": {line: (2, line - 2) for line in range(3, 13)}}
    first = dataclasses.replace(review.findings[0], also=(), message="It waits in the loop at line 6.")
    lines = render("concise", dataclasses.replace(review, findings=(first,), cells=cells)).splitlines()
    assert (
        lines[0] == "src/train.py:cell 2:8: PTO101 item-every-step: It waits in the loop at line 4 of cell 2."
    )
    assert lines[-1] == "src/train.py, line 1 of cell 2: unused suppression of PTO101."
