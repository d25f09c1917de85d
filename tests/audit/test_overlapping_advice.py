"""What the table and the findings both cover is advised once, and what is off is not advised about."""

from __future__ import annotations

import dataclasses
import html
import json
import re

import pytest

from ptopt.audit.advice import ADVICE
from ptopt.audit.plan import how_to_read, plan
from ptopt.audit.values import Audit, Gap, Level, Place, State
from ptopt.audit.weigh import each_once, weighed
from ptopt.findings import Impact, Severity
from ptopt.report.audit import render
from tests.audit.conftest import Auditor

TRAIN = """\
import argparse
import torch
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, IterableDataset, Sampler
from engine import train_one_epoch
from net import Net


class Data(IterableDataset):
    def __iter__(self):
        {body}


class Every(Sampler):
    def __iter__(self):
        while True:
            yield from torch.randperm(100).tolist()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--accum_iter", type=int, default={every})
    args = parser.parse_args()
    torch.distributed.init_process_group("nccl")
    model = DistributedDataParallel(Net().cuda())
    optimizer = torch.optim.AdamW(model.parameters())
    loader = DataLoader({loader}, num_workers=4)
    for epoch in range(10):
        train_one_epoch(model, loader, optimizer, args)


if __name__ == "__main__":
    main()
"""
ENGINE = """\
import torch.distributed as dist
from scaler import Scaler


def train_one_epoch(model, loader, optimizer, args):
    loss_scaler = Scaler()
    dist.barrier()
    accum_iter = args.accum_iter
    for step, (x, y) in enumerate(loader):
        loss = model(x.cuda(), y.cuda()) / accum_iter
        loss_scaler(loss, optimizer, parameters=model.parameters(), update_grad=(step + 1) % accum_iter == 0)
        if (step + 1) % accum_iter == 0:
            optimizer.zero_grad()
"""
SCALER = """\
import torch


class Scaler:
    def __init__(self):
        self.scaler = torch.cuda.amp.GradScaler()

    def __call__(self, loss, optimizer, parameters=None, update_grad=True):
        self.scaler.scale(loss).backward()
        if update_grad:
            self.scaler.step(optimizer)
            self.scaler.update()
"""
NET = """\
import torch
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.qkv = nn.Linear(64, 192)

    def forward(self, x, y):
        q, k, v = self.qkv(x).chunk(3, dim=-1)
        attn = (q @ k.transpose(-2, -1)) * 8 ** -0.5
        attn = attn.softmax(dim=-1)
        return ((attn @ v) - y).square().mean()
"""


def repository(every: int = 1, loader: str = "range(9)", body: str = "yield from range(9)") -> dict[str, str]:
    train = TRAIN.format(every=every, loader=loader, body=body)
    return {"train.py": train, "engine.py": ENGINE, "scaler.py": SCALER, "net.py": NET}


def state(audit: Audit, key: str) -> State:
    (entry,) = audit.entries
    return next(row.state for row in entry.measures if row.key == key)


def test_accumulation_that_is_off_gets_no_advice_on_its_gradients(audited: Auditor) -> None:
    """The backward pass stands in one file, what the script calls with a count in another."""
    on, off = audited(repository(every=4)), audited(repository(every=1))
    assert (state(on, "accumulation"), state(off, "accumulation")) == (State.ON, State.OFF)
    said = [{each.finding.name for each in audit.findings} for audit in (on, off)]
    assert "accumulation-syncs-every-micro-batch" in said[0]
    assert "accumulation-syncs-every-micro-batch" not in said[1]
    steps = [step.title for phase in off.plan for step in phase.steps]
    assert not any("accumulation" in title for title in steps)


def test_attention_is_advised_on_once(audited: Auditor) -> None:
    audit = audited(repository())
    assert state(audit, "attention") is State.OFF
    gaps = sum(gap.key == "attention" for gap in audit.gaps)
    findings = sum(
        each.finding.name in ("attention-by-hand", "attention-in-steps") for each in audit.findings
    )
    assert gaps + findings == 1
    steps = [step.title for phase in audit.plan for step in phase.steps]
    assert sum("attention" in title.lower() for title in steps) == 1


def test_what_weighs_more_says_it(audited: Auditor) -> None:
    """Of the file that both speak of; another file of the gap stays in it."""
    audit = audited(repository())
    (finding,) = (each for each in audit.findings if each.finding.name == "attention-by-hand")
    here, there = Place("net.py", 12), Place("other.py", 3)
    advice = ADVICE["attention"]
    gap = Gap(
        "attention", "Attention", Level.MODERATE, advice.action, advice.wrong_if, ("train.py",), (here,), ()
    )
    assert each_once([gap], (finding,)) == ((), (finding,))
    light = dataclasses.replace(finding, level=Level.LOW)
    assert each_once([gap], (light,)) == ((gap,), ())
    both = dataclasses.replace(gap, evidence=(here, there))
    ((left,), kept) = each_once([both], (finding,))
    assert left.evidence == (there,) and kept == (finding,)
    assert each_once([dataclasses.replace(gap, evidence=(there,))], (light,))[1] == (light,)


@pytest.mark.parametrize(
    ("loader", "body"),
    [
        ("range(100), sampler=Every()", "yield from range(9)"),
        ("Data()", "while True:\n            yield torch.rand(3)"),
        ("range(100), sampler=mmengine.InfiniteSampler(100)", "yield from range(9)"),
    ],
)
def test_an_endless_loader_starts_its_workers_once(audited: Auditor, loader: str, body: str) -> None:
    audit = audited(repository(loader=loader, body=body))
    assert state(audit, "persistent_workers") is State.NOT_APPLICABLE
    assert "persistent_workers" not in {gap.key for gap in audit.gaps}
    assert state(audit, "workers") is State.ON


@pytest.mark.parametrize(
    ("loader", "body"),
    [
        ("range(100)", "yield from range(9)"),
        ("Data()", "yield from range(9)"),
        ("Data()", "while True:\n            yield 1\n            if torch.rand(1) > 0.9:\n                break"),
    ],
)  # fmt: skip
def test_a_loader_that_ends_starts_them_again(audited: Auditor, loader: str, body: str) -> None:
    assert state(audited(repository(loader=loader, body=body)), "persistent_workers") is State.OFF


def test_a_step_of_the_plan_stands_once_and_says_where(audited: Auditor) -> None:
    """The same is said of two files, of which one weighs more."""
    audit = audited(repository())
    (finding,) = (each for each in audit.findings if each.finding.name == "attention-by-hand")
    elsewhere = dataclasses.replace(finding.finding, path="other.py")
    light = dataclasses.replace(finding, finding=elsewhere, level=Level.LOW, also=(Place("third.py", 7),))
    (phase,) = plan((), (finding, light))
    (step,) = phase.steps
    assert [place.path for place in step.places] == ["net.py", "other.py", "third.py"]
    text = " ".join(render("terminal", dataclasses.replace(audit, plan=(phase,)), width=200).split())
    assert f"- {step.places[0]} and 2 other places: {finding.finding.rule} attention-by-hand:" in text


def test_code_that_no_listed_script_runs_is_run_on_no_step_of_one(audited: Auditor) -> None:
    audit = audited(repository())
    (found,) = (each.finding for each in audit.findings if each.finding.name == "attention-by-hand")
    trains = (("often:step", 1.0), ("often:in training", 1.0))
    for path, features, reason in (
        ("net.py", trains, "on every step"),
        ("net.py", trains[:1], "on each call"),
        ("serve.py", trains, "on each call; no listed script is known to run it"),
        ("serve.py", (*trains, ("in a loop", 1.0)), "on every step; no listed script is known to run it"),
    ):
        placed = dataclasses.replace(found, path=path, features=features)
        assert weighed(placed, 0.0, audit.entries).reason == reason


FORWARDS = """\
import torch
from torch import nn
from torch.utils.data import DataLoader


class Net(nn.Module):
    def __init__(self, slow=False):
        super().__init__()
        self.slow = slow

    def forward(self, x):
        if self.slow:
            return self.other(x)
        return self.used(x)

    def used(self, x):
        return x * torch.arange(x.shape[0]).to(x.device)

    def other(self, x):
        return x * torch.arange(x.shape[0]).to(x.device)

    def encode(self, x):
        return self.unused(x)

    def unused(self, x):
        return x * torch.arange(x.shape[0]).to(x.device)


net = Net()
for x in DataLoader(rows):
    loss = net(x.cuda()).mean()
    loss.backward()
    optimizer.step()
"""


def test_how_often_code_runs_is_said_as_far_as_it_is_known(audited: Auditor) -> None:
    """What options keep from running, and methods that nothing calls, stand in a file that the script runs."""
    audit = audited({"train.py": FORWARDS})
    (found, *_) = (each.finding for each in audit.findings)
    features = (("often:step", 1.0), ("often:in training", 1.0), ("often by:callers", 1.0))
    reasons = []
    for name in ("used", "other", "unused"):
        line = FORWARDS.splitlines().index(f"    def {name}(self, x):") + 2
        placed = dataclasses.replace(
            found,
            name="factory-then-move",
            span=dataclasses.replace(found.span, start=line, end=line),
            symbol=f"Net.{name}",
            severity=Severity.MEDIUM,
            features=features,
        )
        reasons.append(weighed(placed, 0.0, audit.entries).reason)
    seldom = "on each call; no listed script is known to run it"
    assert reasons == ["on every step", seldom, seldom]


def test_a_rule_whose_fix_is_not_everywhere_is_one_step_with_the_command(audited: Auditor) -> None:
    """The effort is that of the places without a fix; the command names the files of all."""
    audit = audited(repository())
    (found,) = (each for each in audit.findings if each.finding.name == "attention-by-hand")
    unfixed = dataclasses.replace(found.finding, path="my other.py", fix=None)
    light = dataclasses.replace(found, finding=unfixed, level=Level.LOW)
    (phase,) = plan((), (found, light))
    (step,) = phase.steps
    command = "ptopt fix --unsafe --select PTO601 net.py 'my other.py'"
    assert (phase.title, step.effort, step.command) == ("Next", "an hour", command)
    whole = dataclasses.replace(audit, plan=(phase,))
    for style in ("terminal", "markdown", "html"):
        text = " ".join(re.sub("<[^>]*>", "", html.unescape(render(style, whole))).split())
        assert f"an hour, less with {command}" in text.replace("`", "")
    assert json.loads(render("json", whole))["plan"][0]["steps"][0]["command"] == command
    ((quick,), nothing) = (phase.steps for phase in (*plan((), (found,)), *plan((), (light,))))
    assert (quick.effort, quick.command) == ("a suggested edit", "ptopt fix --unsafe --select PTO601 net.py")
    assert [step.command for step in nothing] == [""]


def test_the_plan_says_which_command_writes_what_a_row_advises(audited: Auditor) -> None:
    audit = audited(repository())
    (found,) = (each.finding for each in audit.findings if each.finding.name == "attention-by-hand")
    (gap,) = (gap for gap in audit.gaps if gap.key == "pin_memory")
    known = dataclasses.replace(
        found, rule="PTO501", name="loader-without-pinning", path=gap.evidence[0].path
    )
    elsewhere = dataclasses.replace(known, path="elsewhere.py")
    for in_table, command in (
        ((known, elsewhere), f"ptopt fix --unsafe --select PTO501 {known.path}"),
        ((elsewhere,), ""),
    ):
        ((step,),) = (phase.steps for phase in plan((gap,), (), in_table))
        assert step.command == command


@pytest.mark.parametrize(
    ("gains", "said"),
    [
        (("time",), "; speeds up: the forward pass; at"),
        (("memory",), "; less memory for: the forward pass; at"),
        (("time", "memory"), "; speeds up: the forward pass; less memory for: the forward pass; at"),
        ((), "net.py`; at"),
    ],
)
def test_the_plan_says_of_a_finding_what_its_figures_say(
    audited: Auditor, gains: tuple[str, ...], said: str
) -> None:
    audit = audited(repository())
    (finding,) = (each for each in audit.findings if each.finding.name == "attention-by-hand")
    figures = tuple(
        Impact(gain, 1.1, 1.2, "the forward pass", "", "published", "https://example.org") for gain in gains
    )
    finding = dataclasses.replace(finding, finding=dataclasses.replace(finding.finding, impact=figures))
    (line,) = [
        line
        for line in render("markdown", dataclasses.replace(audit, plan=plan((), (finding,)))).splitlines()
        if "Effort:" in line
    ]
    assert said in line
    assert ("speeds up" in line, "less memory" in line) == ("time" in gains, "memory" in gains)


def test_of_ranges_that_overlap_those_of_the_plan_are_named() -> None:
    def notes(*keys: str) -> tuple[str, ...]:
        return how_to_read(tuple(Gap(key, key.title(), Level.LOW, "", "", (), ()) for key in keys))

    assert notes() == ()
    (share,) = notes("pin_memory", "compile")
    assert share.startswith("A factor holds for the part")
    assert notes("tf32", "pin_memory", "compile")[0].startswith(
        "Gains on the same part of a step overlap: Tf32 and Compile both shorten the forward"
    )
    assert ": Precision, Tf32 and Compile all shorten" in notes("precision", "tf32", "compile", "compile")[0]


def test_a_comment_reads_with_a_title_in_the_plural_and_a_step_that_gains_nothing(audited: Auditor) -> None:
    tf32 = Gap("tf32", "TF32 matrix products", Level.LOW, "", "", (), ())
    monitoring = Gap("monitoring", "Monitoring", Level.LOW, "", "", (), ())
    audit = dataclasses.replace(audited(repository()), gaps=(tf32, monitoring))
    text = render("markdown", dataclasses.replace(audit, plan=plan(audit.gaps, ())))
    assert "- **TF32 matrix products**: off in " in text
    assert "; speeds up: no step by itself, but shows what to do next" in text
