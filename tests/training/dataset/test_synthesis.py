from __future__ import annotations

import ast
import re
import textwrap

import pytest

from ptopt.model.deletions import DELETABLE, only_deletes, takes_away
from ptopt.rules.base import SURE
from training.dataset import rule_examples
from training.dataset.regions import regions
from training.dataset.rows import NOTHING, Positive, Sample, instruct_row, numbered
from training.dataset.synthesis import Origin, review, samples_of

ORIGIN = Origin("demo", "MIT", "packages", "demo==1")
FILE = """\
import torch
from torch import nn
import torch.nn.functional as F


class Trainer:
    def fit(self, model, loader, optimizer):
        for step, (x, y) in enumerate(loader):
            loss = F.cross_entropy(model(x.cuda()), y.cuda())
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()


def report(loss, writer, model):
    value = torch.sum(loss).item()
    writer.write(value)
    return value


class Net(nn.Module):
    def forward(self, x):
        x = self.proj(x)
        position = torch.arange(x.size(1), device=x.device)
        return x + self.embedding(position)
"""

DOUBTED = """\
import json
import lightning as pl


class Net(pl.LightningModule):
    def training_step(self, batch, batch_idx):
        lengths = self.generate(batch).sum(dim=1)
        with open(self.path, "w") as out:
            json.dump({"length": lengths[0].item()}, out)
        return self.loss(lengths)
"""


@pytest.fixture(scope="module")
def samples() -> list[Sample]:
    return [sample for region in regions("demo/a.py", FILE) for sample in samples_of(region, ORIGIN)]


def repaired(sample: Sample, positive: Positive) -> str:
    lines = sample.text.split("\n")
    new = (positive.replacement or "").split("\n") if positive.replacement else []
    return "\n".join([*lines[: positive.fix_start - 1], *new, *lines[positive.fix_end :]])


def test_a_training_loop_gives_many_problems_and_look_alikes(samples: list[Sample]) -> None:
    rules = {s.main_rule for s in samples if s.kind == "mutated"}
    assert {"item-every-step", "synchronize-every-step", "graph-retained", "factory-then-move"} <= rules
    assert {"item-every-step", "cache-cleared-every-step"} <= {
        s.main_rule for s in samples if s.kind == "guarded"
    }
    assert any(s.kind == "original" for s in samples)


def test_positives_name_lines_of_the_text(samples: list[Sample]) -> None:
    for sample in samples:
        count = sample.text.count("\n")
        for p in sample.positives:
            assert 1 <= p.fix_start <= p.start <= p.end <= count
            assert p.end <= p.fix_end <= count


def test_the_replacement_of_a_mutation_gives_the_original(samples: list[Sample]) -> None:
    mutated = [s for s in samples if s.kind == "mutated"]
    for sample in mutated:
        about = next(p for p in sample.positives if p.rule == sample.main_rule)
        if about.replacement is None:
            assert sample.before is sample.after is None
            continue
        assert sample.before == sample.text
        assert repaired(sample, about) == sample.after
    assert sum(sample.after is not None for sample in mutated) > 10


def test_no_answer_takes_code_away_that_the_program_needs(samples: list[Sample]) -> None:
    """Where a mutation put a line in, the answer keeps what the line does; few rules are about lines that do nothing."""
    answered, deleted = {}, set()
    for sample in samples:
        for p in sample.positives:
            if p.replacement is not None:
                whole = (
                    f"{sample.context}{_indented(sample, text)}"
                    for text in (sample.text, repaired(sample, p))
                )
                before, after = map(ast.parse, whole)
                assert not takes_away(p.rule, before, after), (p, sample.text)
                answered[p.rule] = p.replacement
                if only_deletes(before, after):
                    deleted.add(p.rule)
    # What is read is the same, behind the loop.
    for rule in ("item-every-step", "host-copy-every-step"):
        inside, _, behind = answered[rule].rpartition("\n")
        assert "loss.detach()" in inside and not re.search(r"\.item\(|\.cpu\(|float\(", inside)
        assert re.search(r"= float\(|torch\.stack", behind)
    # Less often is less: no answer. Nor where the way to it leads through code that is not shown.
    assert not answered.keys() & {"tensor-logged-every-step", "synchronous-save-every-step"}
    assert not answered.keys() & {"module-built-in-forward", "device-move-in-dataset"}
    assert ".where(" in answered["branch-on-tensor"] and "if " not in answered["branch-on-tensor"]
    assert "loss.detach()" in answered["metric-keeps-graph"]
    assert answered["optimizer-built-in-loop"].index("torch.optim") < answered[
        "optimizer-built-in-loop"
    ].index("for ")
    assert {"synchronize-every-step", "cache-cleared-every-step"} <= deleted <= DELETABLE


def _indented(sample: Sample, text: str) -> str:
    return (
        textwrap.indent(text, "    ")
        if sample.context.rstrip().rpartition("\n")[2].startswith(("class ", "    "))
        else text
    )


def test_samples_without_a_problem_say_so(samples: list[Sample]) -> None:
    for sample in samples:
        if sample.kind in ("guarded", "corrected"):
            assert sample.negatives == (sample.main_rule,) and sample.lines_of(sample.main_rule)
            assert instruct_row(sample)["output"].startswith(NOTHING)
        if sample.kind == "original":  # silence of the rules is no "no" to any of them
            assert not sample.positives and not sample.negatives
            assert instruct_row(sample)["output"] == NOTHING
            assert instruct_row(sample)["metadata"]["label"] == "no"


def test_what_a_rule_proposes_with_doubt_is_no_example_of_code_without_a_problem() -> None:
    """Nobody read it. A model that learns silence there is silent where it is asked: where no rule is sure."""
    (region,) = regions("demo/a.py", DOUBTED)
    found = review(region.path, region.as_file())
    assert found and all(f.confidence < SURE for f in found)
    for sample in samples_of(region, ORIGIN):
        assert sample.positives and not {f.name for f in found}.intersection(sample.negatives)


RARE = """\
import torch


class Trainer:
    def step(self, model, x, optimizer):
        loss = model(x.cuda())
        if not torch.isfinite(loss):
            optimizer.zero_grad()
            return
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
"""


def test_what_runs_now_and_then_is_no_problem() -> None:
    made = [s for region in regions("a.py", RARE) for s in samples_of(region, ORIGIN)]
    slow = [s for s in made if s.kind == "mutated" and s.main_rule == "zero-grad-keeps-tensors"]
    assert slow and all(s.text.split("\n")[s.positives[0].start - 1].startswith("    opt") for s in slow)


def test_one_wait_of_several_is_no_problem() -> None:
    text = FILE.replace(
        "            optimizer.step()\n", "            optimizer.step()\n            print(loss.item())\n"
    )
    made = [s for region in regions("a.py", text) for s in samples_of(region, ORIGIN)]
    assert not [
        s for s in made if s.kind == "mutated" and s.main_rule in ("item-every-step", "branch-on-tensor")
    ]


def test_a_sample_survives_its_json(samples: list[Sample]) -> None:
    for sample in [*samples, *rule_examples.examples()]:
        assert Sample.from_json(sample.to_json()) == sample


def test_the_seeds_are_labelled_as_the_rules_have_them() -> None:
    found = rule_examples.examples()
    assert sum(bool(s.positives) for s in found) > 150
    assert sum(not s.positives for s in found) > 200
    assert {s.project for s in found} == {"ptopt"}


def test_expected_speedup_names_its_source(samples: list[Sample]) -> None:
    told = {instruct_row(s)["metadata"]["expected_speedup"] for s in rule_examples.examples() if s.positives}
    assert any("measured: " in text for text in told)
    assert all(text == "" or "measured" in text or "published" in text for text in told)


def test_lines_are_numbered_from_one() -> None:
    assert numbered("a\nb\n") == "1| a\n2| b"
    assert numbered("\n" * 9 + "z").split("\n")[0] == " 1| "
