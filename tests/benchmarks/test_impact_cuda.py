"""The benchmarks of the rules on a GPU: both sides compute the same, and what may be claimed of a result."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from ptopt.findings import Impact
from ptopt.report.text import gain
from ptopt.rules import all_rules

torch = pytest.importorskip("torch")
from benchmarks.impact.cuda import WORKLOADS, Workload  # noqa: E402 (needs torch)
from benchmarks.impact.cuda.measure import Sample, check, functions  # noqa: E402
from benchmarks.impact.cuda.results import Results, Row, claims, row  # noqa: E402
from benchmarks.impact.cuda.run import _measured, _preload, run  # noqa: E402
from benchmarks.impact.files import write_claims  # noqa: E402

pytestmark = pytest.mark.model

EACH = [
    pytest.param(
        workload,
        id=f"{name}-{number}",
        marks=[pytest.mark.skipif(not torch.cuda.is_available(), reason=workload.needs_cuda)]
        if workload.needs_cuda
        else [],
    )
    for name, workloads in WORKLOADS.items()
    for number, workload in enumerate(workloads)
]


@pytest.mark.parametrize("workload", EACH)
def test_before_and_after_compute_the_same(workload: Workload) -> None:
    torch.set_num_threads(1)
    before, after = functions(workload, workload.small, "cuda" if workload.needs_cuda else "cpu")
    check(workload, before, after)
    check(workload, before, after)  # a call leaves the inputs as they were


def test_sides_that_differ_are_found() -> None:
    wrong = Workload("x = torch.ones(n, device=device)", "result = x", "result = x * 2", {}, {"n": 3})
    with pytest.raises(AssertionError, match="not close"):
        check(wrong, *functions(wrong, wrong.small, "cpu"))


def test_every_workload_belongs_to_a_rule_and_names_its_sizes() -> None:
    assert set(WORKLOADS) <= {rule.name for rule in all_rules()}
    for workloads in WORKLOADS.values():
        for workload in workloads:
            assert 1 <= len(workload.sizes) <= 3 and workload.gain in ("time", "memory")
            assert all(set(size) == set(workload.small) for size in workload.sizes.values())
        named = [(workload.scope, words) for workload in workloads for words in workload.sizes]
        assert len(named) == len(set(named))


WORKLOAD = Workload("", "", "", {"small": {}, "large": {}}, {}, scope="the step")


def _samples(ratio: float, peak: tuple[int, int] = (100, 100)) -> list[Sample | str]:
    noise = [0.01, -0.01, 0.0, 0.005, -0.005]
    log = float(torch.tensor(ratio).log())
    return [Sample([log + d for d in noise], noise, (ratio * 1e-3, 1e-3), peak) for _ in range(3)]


def _row(ratio: float, words: str = "small", peak: tuple[int, int] = (100, 100)) -> Row:
    return row("a GPU, today", WORKLOAD, words, _samples(ratio, (peak[0] * 10**6, peak[1] * 10**6)))


@pytest.mark.parametrize(("ratio", "verdict"), [(2.0, "faster"), (1.0, "no gain"), (0.5, "slower")])
def test_a_row_says_what_the_samples_show(ratio: float, verdict: str) -> None:
    found = _row(ratio)
    assert found.verdict == verdict and found.median == pytest.approx(ratio, rel=0.01)
    assert found.low <= found.median <= found.high
    assert found.ms == (pytest.approx(ratio), pytest.approx(1.0))


def test_a_difference_of_a_side_to_itself_forbids_a_claim() -> None:
    skewed = [dataclasses.replace(s, control=[0.5] * 5) for s in _samples(2.0) if isinstance(s, Sample)]
    assert row("a GPU", WORKLOAD, "small", skewed).verdict == "no gain"


def test_a_size_without_three_samples_failed() -> None:
    assert (
        row("a GPU", WORKLOAD, "small", [*_samples(2.0)[:2], "OutOfMemoryError: full"]).failed
        == "OutOfMemoryError: full"
    )
    assert row("a GPU", WORKLOAD, "small", _samples(2.0)[:1]).failed == "another size ended the process"
    assert claims([row("a GPU", WORKLOAD, "small", [])]) == []


def test_a_claim_counts_the_sizes_without_a_gain() -> None:
    (claim,) = claims([_row(1.0), _row(3.0, "large")])
    assert claim["gain"] == "time" and claim["low"] == 0.99 and claim["high"] == pytest.approx(3.0, abs=0.05)
    assert claim["conditions"] == "a GPU, today; small: 1.00; large: 3.00"
    impact = Impact(**claim, source="https://example.org", device="cuda")
    assert gain(impact).startswith(
        "0.99–3.02× as fast on the step (95 % interval) — measured: a GPU, today; "
    )
    assert claims([_row(1.0), _row(0.5, "large")]) == []


def test_a_claim_says_of_which_size_the_runs_disagree() -> None:
    wide = dataclasses.replace(_row(1.2, "large"), claimed=False, low=0.6)
    (claim,) = claims([_row(3.0), wide])
    assert claim["low"] == 1.0 and claim["conditions"].endswith("large: 1.20 (the runs disagree)")


def test_a_claim_of_memory_names_its_cost_in_time() -> None:
    (claim,) = claims([_row(0.5, peak=(300, 100))])
    assert (claim["gain"], claim["low"], claim["high"]) == ("memory", 3.0, 3.0)
    assert claim["conditions"] == "a GPU, today; small: 3.00 in 2.00 times the time"
    assert claims([_row(1.0, peak=(110, 100))]) == []


def test_results_are_read_back_and_shown(tmp_path: Path) -> None:
    failed = row("a GPU", WORKLOAD, "large", ["RuntimeError: a|b"])
    results = Results("a GPU", {"item-every-step": [_row(2.0)], "cat-in-loop": [_row(1.0), failed]})
    file = tmp_path / "results" / "gpu.json"
    results.write(file)
    again = Results.read(file)
    assert again == results
    assert again.whole("item-every-step") and not again.whole("cat-in-loop") and not again.whole("row-loop")
    table = file.with_suffix(".md").read_text()
    assert "2 rules, 3 sizes: 1 faster, 1 no gain, 0 slower, 1 failed." in table
    assert "| failed: RuntimeError: a/b |" in table and "| 2.00 (" in table


def test_claims_of_a_rule_are_replaced(tmp_path: Path) -> None:
    file = tmp_path / "gpu.json"
    write_claims(file, "cuda", "item-every-step", [{"low": 1}])
    write_claims(file, "cuda", "cat-in-loop", [{"low": 2}])
    write_claims(file, "cuda", "item-every-step", [])
    assert (
        file.read_text()
        == '{\n  "device": "cuda",\n  "gains": {\n    "cat-in-loop": [\n      {\n        "low": 2\n      }\n    ]\n  }\n}\n'
    )


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_without_a_gpu_the_command_says_so() -> None:
    assert run(["item-every-step"], write=False, resume=False, minutes=0) == "--device cuda needs a GPU"


@pytest.mark.slow
@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_a_failure_in_the_process_of_a_rule_is_a_row() -> None:
    assert _preload()[-1] == "torch._dynamo"  # no GPU that it could have touched
    measured = _measured("cat-in-loop")
    assert [words for _, words, _ in measured] == list(WORKLOADS["cat-in-loop"][0].sizes)
    for workload, words, samples in measured:
        assert len(samples) == 3
        assert "CUDA" in row("none", workload, words, samples).failed or "NVIDIA" in str(samples[0])


@pytest.mark.slow
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_one_rule_on_a_gpu() -> None:
    for workload, words, samples in _measured("item-per-element"):
        assert not row("here", workload, words, samples).failed
