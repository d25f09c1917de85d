"""A batch that is copied from pageable memory is one cause: of its loader where that is seen, else of the copy."""

from __future__ import annotations

import dataclasses

import pytest

from ptopt.change import whole_file
from ptopt.config import Config
from ptopt.project.facts import NO_FACTS
from ptopt.review import review_files

LINES = [
    "from torch.utils.data import DataLoader",
    "",
    "loader = DataLoader(dataset, batch_size=64, num_workers=4)",
    "for images, labels in loader:",
    "    loss = criterion(model(images.cuda()), labels.cuda())",
    "    loss.backward()",
    "    optimizer.step()",
]
CONFIG = Config.model_validate({"select": ["PTO204", "PTO236", "PTO302"], "min-confidence": 0.0})


def _found(lines: list[str], added: int | None) -> list[tuple[str, int, str]]:
    file = whole_file("train.py", "\n".join(lines).encode())
    if added is not None:
        file = dataclasses.replace(file, added=frozenset({added}))
    review = review_files([file], config=CONFIG, facts=NO_FACTS, limit_to_change=added is not None)
    return [(f.rule, f.span.start, f.message) for f in review.findings]


@pytest.mark.parametrize("added", [None, 3, 5])
def test_the_loader_and_the_copies_of_its_batches_are_one_comment(added: int | None) -> None:
    ((rule, line, message),) = _found(LINES, added)
    assert (rule, line) == ("PTO302", 5 if added == 5 else 3)
    assert ("in the loader at line 3" in message) == (added == 5)
    assert "non_blocking=True" in message


def test_copies_from_a_loader_that_is_not_seen_are_said_of_themselves() -> None:
    lines = [
        "import torch",
        "",
        "def train(loader, model, criterion, optimizer):",
        *(f"    {one}" for one in LINES[3:]),
    ]
    assert [(rule, line) for rule, line, _ in _found(lines, None)] == [("PTO236", 5)]


def test_copies_from_a_pinned_loader_that_is_seen_are_said_by_its_rule_alone() -> None:
    lines = [line.replace("num_workers=4", "num_workers=4, pin_memory=True") for line in LINES]
    file = whole_file("train.py", "\n".join(lines).encode())
    (found,) = review_files([file], config=CONFIG, facts=NO_FACTS, limit_to_change=False).findings
    assert {place.rule for place in found.places()} == {"PTO204"}


@pytest.mark.parametrize(("given", "advised"), [("", True), (", pin_memory=True", False)])
def test_the_loop_of_another_function_is_advised_to_pin_only_where_the_loaders_do_not(
    given: str, advised: bool
) -> None:
    lines = [
        "from torch.utils.data import DataLoader",
        "",
        "def make_loader(dataset):",
        f"    loader = DataLoader(dataset, num_workers=8{given})",
        "    return loader",
        "",
        "def train(loader, model, criterion, optimizer):",
        *(f"    {one}" for one in LINES[3:]),
    ]
    file = whole_file("train.py", "\n".join(lines).encode())
    (found,) = [
        f
        for f in review_files([file], config=CONFIG, facts=NO_FACTS, limit_to_change=False).findings
        if f.rule == "PTO236"
    ]
    assert ("With `pin_memory=True` in the loader" in found.message) == advised
    assert ("The loader at line 4 pins batches already" in found.message) != advised
    assert (found.impact[0].high > 1.1) == advised
