"""A gain in a comment is short, and never a bare number."""

from __future__ import annotations

import re

import pytest

from ptopt import impact
from ptopt.findings import Impact
from ptopt.report.gains import gain_line, markdown_gain
from ptopt.rules import all_rules

MACHINE = "NVIDIA H100 80GB HBM3, driver 580.159.04, torch 2.11.0+cu130, Python 3.12.3, 2026-11-22"
TWO = "16 layers of 256, batch 64: 1.21; 16 layers of 1024, batch 8192: 1.00"


def gain(low: float, high: float, sizes: str, what: str = "time", device: str = "cuda") -> str:
    return gain_line(
        Impact(what, low, high, "the step", f"{MACHINE}; {sizes}", "measured", "https://a.b/c", device)
    )


def test_the_condition_that_matters_stays() -> None:
    assert gain(1.11, 1.38, "8 layers") == "1.1–1.4× faster on the step (measured with 8 layers)"
    assert gain(1.96, 2.04, "8 layers") == "2× faster on the step (measured with 8 layers)"
    assert (
        gain(0.99, 1.24, TWO)
        == "up to 1.2× faster on the step (measured, most with 16 layers of 256, batch 64)"
    )
    assert gain(1.4, 11.37, TWO, "memory").startswith("1.4–11× less memory for the step (")
    assert gain(1.02, 1.04, "a: 1.02; b: 1.04") == "1.02–1.04× faster on the step (measured, most with b)"
    assert gain(3.1, 3.3, "20 layers, on the CPU", device="cpu") == (
        "3.1–3.3× faster on the step (measured on a CPU with 20 layers)"
    )
    assert gain(1.0, 1.0, "8 layers").startswith("no gain on the step (")


def test_what_can_cost_time_says_where() -> None:
    assert gain(0.77, 1.57, "small batches: 0.79; large batches: 1.55") == (
        "0.8–1.6× as fast on the step (measured: 1.6× with large batches; 0.8× with small batches)"
    )


def test_figures_of_others_keep_their_source() -> None:
    theirs = Impact("time", 1.0, 1.7, "the step", "an A100", "published", "https://a.b/c")
    assert gain_line(theirs) == "up to 1.7× faster on the step (published: an A100, https://a.b/c)"
    assert markdown_gain(theirs).endswith("(published: an A100, [source](<https://a.b/c>))")
    ours = Impact("time", 1.2, 1.7, "the step", f"{MACHINE}; x_1", "measured", "https://a.b/c", "cuda")
    assert markdown_gain(ours) == "1.2–1.7× faster on the step (measured with x\\_1, [how](<https://a.b/c>))"


@pytest.mark.parametrize("rule", all_rules(), ids=lambda rule: rule.id)
def test_no_gain_of_ours_names_a_machine_or_is_bare(rule: type) -> None:
    for each in impact.of_rule(rule.name):
        text = gain_line(each)
        assert re.search(r"\((measured|published)\b.{4,}\)$", text)
        if each.provenance == "measured":
            assert len(text) < 200 and "torch" not in text and "driver" not in text
