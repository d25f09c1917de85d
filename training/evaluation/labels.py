"""Labels of real commits, and when a finding matches one."""

from __future__ import annotations

from typing import Any

from ptopt.findings import Finding
from ptopt.model_whole_change import KIND

NEAR = 3  # lines around the labelled range in which a comment counts
# category of the label -> rule families and names that report the same problem
FITTING: dict[str, frozenset[str]] = {
    category: frozenset(names.split())
    for category, names in {
        "host-device-sync": "sync item-per-element python-reduction-over-tensor sync-in-repeat-interleave "
        "element-loop element-test-loop copy-per-row row-loop "
        "tensor-from-python-then-move constant-rebuilt-every-step host-round-trip "
        "host-index built-on-host-then-moved python-data-sent",
        "per-element-item": "item-per-element item-every-step invariant-read-in-loop element-loop "
        "elements-read-in-loop element-test-loop copy-per-row row-loop",
        "premature-cpu-move": "sync item-per-element host-round-trip copy-per-row",
        "blocking-h2d-copy": "transfer non-blocking-removed loading-option-ignored",
        "avoidable-h2d-copy": "transfer",
        "device-alloc": "transfer",
        "loop-invariant-compute": "constant-rebuilt-every-step invariant-read-in-loop tensor-from-python-then-move "
        "invariant-compute-in-loop table-rebuilt-every-call repeated-expression scan-repeated-in-loop "
        "model-walked-in-loop expensive-object-rebuilt argument-reworked-by-each-call",
        "no-grad-missing": "autograd no-grad-removed",
        "graph-retained": "metric-keeps-graph graph-retained detach-removed tensor-kept-on-context "
        "result-stored-with-graph results-pile-up",
        "attention-not-fused": "attention fused-attention-removed",
        "python-loop": "element-loop pairwise-loop row-loop running-sum-loop slice-loop "
        "element-test-loop item-per-element cat-in-loop copy-per-row batch-of-one "
        "table-rebuilt-in-loop array-from-comprehension selection-per-value per-sample-loop counted-one-by-one "
        "text-tokenized-one-by-one mask-filled-per-sample",
        "quadratic-python": "selection-per-value list-searched-in-loop scan-repeated-in-loop model-walked-in-loop cat-in-loop "
        "pairwise-loop",
        "cat-in-loop": "cat-in-loop tensor-grown-across-calls",
        "many-small-collectives": "collective-per-tensor metric-reduced-every-step",
        "expensive-call-in-loop": "table-rebuilt-in-loop deepcopy-in-hot-code expensive-object-rebuilt model-walked-in-loop "
        "invariant-compute-in-loop scan-repeated-in-loop",
        "inefficient-op-choice": "ops weighted-sum-in-full pairwise-difference",
        "redundant-compute": "ops autograd attention-for-one-position cache-removed",
        "temporaries-instead-of-inplace": "ops ema-update-allocates factory-then-cast parameter-rebound "
        "weighted-sum-in-full memory",
        "needless-copy": "repeat-for-broadcast repeat-passed-on masked-select-expanded deepcopy-in-hot-code "
        "shifted-logits-copied array-copied-into-tensor memory",
        "needless-cast": "softmax-of-upcast cast-to-count cast-after-upload factory-then-cast",
        "double-precision": "accidental-float64",
        "unfused-pointwise": "norm-by-hand ops",
        "redundant-bias": "linear-bias-before-batchnorm",
        "slow-conversion": "array-copied-into-tensor item-per-element "
        "tensor-from-list-of-arrays tensor-from-range tensor-through-list",
        "dataloader-no-workers": "loader-without-workers trainer-without-workers workers-removed "
        "loading-option-ignored",
        "dataloading-on-main-thread": "loader-without-workers workers-removed decoded-between-forwards",
        "no-pin-memory": "loader-without-pinning device-move-in-dataset pinning-removed "
        "loading-option-ignored",
        "no-persistent-workers": "workers-restarted-each-epoch persistent-workers-removed loading-option-ignored",
        "dataloader-rebuilt": "loader-rebuilt-in-loop",
        "data-prep-single-process": "dataset-map-unbatched batched-map-removed preparation-in-one-process "
        "text-tokenized-one-by-one decoded-between-forwards",
        "slow-data-access": "file-read-per-item container-opened-per-item metadata-read-per-item "
        "dataframe-row-per-item cache-removed text-parsed-per-item "
        "features-computed-per-item frames-read-one-by-one dataframe-row-loop "
        "deepcopy-in-hot-code decoded-between-forwards",
        "cudnn-benchmark-off": "cudnn-autotune-off unknown-cudnn-flag cudnn-benchmark-removed",
        "debug-left-on": "debug",
        "cache-clearing": "cache-cleared-every-step",
        "no-mixed-precision": "full-precision-training trainer-in-full-precision autocast-removed",
        "no-tf32": "full-precision-training",
        "optimizer-not-fused": "optimizer-not-fused fused-optimizer-removed",
        "zero-grad-memset": "zero-grad-keeps-tensors gradients-zeroed-by-hand zero-grad-fills-zeros "
        "set-to-none-removed",
        "grad-accum-sync": "accumulation-syncs-every-micro-batch no-sync-removed",
        "dp-instead-of-ddp": "data-parallel",
        "ddp-flags": "find-unused-parameters",
        "kernel-launch-overhead": "ops optim compile-removed fused-optimizer-removed",
        "peak-memory": "checkpoint-loaded-on-gpu shifted-logits-copied "
        "moved-before-halving results-kept-on-device held-until-reduced "
        "pairwise-difference factory-then-cast softmax-of-upcast one-hot-matmul "
        "product-then-sum weighted-sum-in-full memory pairwise-loop attention "
        "checkpointing-removed no-grad-removed detach-removed tensor-kept-on-context result-stored-with-graph",
    }.items()
}


# what a general model calls its finding -> the categories that it means
KIND_FITTING: dict[str, frozenset[str]] = {
    kind: frozenset(names.split())
    for kind, names in {
        "wasted-work": "loop-invariant-compute redundant-compute expensive-call-in-loop needless-copy quadratic-python "
        "needless-cast redundant-bias inefficient-op-choice",
        "autograd-on": "no-grad-missing graph-retained peak-memory redundant-compute",
        "device-wait": "host-device-sync per-element-item premature-cpu-move python-loop",
        "device-copy": "blocking-h2d-copy avoidable-h2d-copy device-alloc premature-cpu-move host-device-sync needless-copy "
        "no-pin-memory slow-conversion",
        "python-loop": "python-loop per-element-item cat-in-loop quadratic-python many-small-collectives kernel-launch-overhead "
        "host-device-sync inefficient-op-choice",
        "tensor-operations": "inefficient-op-choice temporaries-instead-of-inplace needless-copy needless-cast unfused-pointwise "
        "double-precision slow-conversion kernel-launch-overhead cat-in-loop redundant-compute peak-memory",
        "memory": "peak-memory graph-retained temporaries-instead-of-inplace cache-clearing needless-copy no-grad-missing "
        "cat-in-loop inefficient-op-choice",
        "attention": "attention-not-fused peak-memory inefficient-op-choice redundant-compute",
        "precision": "no-mixed-precision no-tf32 double-precision needless-cast peak-memory",
        "data-loading": "dataloader-no-workers dataloading-on-main-thread no-pin-memory no-persistent-workers "
        "dataloader-rebuilt data-prep-single-process slow-data-access slow-conversion python-loop quadratic-python",
        "distributed": "many-small-collectives grad-accum-sync dp-instead-of-ddp ddp-flags redundant-compute",
        "optimizer": "optimizer-not-fused zero-grad-memset grad-accum-sync kernel-launch-overhead",
        "loaded-again": "expensive-call-in-loop dataloader-rebuilt slow-data-access loop-invariant-compute redundant-compute",
        "server-blocked": "",
        "training-mistake": "",
        "other": "cudnn-benchmark-off debug-left-on cache-clearing quadratic-python slow-data-access",
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
    kinds = [name.removeprefix(KIND) for name, _ in finding.features if name.startswith(KIND)]
    if any(category in KIND_FITTING[kind] for kind in kinds):
        return finding.span.start <= end + NEAR and finding.span.end >= start - NEAR
    return any(
        fits(category, place.name, place.family)
        and place.span.start <= end + NEAR
        and place.span.end >= start - NEAR
        for place in finding.places()
    )
