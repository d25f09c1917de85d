"""The textbook case of a rule gets a comment with the weights that ptopt carries, however few examples they were learned from."""

from __future__ import annotations

import difflib
import textwrap

import pytest

from ptopt.change import parse_diff
from ptopt.config import Config
from ptopt.findings import Finding
from ptopt.project.facts import NO_FACTS
from ptopt.review import review_change
from ptopt.verify import apply_edits

pytestmark = pytest.mark.usefixtures("learned_ranker")

EVALUATION = """\
import torch


@torch.no_grad()
def evaluate(model, loader):
    model.eval()
    correct = 0
    for x, y in loader:
        correct += (model(x).argmax(1) == y).sum()
    return correct
"""


def comments(base: str, head: str) -> list[Finding]:
    lines = difflib.unified_diff(base.splitlines(True), head.splitlines(True), "a/train.py", "b/train.py")
    change = parse_diff("".join(lines).encode(), {"train.py": head.encode()}.get)
    return list(review_change(change, config=Config(), facts=NO_FACTS).findings)


def test_no_grad_is_taken_out_of_an_evaluation() -> None:
    head = EVALUATION.replace("@torch.no_grad()\n", "").replace(
        "    correct = 0\n", "    wrong = 0\n    correct = 0\n"
    )
    (found,) = comments(EVALUATION, head)
    assert found.name == "no-grad-removed" and found.span.start == 4, (
        "the definition, not a line that came with it"
    )
    assert found.fix is not None and found.impact
    assert apply_edits(head, found.fix.edits).count("@torch.no_grad()\ndef evaluate") == 1
    assert (
        "takes out `@torch.no_grad()` here" in found.message
        or "takes out `torch.no_grad()` here" in found.message
    )


def test_no_grad_is_taken_out_of_code_that_may_want_gradients() -> None:
    base = textwrap.dedent(
        """\
        import torch


        @torch.no_grad()
        def features(encoder, x):
            return encoder(x)
        """
    )
    assert comments(base, base.replace("@torch.no_grad()\n", "")) == []


def test_a_cache_is_emptied_in_each_step() -> None:
    base = textwrap.dedent(
        """\
        import torch


        def train(model, loader, optimizer, criterion):
            for x, y in loader:
                loss = criterion(model(x.cuda()), y.cuda())
                loss.backward()
                optimizer.step()
                optimizer.zero_grad()
        """
    )
    (found,) = comments(base, base + "        torch.cuda.empty_cache()\n")
    assert found.name == "cache-cleared-every-step"


def test_losses_are_kept_with_their_graphs() -> None:
    base = textwrap.dedent(
        """\
        import torch


        def train(model, loader, optimizer, criterion):
            losses = []
            for x, y in loader:
                loss = criterion(model(x.cuda()), y.cuda())
                loss.backward()
                optimizer.step()
                optimizer.zero_grad()
            return losses
        """
    )
    head = base.replace(
        "        optimizer.step()\n", "        optimizer.step()\n        losses.append(loss)\n"
    )
    (found,) = comments(base, head)
    assert found.name == "metric-keeps-graph"
