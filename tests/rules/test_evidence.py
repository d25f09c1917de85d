"""What a finding points at."""

from __future__ import annotations

import pytest

from ptopt.rules import find_rule
from ptopt.rules.engine import run
from ptopt.rules.examples import as_file
from ptopt.rules.shared.places import frequency_evidence
from ptopt.source.file import SourceFile
from ptopt.source.frequency import Frequency, Often
from tests.rules.messages import messages

TRAINS_AND_EVALUATES = """\
import torch

def main(model, train_loader, val_loader, optimizer):
    for x, y in train_loader:
        loss = model(x).sum()
        loss.backward()
        optimizer.step()
        print(loss.item())
    model.eval()
    for x, y in val_loader:
        print(model(x).argmax(1).sum().item())
"""


def test_evidence_of_an_evaluation_is_not_in_the_training() -> None:
    rule = find_rule("evaluation-records-graph")
    assert rule is not None
    (hit,) = run(SourceFile.parse("train.py", TRAINS_AND_EVALUATES.encode()), [rule()])
    assert {evidence.line for evidence in hit.problem.evidence} <= {9, 10, 11}


MANY = [f"{name}_model" for name in ("first", "second", "third", "fourth", "fifth", "sixth")]
COMPARES = "\n".join(
    ["import torch", "x = load()", *(f"{model} = build().eval()" for model in MANY)]
    + [f"print({model}.forward(x).argmax(1))" for model in MANY]
)


def test_evidence_of_a_script_stands_in_the_order_of_the_passes() -> None:
    rule = find_rule("evaluation-records-graph")
    assert rule is not None
    (hit,) = run(SourceFile.parse("eval.py", COMPARES.encode()), [rule()])
    lines = [evidence.line for evidence in hit.problem.evidence if "eval mode" in evidence.note]
    assert lines == list(range(3, 9))


COUNTED = """\
import torch

@torch.no_grad()
def evaluate(net, loader):
    total = 0
    for x, y in loader:
        x = x.cuda()
        total += (net(x).argmax(1) == y.cuda()).sum().item()
    return total
"""


def test_the_line_of_a_loop_is_not_named_by_its_own_number() -> None:
    rule = find_rule("item-every-step")
    assert rule is not None
    (hit,) = run(SourceFile.parse("train.py", COUNTED.encode()), [rule()])
    assert [(e.line, e.note) for e in hit.problem.evidence] == [(6, "runs for each batch of this loop")]
    assert "the loop at line 6" in hit.problem.message


HISTOGRAMS = """
    def train(model, loader, optimizer):
        for step, (x, y) in enumerate(loader):
            loss = F.mse_loss(model(x.cuda()), y.cuda())
            loss.backward()
            optimizer.step()
            {guard}
                for name, value in model.named_parameters():
                    if not torch.isnan(value).any():
                        log_histogram(name, value.data.cpu())
"""


def test_a_loop_over_parameters_behind_a_guard_is_rare() -> None:
    for rule in ("branch-on-tensor", "host-copy-every-step"):
        assert messages(rule, HISTOGRAMS.format(guard="if model.training:"))
        assert not messages(rule, HISTOGRAMS.format(guard="if step % 100 == 0:"))


def test_the_batches_of_an_evaluation_behind_a_guard_still_count() -> None:
    evaluation = """
    def train(model, loader, val_loader, optimizer):
        for step, (x, y) in enumerate(loader):
            loss = F.mse_loss(model(x.cuda()), y.cuda())
            loss.backward()
            optimizer.step()
            if step % 100 == 0:
                for x, y in val_loader:
                    total += F.mse_loss(model(x.cuda()), y.cuda()).item()
    """
    assert messages("item-every-step", evaluation)


EVALUATES_WITHIN = """
    train_loader = DataLoader(data, batch_size=16, num_workers=4, pin_memory=True)
    val_loader = DataLoader(held_out, batch_size=1, num_workers=1, pin_memory={pinned})
    for step, batch in enumerate(train_loader):
        x, y = batch
        loss = F.l1_loss(model(x.to(device, non_blocking=True)), y.to(device, non_blocking=True))
        loss.backward()
        optimizer.step()
        if step % 1000 == 0:
            with torch.no_grad():
                for batch in val_loader:
                    x, y = batch
                    error = F.l1_loss(model(x.to(device)), y.to(device, non_blocking=True))
"""


def test_a_copy_in_a_loop_within_a_loop_is_of_the_inner_loader() -> None:
    (message,) = messages("blocking-copy-from-pinned-loader", EVALUATES_WITHIN.format(pinned=True))
    line = next(
        n for n, text in enumerate(as_file(EVALUATES_WITHIN).splitlines(), 1) if "val_loader =" in text
    )
    assert f"The loader at line {line} pins" in message
    assert not messages("blocking-copy-from-pinned-loader", EVALUATES_WITHIN.format(pinned=False))


def test_what_a_freed_graph_leaves_is_not_sized_without_knowing_it() -> None:
    (message,) = messages(
        "metric-keeps-graph",
        """
        def train(model, loader, optimizer):
            losses = []
            for x, y in loader:
                loss = F.mse_loss(model(x), y)
                loss.backward()
                optimizer.step()
                losses.append(loss)
            return losses
        """,
    )
    assert "a little memory for each step" in message
    assert "byte" not in message


@pytest.mark.parametrize(
    ("body", "advice"),
    [
        ('print("out of range", y.min())', "Test it every N steps, or behind a debug switch."),
        ("y = torch.clamp(y, -1, 1)", "Use `torch.where`, or test it every N steps."),
    ],
)
def test_a_branch_that_only_warns_is_not_advised_to_select(body: str, advice: str) -> None:
    (message,) = messages(
        "branch-on-tensor",
        f"""
        for x in loader:
            y = model(x.cuda())
            if torch.min(y) < -1.0:
                {body}
            y.mean().backward()
            optimizer.step()
        """,
    )
    assert advice in message


def test_only_the_own_loop_is_this_loop() -> None:
    reason = (
        "in each iteration of the loop at line 4, which runs on every step of the loop at line 42 of train.py"
    )
    note = frequency_evidence(Frequency(Often.STEP, 4, reason)).note
    assert note == (
        "runs in each iteration of this loop, which runs on every step of the loop at line 42 of train.py"
    )
    inside = frequency_evidence(Frequency(Often.STEP, 4, "on every step of the loop at line 42")).note
    assert inside == "runs on every step of the loop at line 42"
