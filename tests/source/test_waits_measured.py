"""The analysis against a GPU: what `python -m benchmarks.gpu --only waits` measured, and what is said of the same code."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks.gpu.wait_cases import CASES, Case, stated

RESULTS = Path(__file__).parents[2] / "benchmarks" / "gpu" / "results" / "waits.json"
MEASURED = {
    (row["code"], row["given"]): row["waits"]
    for row in json.loads(RESULTS.read_text("utf-8"))["rows"]
    if row["waits"] is not None
}
# Waits that the analysis does not count among the waits of an iteration: rules of their own find these...
APART = ("torch.tensor(", "torch.as_tensor(", "torch.from_numpy(", "torch.zeros(", "torch.randn(", "x.new_tensor(", "h.to(",
         "h.cuda(", "x[[", "x[:, [", "x[np.", "x[torch.arange(8)]", "x[range", "f\"", '"%', '"{', "repr(")  # fmt: skip
# ... and these need to know more of a value than that it is a tensor: its type, that it has one element, where it lies.
UNKNOWN = (
    "if ", "x if", "any([", "all([", "sorted(", "s in", "[0, 1", "x[mask] +=", "x[i] = 0", "x[n]", "x[h]", "x.type(",
    "x.masked_fill(mask, s)", "x.narrow(0, n", "v[0].expand(n)", "torch.arange(n", "torch.normal(", "math.sqrt(", "x.copy_(h)",
    "h.copy_(x)", "nn.utils.clip_grad_norm_(", "with torch.autograd.detect_anomaly", "encoder(", "torch.save(",
)  # fmt: skip


def test_every_case_was_measured() -> None:
    assert {(case.code, case.given) for case in CASES} == MEASURED.keys()


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.code)
def test_no_wait_is_claimed_that_is_none(case: Case) -> None:
    assert MEASURED[case.code, case.given] or not stated(case)


@pytest.mark.parametrize(
    "case",
    [case for case in CASES if MEASURED.get((case.code, case.given)) and not case.code.startswith((*APART, *UNKNOWN))],
    ids=lambda case: case.code,
)  # fmt: skip
def test_a_wait_is_seen(case: Case) -> None:
    assert stated(case)
