"""Which gains a finding may claim."""

from __future__ import annotations

import math
import re
from pathlib import Path

import pytest

from ptopt import impact
from ptopt.change import whole_file
from ptopt.config import Config
from ptopt.findings import Impact
from ptopt.project.facts import NO_FACTS
from ptopt.review import review_files
from ptopt.rules import find_rule, rules

SHORT_LOOP = """\
import torch


def names_of(token_ids: torch.Tensor):
    return [t.item() for t in token_ids.cuda()]
"""


def _gain(device: str) -> Impact:
    how = "measured" if device else "published"
    return Impact("time", 1.0, 2.0, "this operation", "somewhere", how, "https://example.org", device)


def _devices(name: str, features: dict[str, float]) -> set[str]:
    return {i.device or i.provenance for i in impact.of_finding(name, features)}


@pytest.mark.parametrize(
    ("features", "claimed"),
    [
        ({}, {"cuda", "published"}),  # where it runs is not known
        ({"device:moved": 1.0}, {"cuda", "published"}),
        ({"trips:known": math.log1p(4)}, {"published"}),
        ({"device:cpu": 1.0}, {"cpu", "published"}),
        ({"device:cpu": 1.0, "trips:known": math.log1p(4)}, {"published"}),
        ({"device:cpu": 1.0, "trips:known": math.log1p(5000)}, {"cpu", "published"}),
    ],
)
def test_a_measurement_is_claimed_for_code_that_runs_on_such_a_device(
    features: dict[str, float], claimed: set[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    table = {"optimizer-not-fused": (_gain("cpu"), _gain("cuda"), _gain(""))}
    monkeypatch.setattr(impact, "_tables", lambda: table)
    assert _devices("optimizer-not-fused", features) == claimed


def test_a_range_that_includes_a_loss_is_not_claimed(monkeypatch: pytest.MonkeyPatch) -> None:
    table = {
        "branch-on-tensor": (
            Impact("time", 0.95, 1.07, "the training step", "", "measured", "https://example.org", "cuda"),
            Impact("memory", 1.02, 3.3, "the training step", "", "measured", "https://example.org", "cuda"),
        )
    }
    monkeypatch.setattr(impact, "_tables", lambda: table)
    assert [i.gain for i in impact.of_finding("branch-on-tensor", {})] == ["memory"]


TRAINING = """\
import torch


def train(model, loader, optimizer):
    for batch in loader:
        loss = model(batch.cuda()).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        torch.cuda.empty_cache()
        print(loss.item())
"""
EVALUATION = """\
import torch


def {}(model, loader):
    model.eval()
    for batch in loader:
        score = model(batch.cuda()).mean()
        torch.cuda.empty_cache()
        print(score.item())
"""
LIBRARY = """\
import torch.nn.functional as F


class BeamSearch:
    def update(self, prefixes, logits, sum_logprobs):
        logprobs = F.log_softmax(logits.float(), dim=-1)
        for j in range(self.beam_size):
            for logprob, token in zip(*logprobs[j].topk(self.beam_size + 1)):
                self.scores[prefixes[j] + [token.item()]] = (sum_logprobs[j] + logprob).item()
"""


def _claimed(code: str) -> dict[str, list[str]]:
    """Rule -> scopes of the gains of its findings."""
    config = Config().model_copy(update={"min_confidence": 0.0})
    review = review_files(
        [whole_file("f.py", code.encode())], config=config, facts=NO_FACTS, limit_to_change=False
    )
    claims: dict[str, list[str]] = {}
    for finding in review.findings:
        for each in finding.places():
            claims.setdefault(each.name, []).extend(i.scope for i in each.impact)
    return claims


@pytest.mark.parametrize("rule", ["item-every-step", "batch-copy-waits", "cache-cleared-every-step"])
def test_a_share_of_the_training_step_is_claimed_only_where_something_trains(rule: str) -> None:
    step = "a training step that empties the cache" if "cache" in rule else "the training step"
    assert step in _claimed(TRAINING)[rule]
    for code in (EVALUATION.format("evaluate"), EVALUATION.format("predict")):
        assert step not in _claimed(code).get(rule, [])
        both = _claimed(f"{code}\n\n{TRAINING.removeprefix('import torch')}")  # in one file with a training
        assert len(both[rule]) <= len(_claimed(TRAINING)[rule])


@pytest.mark.parametrize(
    ("call", "highest"), [("torch.cuda.empty_cache()", 1.4), ("import gc; gc.collect()", 1.7)]
)
def test_the_gain_is_that_of_the_call_which_was_found(call: str, highest: float) -> None:
    code = TRAINING.replace("torch.cuda.empty_cache()", call)
    review = review_files(
        [whole_file("f.py", code.encode())], config=Config(), facts=NO_FACTS, limit_to_change=False
    )
    gains = [i.high for f in review.findings if f.name == "cache-cleared-every-step" for i in f.impact]
    assert gains == [highest]


def test_an_evaluation_between_the_steps_has_no_share_of_the_training_step() -> None:
    within = TRAINING.replace(
        "        torch.cuda.empty_cache()\n        print(loss.item())\n",
        "        if step % 100 == 0:\n            for batch in val_loader:\n"
        "                score = model(batch.cuda()).mean()\n                total += score.item()\n",
    )
    assert "the training step" not in _claimed(within)["item-every-step"]


def test_library_code_that_trains_nothing_gets_no_share_of_a_training_step() -> None:
    assert "item-every-step" in _claimed(LIBRARY)
    assert "the training step" not in _claimed(LIBRARY)["item-every-step"]


@pytest.mark.parametrize(
    ("features", "claimed"),
    [  # as the ranker gives them: what does not hold is left out
        ({"often:in training": 1.0, "often:step": 1.0}, True),
        ({"often:evaluation": 1.0, "file:trains": 1.0}, False),
        ({"often:element": 1.0, "file:trains": 1.0}, False),
        ({"often:once": 1.0, "autograd:off": 1.0, "file:trains": 1.0}, False),
        ({"often:unknown": 1.0, "file:trains": 1.0}, True),
        ({"often:unknown": 1.0, "file:lightning": 1.0}, True),
        ({"often:unknown": 1.0}, False),
        ({"often:once": 1.0, "family:optim": 1.0}, True),
        ({}, True),  # a configuration
    ],
)
def test_what_is_set_up_for_a_training_has_its_share_of_the_step(
    features: dict[str, float], claimed: bool
) -> None:
    gains = impact.of_finding("batch-copy-waits", features)
    assert any(i.scope == "the training step" for i in gains) is claimed


@pytest.mark.parametrize(
    ("copy", "claimed"), [("maps.append(x.float().cpu())", False), ("loss = net(x.float().cuda())", True)]
)
def test_a_copy_to_the_host_is_no_copy_of_a_batch(copy: str, claimed: bool) -> None:
    stored = (
        "torch.uint8, torch.float16"  # bytes of images, and a network in half precision: both casts widen
    )
    code = f"import torch\n\nSTORED = {stored}\n\n\ndef train(net, loader):\n    for x, y in loader:\n        {copy}\n        net(y.cuda()).sum().backward()\n"
    code = code.replace("(x", "(images" if claimed else "(net.depth").replace("for x", "for images")
    chosen = Config.model_validate({"select": ["widened-before-copy"], "min-confidence": 0.0})
    review = review_files(
        [whole_file("train.py", code.encode())], config=chosen, facts=NO_FACTS, limit_to_change=False
    )
    (finding,) = review.findings
    assert any(i.scope == "the copy of the batch" for i in finding.impact) is claimed


def test_every_measurement_names_its_device() -> None:
    devices = {
        i.device for name in impact._tables() for i in impact.of_rule(name) if i.provenance == "measured"
    }
    assert "cpu" in devices and devices <= {"cpu", "cuda"}
    assert "cpu" in _devices("optimizer-not-fused", {"device:cpu": 1.0})
    assert "cpu" not in _devices("optimizer-not-fused", {})


def test_work_of_the_host_is_the_same_beside_a_gpu() -> None:
    assert "cpu" in _devices("tensor-from-list-of-arrays", {"device:moved": 1.0})
    assert all(find_rule(name) is not None for name in impact._ON_THE_HOST)


def test_a_short_loop_of_gpu_code_gets_no_figure_of_a_cpu() -> None:
    file = whole_file("train.py", SHORT_LOOP.encode())
    config = Config().model_copy(update={"min_confidence": 0.0})
    found = review_files([file], config=config, facts=NO_FACTS, limit_to_change=False).findings
    (finding,) = [f for f in found if f.name == "item-per-element"]
    assert all(i.device != "cpu" for i in finding.impact)
    assert "cpu" in {i.device for i in impact.of_rule(finding.name)}


def test_the_source_of_a_measurement_is_a_page_that_exists() -> None:
    docs = Path(__file__).resolve().parents[2] / "docs" / "rules"
    for name in impact._tables():
        for each in impact.of_rule(name):
            assert each.source.startswith("https://")
            if each.provenance == "measured":
                assert each.source.endswith(f"/docs/rules/{name}.md")
                assert (docs / f"{name}.md").is_file()


AVERAGE = """\
import torch


def update(teacher, student, m):
    for p, q in zip(teacher.parameters(), student.parameters()):
        {}
"""


@pytest.mark.parametrize(
    ("rule", "update", "claimed"),
    [
        ("kernel-per-parameter", "p.lerp_(q, 1 - m)", True),
        ("kernel-per-parameter", "p.mul_(m).add_(q, alpha=1 - m)", True),
        ("kernel-per-parameter", "p.copy_(q)", False),
        ("kernel-per-parameter", "p.grad.clamp_(-1, 1)", False),
        ("ema-update-allocates", "p.data = p.data * m + q.data * (1 - m)", True),
        ("ema-update-allocates", "p.copy_(p * m + q * (1 - m))", False),
    ],
)
def test_a_measurement_is_claimed_for_the_kind_of_code_that_was_measured(
    rule: str, update: str, claimed: bool
) -> None:
    text = AVERAGE.format(update)
    chosen = Config.model_validate({"select": [rule], "min-confidence": 0.0})
    review = review_files(
        [whole_file("train.py", text.encode())], config=chosen, facts=NO_FACTS, limit_to_change=False
    )
    (finding,) = review.findings
    assert any(i.provenance == "measured" for i in finding.impact) is claimed


FORWARD = """\
import torch


class Net(torch.nn.Module):
    def forward(self, x):
        return x * torch.tensor([2.0, 3.0], device=x.device)
"""
SAMPLES = """\
import torch


@torch.no_grad()
def sample(net, count, device):
    for _ in range(count):
        net(torch.randn(1, 2, device=device) * torch.tensor([2.0, 3.0], device=device))
"""


@pytest.mark.parametrize(("text", "claimed"), [(FORWARD, True), (SAMPLES, False)])
def test_what_a_constant_costs_a_forward_pass_is_not_claimed_for_a_loop_around_it(
    text: str, claimed: bool
) -> None:
    chosen = Config.model_validate({"select": ["constant-rebuilt-every-step"], "min-confidence": 0.0})
    review = review_files(
        [whole_file("net.py", text.encode())], config=chosen, facts=NO_FACTS, limit_to_change=False
    )
    (finding,) = review.findings
    assert bool(finding.impact) is claimed


def test_what_is_claimed_for_one_kind_of_code_is_in_the_tables() -> None:
    for rule, scope in (*impact._OF_SUCH_CODE, *impact._OF_OTHER_CODE):
        assert scope in {i.scope for i in impact.of_rule(rule)}, (rule, scope)


def test_each_figure_of_a_wait_says_when_it_holds() -> None:
    code = (
        "import torch\n\n\ndef train(model, loader, optimizer):\n    for x, y in loader:\n        loss = model(x.cuda()).mean()\n"
        "        optimizer.zero_grad()\n        loss.backward()\n        optimizer.step()\n        print(loss.item())\n"
    )
    config = Config().model_copy(update={"min_confidence": 0.0, "select": ("item-every-step",)})
    review = review_files(
        [whole_file("train.py", code.encode())], config=config, facts=NO_FACTS, limit_to_change=False
    )
    (found,) = review.findings
    assert "where a step waits once: without it, steps of 2 to 8 ms took 0 to 2 % less time" in found.message
    (gain,) = found.impact
    assert gain.conditions.startswith("the first of two reads in a step")


FIGURE = re.compile(r": (\d[\d,]*\.\d\d)(?=;| in |$)")


def test_what_was_measured_on_a_gpu_agrees_with_the_figures_beside_it() -> None:
    """A slowdown is none that is rounded up to 1."""
    ours = [(rule.name, i) for rule in rules() for i in impact.of_rule(rule.name) if i.device == "cuda"]
    assert len(ours) > 50
    for name, gain in ours:
        for figure in FIGURE.findall(gain.conditions):
            assert gain.low <= float(figure.replace(",", "")) <= gain.high, (name, gain)


PER_PARAMETER = TRAINING.replace(
    "        torch.cuda.empty_cache()\n        print(loss.item())\n", ""
).replace("        optimizer.step()", "        {}\n        optimizer.step()")


@pytest.mark.parametrize(
    ("read", "claimed"),
    [
        ("losses.append(loss.item())", True),
        ("norms = [p.grad.norm().item() for p in model.parameters()]", False),  # hundreds of reads, not one
        ("for row in loss:\n            rows.append(row.norm().item())", False),
    ],
)
def test_a_published_gain_of_one_read_is_not_that_of_many(read: str, claimed: bool) -> None:
    config = Config().model_copy(update={"select": ("PTO101",), "min_confidence": 0.0, "skip": ()})
    file = whole_file("train.py", PER_PARAMETER.format(read).encode())
    (finding,) = review_files([file], config=config, facts=NO_FACTS, limit_to_change=False).findings
    assert any(i.provenance == "published" for i in finding.impact) is claimed
    assert (finding.severity == "medium") is ("parameters" in read)
