"""PTO501 on code that collects what a network gives for many batches, without eval mode."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

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


def _lines(text: str, around: Mapping[str, str] = MappingProxyType({})) -> list[int]:
    config = Config.model_validate({"select": ["PTO501"], "min-confidence": 0.0})
    review = review_files(
        [as_change("work.py", text)],
        config=config,
        facts=NO_FACTS,
        limit_to_change=False,
        around={path: other.encode() for path, other in around.items()},
    )
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


STACKED = CODE.format(name="stack_all", body="out.append(model(x).cpu())")
ADDED = """\
import torch


def total_of(model, batches):
    total = 0.0
    for x in batches:
        total += model.encoder(x).sum()
    return total
"""
WORK = """\
from work import stack_all, total_of


def index(model, batches):
    save(stack_all(model, batches), total_of(model, batches))
"""
TRAINS = f"""{WORK}

def train(model, batches, optimizer):
    loss(model(batches[0])).backward()
    optimizer.step()
"""


@pytest.mark.parametrize("text", [STACKED, ADDED])
def test_what_is_collected_where_no_caller_trains(text: str) -> None:
    assert _lines(text, {"index.py": WORK}) == [7]
    assert _lines(text, {"index.py": TRAINS}) == []
    assert _lines(text) == [], "nobody knows who calls it"
    assert _lines(f"{text}\n\ndef step(optimizer, loss):\n    loss.backward()\n", {"index.py": WORK}) == []


SCRIPT = """\
import torch

model = load("tiny")
x = torch.randn(1, 80, 3000)
total = 0.0
for i in range(100):
    total += model.encoder(x).sum()
{after}
"""


def test_a_script_that_adds_up_what_a_network_gives() -> None:
    assert _lines(SCRIPT.format(after="print(total)")) == [7]
    assert _lines(SCRIPT.format(after="update(model, total)")) == []
    assert _lines(SCRIPT.format(after="total.backward()")) == []


def test_a_network_that_is_tried_out_on_made_up_numbers() -> None:
    code = """\
import torch


def probe(model):
    total = 0.0
    x = {made}
    for i in range(100):
        total += model.encoder(x).sum()
    return total
"""
    assert _lines(code.format(made="torch.randn(1, 80, 3000)")) == [8]
    assert _lines(code.format(made="torch.randn(1, 80, 3000, requires_grad=True)")) == []
    assert _lines(code.format(made="batch_of(model)")) == []
