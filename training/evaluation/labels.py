"""Labels of real commits, and when a finding matches one."""

from __future__ import annotations

from typing import Any

from ptopt.findings import Finding

NEAR = 3  # lines around the labelled range in which a comment counts
# category of the label -> rule families and names that report the same problem
FITTING: dict[str, frozenset[str]] = {
    category: frozenset(names.split())
    for category, names in {
        "host-device-sync": "sync item-per-element python-reduction-over-tensor sync-in-repeat-interleave element-loop "
        "tensor-from-python-then-move constant-rebuilt-every-step",
        "per-element-item": "item-per-element item-every-step invariant-read-in-loop element-loop",
        "premature-cpu-move": "sync item-per-element",
        "blocking-h2d-copy": "transfer non-blocking-removed",
        "avoidable-h2d-copy": "transfer",
        "device-alloc": "transfer",
        "loop-invariant-compute": "constant-rebuilt-every-step invariant-read-in-loop tensor-from-python-then-move",
        "no-grad-missing": "autograd no-grad-removed",
        "graph-retained": "metric-keeps-graph graph-retained detach-removed",
        "attention-not-fused": "attention fused-attention-removed",
        "python-loop": "element-loop pairwise-loop item-per-element cat-in-loop",
        "cat-in-loop": "cat-in-loop",
        "inefficient-op-choice": "ops",
        "redundant-compute": "ops autograd cache-removed",
        "temporaries-instead-of-inplace": "ops",
        "redundant-bias": "linear-bias-before-batchnorm",
        "slow-conversion": "tensor-from-list-of-arrays item-per-element tensor-built-per-item",
        "dataloader-no-workers": "loader-without-workers loading-option-ignored workers-removed",
        "dataloading-on-main-thread": "loader-without-workers workers-removed",
        "no-pin-memory": "loader-without-pinning device-move-in-dataset loading-option-ignored pinning-removed",
        "no-persistent-workers": "workers-restarted-each-epoch loading-option-ignored persistent-workers-removed",
        "dataloader-rebuilt": "loader-rebuilt-in-loop",
        "data-prep-single-process": "dataset-map-unbatched preparation-in-one-process batched-map-removed",
        "slow-data-access": "file-read-per-item container-opened-per-item metadata-read-per-item text-parsed-per-item "
        "dataframe-row-per-item tensor-built-per-item features-computed-per-item frames-read-one-by-one deepcopy-per-item "
        "dataframe-row-loop cache-removed",
        "cudnn-benchmark-off": "cudnn-autotune-off unknown-cudnn-flag cudnn-benchmark-removed",
        "debug-left-on": "debug",
        "cache-clearing": "cache-cleared-every-step",
        "no-mixed-precision": "full-precision-training autocast-removed",
        "optimizer-not-fused": "optimizer-not-fused fused-optimizer-removed",
        "zero-grad-memset": "zero-grad-keeps-tensors set-to-none-removed",
        "grad-accum-sync": "accumulation-syncs-every-micro-batch no-sync-removed",
        "dp-instead-of-ddp": "data-parallel",
        "ddp-flags": "find-unused-parameters",
        "kernel-launch-overhead": "ops optim compile-removed fused-optimizer-removed",
        "peak-memory": "memory checkpoint-loaded-on-gpu checkpointing-removed no-grad-removed detach-removed",
    }.items()
}


def fits(category: str, rule: str, family: str) -> bool:
    """Does the rule report problems of this category?"""
    return bool(FITTING.get(category, frozenset()) & {rule, family})


def wanted(case: dict[str, Any]) -> list[tuple[str, int, int]]:
    """The problems of a case (a line of labels.jsonl): category, first and last line of its `path`."""
    if case["label"] == "clean":
        return []
    if case["label"] == "whole":
        return [(e["category"], e["line"], e["line"]) for e in case.get("expected") or ()]
    if case.get("locality") == "file":
        return [(case["category"], 1, 10**9)]
    return [(case["category"], case["start"], case["end"])]


def finds(finding: Finding, category: str, start: int, end: int) -> bool:
    """Does a finding in the labelled file report a problem of this category at these lines?"""
    if not fits(category, finding.name, finding.family):
        return False
    places = [finding.span, *finding.also]
    return any(place.start <= end + NEAR and place.end >= start - NEAR for place in places)
