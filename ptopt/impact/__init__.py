"""What each rule is worth: published ranges and our own measurements, each with its source.

`published/*.json` (one file a family) holds what others measured, with links; `measured/*.json` (one file a
machine, which names its `device`: cpu or cuda) what `benchmarks/impact` measured; the source of these is the page of the
rule. Both map a rule's name to a list of gains.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from functools import cache
from importlib import resources

from ptopt.address import rule_page
from ptopt.findings import Impact

_ON_THE_HOST = frozenset(  # what their benchmarks time runs on the CPU, whatever device the model is on
    {
        "loader-rebuilt-in-loop",
        "running-sum-loop",
        "tensor-from-list-of-arrays",
        "workers-restarted-each-epoch",
    }
)
# Figures of one kind of code among those that a rule finds -> features of which one shows that kind.
_OF_SUCH_CODE: Mapping[tuple[str, str], tuple[str, ...]] = {
    ("kernel-per-parameter", "the update of the average"): ("kernel-per-parameter:average",),
    ("ema-update-allocates", "the update of the average"): ("ema-update-allocates:assigned",),
    ("size-read-from-device", "the loss"): ("use:reduced",),
    ("constant-rebuilt-every-step", "the forward pass"): ("constant-rebuilt-every-step:forward",),
    ("host-index", "the loss"): ("use:reduced", "symbol:loss", "path:loss"),
    ("accidental-float64", "adding the noise"): ("accidental-float64:drawn",),
    ("accidental-float64", "the loss"): ("symbol:loss", "path:loss"),
    ("item-every-step", "the training step"): ("item-every-step:once",),
    ("cache-cleared-every-step", "a step of one matrix product"): ("cache-cleared-every-step:collects",),
    ("cache-cleared-every-step", "a training step that collects garbage"): (
        "cache-cleared-every-step:collects",
    ),
    ("widened-before-copy", "the copy of the batch"): ("widened-before-copy:to_device",),
}
# The same, of code that has none of the features.
_OF_OTHER_CODE: Mapping[tuple[str, str], tuple[str, ...]] = {
    ("cache-cleared-every-step", "a training step that empties the cache"): ("cache-cleared-every-step:collects",),
}  # fmt: skip
# A rule -> the rule whose figures hold for it: what it sees costs the same.
_COSTS_AS_MUCH: Mapping[str, str] = {"no-grad-removed": "evaluation-records-graph"}
# A rule and a feature -> the rule whose figures hold for it there: half of the advice is followed already.
_COSTS_AS_MUCH_WHERE: Mapping[tuple[str, str], str] = {
    ("batch-copy-waits", "batch-copy-waits:loaders_pin"): "blocking-copy-from-pinned-loader",
}
# A rule about configurations and the setting -> the rule about code that does the same.
_SETTING_COSTS: Mapping[tuple[str, str], str] = {
    ("debugging-left-on", "detect_anomaly"): "anomaly-detection-on",
}
_OF_A_STEP = re.compile(r"training|optimizer step|backward pass|epoch")
# Features of code that runs often, or in a place where no step runs, unless it is known to be part of a training step.
_OUTSIDE_OF_STEPS = (
    "often:evaluation", "often:step", "often:layer", "often:element", "often:in a worker", "autograd:off",
)  # fmt: skip
# Features of files that train, by a loop of their own or by Lightning's, and of rules about what only a training has.
_OF_TRAINING = ("file:trains", "file:lightning", "family:optim")
_MANY = math.log1p(100)  # iterations, in the scale of the feature: the benchmarks run thousands


@cache
def _tables() -> dict[str, tuple[Impact, ...]]:
    table: dict[str, tuple[Impact, ...]] = {}
    for folder in ("measured", "published"):
        root = resources.files(__name__) / folder
        files = [f for f in root.iterdir() if f.name.endswith(".json")] if root.is_dir() else []
        for file in sorted(files, key=lambda f: f.name):
            data = json.loads(file.read_text(encoding="utf-8"))
            ours = {"device": data["device"]} if folder == "measured" else {}
            for name, gains in data["gains"].items():
                table[name] = table.get(name, ()) + tuple(
                    Impact(**{"source": rule_page(name), **ours, **gain}) for gain in gains
                )
    return table


def of_rule(name: str) -> tuple[Impact, ...]:
    """Gains of the rule with this name, our own measurements first; empty when nobody measured it."""
    return _tables().get(_COSTS_AS_MUCH.get(name, name), ())


def on_a_cpu(name: str, symbol: str = "") -> Impact | None:
    """What the rule is worth on a CPU, as far as that is known, for code of which no figure may be claimed on a GPU.

    `symbol`: the setting of a configuration that the finding is about, where the figures of another rule hold for it.
    """
    rule = _SETTING_COSTS.get((name, symbol.rpartition(".")[2]), name)
    figures = [i for i in of_rule(rule) if i.provenance == "measured" and i.device == "cpu" and i.low > 1]
    return max(figures, key=lambda impact: impact.high, default=None)


def of_finding(name: str, features: Mapping[str, float]) -> tuple[Impact, ...]:
    """Gains of the rule that may be claimed for one finding: those whose conditions resemble its code.

    What we measured on a CPU is left out unless the work is known to be done there; what we measured on a GPU, where it
    is known to be done on a CPU; both where the code shows that its loop is short; what was measured on one kind of the
    code that the rule finds, by us or by others, where the code is of another; and a share of a training step, ours or a published one, where
    the code is not known to be part of a training. A range that includes a loss says nothing for the code, and is left out too.
    """
    on_cpu = features.get("device:cpu", 0.0) > 0
    resembles = {"cpu": on_cpu or name in _ON_THE_HOST, "cuda": not on_cpu}
    short = "trips:known" in features and features["trips:known"] < _MANY

    def alike(impact: Impact) -> bool:
        kind = _OF_SUCH_CODE.get((name, impact.scope))
        other = _OF_OTHER_CODE.get((name, impact.scope), ())
        of_kind = kind is None or any(features.get(feature, 0.0) > 0 for feature in kind)
        of_kind = of_kind and not any(features.get(feature, 0.0) > 0 for feature in other)
        return of_kind and (impact.provenance != "measured" or (resembles[impact.device] and not short))

    no_step = _is_no_step(features)
    costs = (
        other
        for (rule, feature), other in _COSTS_AS_MUCH_WHERE.items()
        if rule == name and features.get(feature, 0.0) > 0
    )
    return tuple(
        i
        for i in of_rule(next(costs, name))
        if i.low >= 1 and not (no_step and _OF_A_STEP.search(i.scope)) and alike(i)
    )


def _is_no_step(features: Mapping[str, float]) -> bool:
    """Is the code, as far as its features tell, no part of a training step and nothing that one is set up with?

    A feature that is 0 is left out of `features`, so what is not named does not hold.
    """

    def has(*names: str) -> bool:
        return any(features.get(name, 0.0) > 0 for name in names)

    if has("often:in training") or not any(name.startswith("often:") for name in features):
        return False  # the latter: a configuration, which is about a training where its rule says so
    return has(*_OUTSIDE_OF_STEPS) or not has(*_OF_TRAINING)
