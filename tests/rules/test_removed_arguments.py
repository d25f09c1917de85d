"""A change that takes whole argument lines out of a call."""

from __future__ import annotations

import dataclasses

import pytest

from ptopt.config import Config
from ptopt.project.facts import NO_FACTS
from ptopt.review import review_files
from ptopt.rules.examples import as_change

TWO_LOADERS = """\
import torch
from torch.utils.data import DataLoader


def loaders(train, val, args):
    first = DataLoader(
        train,
        batch_size=args.batch_size,
{removed}        drop_last=True,
    )
    second = DataLoader(
        val,
        num_workers=args.num_workers,
        pin_memory=args.pin_mem,
        persistent_workers=True,
    )
    return first.cuda(), second
"""
REMOVED = """\
        # - num_workers=args.num_workers,
        # - pin_memory=args.pin_mem,
        # - persistent_workers=args.num_workers > 0,
"""


def _found(removed: str, text: str = TWO_LOADERS) -> set[tuple[str, str]]:
    """(rule, what it says was taken out) on a change that only takes lines out."""
    change = as_change("data.py", text.format(removed=removed))
    change = dataclasses.replace(change, added=frozenset())
    config = Config.model_validate({"select": ["regressions"], "min-confidence": 0.0})
    review = review_files([change], config=config, facts=NO_FACTS, limit_to_change=True)
    return {
        (place.rule, place.message.split("`")[1])
        for finding in review.findings
        for place in finding.places()
        if place.message
    }


def test_the_other_loader_of_the_function_keeps_its_arguments() -> None:
    assert _found(REMOVED) == {
        ("PTO956", "num_workers=args.num_workers"),
        ("PTO951", "pin_memory=args.pin_mem"),
    }


@pytest.mark.parametrize("removed", REMOVED.splitlines(keepends=True)[:2])
def test_one_argument_alone(removed: str) -> None:
    argument = removed.strip("# -,\n")
    assert {text for _, text in _found(removed)} == {argument}


def test_options_that_are_passed_on_may_hold_it() -> None:
    text = TWO_LOADERS.replace("drop_last=True,", "**args.loader,", 1)
    assert _found(REMOVED, text) == set()


def test_persistent_workers_go_where_workers_stay() -> None:
    text = TWO_LOADERS.replace("drop_last=True,", "num_workers=4,", 1)
    removed = "        # - persistent_workers=True,\n        # - prefetch_factor=2,\n"
    assert _found(removed, text) == {("PTO957", "persistent_workers=True")}
