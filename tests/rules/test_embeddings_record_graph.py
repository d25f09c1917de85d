"""PTO501 on code that collects what a network gives for many batches, without eval mode."""

from __future__ import annotations

import pytest

from ptopt.config import Config
from ptopt.project.facts import NO_FACTS
from ptopt.review import review_files
from ptopt.rules.examples import as_change

CODE = """\
import torch


def {name}(model, batches):
    out = []
    for x in batches:
        {body}
    return torch.cat(out)
"""


def _lines(text: str) -> list[int]:
    config = Config.model_validate({"select": ["PTO501"], "min-confidence": 0.0})
    review = review_files([as_change("work.py", text)], config=config, facts=NO_FACTS, limit_to_change=False)
    return [place.span.start for finding in review.findings for place in finding.places()]


@pytest.mark.parametrize("name", ["embed", "encode", "predict_all", "embed_batch"])
@pytest.mark.parametrize(
    "body",
    [
        "out.append(model(**x).last_hidden_state.cpu())",
        'out.append(model(x).to("cpu"))',
        "made = model(x)\n        out.append(made.mean(dim=1).cpu())",
    ],
)
def test_results_collected_on_the_host(name: str, body: str) -> None:
    assert _lines(CODE.format(name=name, body=body)) == [7]


@pytest.mark.parametrize(
    ("name", "body"),
    [
        ("embed", "out.append(model(x))"),  # as likely run by its training
        ("stack", "out.append(model(x).cpu())"),
        ("embed", "out.append(model(x.cpu()))"),  # the batch is copied, not the result
        ("embed", "with torch.no_grad():\n            out.append(model(x).cpu())"),
    ],
)
def test_what_may_be_trained_is_left_alone(name: str, body: str) -> None:
    assert _lines(CODE.format(name=name, body=body)) == []


def test_a_training_that_calls_it_needs_the_graph() -> None:
    text = CODE.format(name="embed", body="out.append(model(x).cpu())")
    text += """

def train(model, loader, optimizer):
    for batches in loader:
        loss = embed(model, batches).mean()
        loss.backward()
        optimizer.step()
"""
    assert _lines(text) == []
