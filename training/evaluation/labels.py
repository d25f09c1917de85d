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
        "per-element-item": "copy-per-row element-loop element-test-loop elements-read-in-loop invariant-read-in-loop item-every-step item-per-element row-loop",
        "premature-cpu-move": "copy-per-row host-round-trip item-per-element sync",
        "blocking-h2d-copy": "non-blocking-removed transfer",
        "avoidable-h2d-copy": "transfer",
        "device-alloc": "transfer",
        "loop-invariant-compute": "constant-rebuilt-every-step invariant-compute-in-loop invariant-read-in-loop repeated-expression table-rebuilt-every-call tensor-from-python-then-move",
        "no-grad-missing": "autograd no-grad-removed",
        "graph-retained": "detach-removed graph-retained kept-tensor-keeps-graph metric-keeps-graph",
        "attention-not-fused": "attention fused-attention-removed",
        "python-loop": "batch-of-one cat-in-loop copy-per-row element-loop element-test-loop item-per-element pairwise-loop row-loop running-sum-loop slice-loop table-rebuilt-in-loop",
        "cat-in-loop": "cat-in-loop tensor-grown-across-calls",
        "many-small-collectives": "collective-per-tensor metric-reduced-every-step",
        "expensive-call-in-loop": "deepcopy-in-hot-code table-rebuilt-in-loop",
        "inefficient-op-choice": "ops",
        "redundant-compute": "attention-for-one-position autograd cache-removed ops",
        "temporaries-instead-of-inplace": "ema-update-allocates factory-then-cast ops",
        "needless-copy": "array-copied-into-tensor deepcopy-in-hot-code masked-select-expanded repeat-for-broadcast shifted-logits-copied",
        "needless-cast": "cast-after-upload cast-to-count factory-then-cast softmax-of-upcast",
        "double-precision": "accidental-float64",
        "unfused-pointwise": "norm-by-hand",
        "redundant-bias": "linear-bias-before-batchnorm",
        "slow-conversion": "array-copied-into-tensor array-listed item-per-element layout-changed-by-numpy tensor-from-list-of-arrays tensor-from-stored-dataset",
        "dataloader-no-workers": "loader-without-workers trainer-without-workers workers-removed",
        "dataloading-on-main-thread": "loader-without-workers workers-removed",
        "no-pin-memory": "device-move-in-dataset loader-without-pinning pinning-removed",
        "no-persistent-workers": "persistent-workers-removed workers-restarted-each-epoch",
        "dataloader-rebuilt": "loader-rebuilt-in-loop",
        "data-prep-single-process": "dataset-map-unbatched batched-map-removed",
        "slow-data-access": "file-read-per-item container-opened-per-item metadata-read-per-item text-parsed-per-item "
        "dataframe-row-per-item cache-removed",
        "cudnn-benchmark-off": "cudnn-autotune-off unknown-cudnn-flag cudnn-benchmark-removed",
        "debug-left-on": "debug",
        "cache-clearing": "cache-cleared-every-step",
        "no-mixed-precision": "autocast-removed full-precision-training trainer-in-full-precision",
        "no-tf32": "full-precision-training",
        "optimizer-not-fused": "fused-optimizer-removed optimizer-not-fused",
        "zero-grad-memset": "gradients-zeroed-by-hand set-to-none-removed zero-grad-fills-zeros zero-grad-keeps-tensors",
        "grad-accum-sync": "accumulation-syncs-every-micro-batch no-sync-removed",
        "dp-instead-of-ddp": "data-parallel",
        "ddp-flags": "find-unused-parameters",
        "kernel-launch-overhead": "compile-removed fused-optimizer-removed ops optim",
        "peak-memory": "checkpoint-loaded-on-gpu checkpointing-removed detach-removed factory-then-cast held-until-reduced log-softmax-gathered memory moved-before-halving no-grad-removed one-hot-matmul pairwise-difference product-then-sum results-kept-on-device shifted-logits-copied softmax-of-upcast",
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
