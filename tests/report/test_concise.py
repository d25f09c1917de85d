from __future__ import annotations

from ptopt.findings import Review
from ptopt.report import render


def test_one_line_for_each_place_in_order(review: Review) -> None:
    assert render("concise", review).splitlines() == [
        "src/train.py:9: PTO101 item-every-step: `loss.item()` waits for the GPU on every step.",
        "src/train.py:10: PTO101 item-every-step: `total += loss.item()` waits for the GPU on every step.",
        "src/train.py:11: PTO104 tensor-logged-every-step: `print(loss.item())` waits for the GPU on every step.",
    ]


def test_no_text_of_a_stranger_makes_a_line(hostile: Review) -> None:
    assert render("concise", hostile).count("\n") == 1
