"""A change that takes whole argument lines out of a call."""

from __future__ import annotations

import dataclasses

import pytest

from ptopt.config import Config
from ptopt.findings import TEXTBOOK
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
    change = as_change("data.py", text.format(removed=removed) if removed else text)
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


BARE = """\
import torch
from PIL import Image
from torch.utils.data import DataLoader, Dataset


class Pairs(Dataset):
    def __init__(self, rows):
        self.rows = rows

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, i):
        return to_tensor(Image.open(self.rows[i]))


def main(rows, model, optimizer):
    loader = DataLoader(
        # - Pairs(rows), 32, num_workers=8, pin_memory=True, persistent_workers=True
        {written}
    )
    for x in loader:
        loss = model(x.to("cuda")).mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
"""
ON_ONE_LINE = """\
    loader = DataLoader(
        # - Pairs(rows), 32, num_workers=8, pin_memory=True, persistent_workers=True
        {written}
    )
"""


def _comment(text: str) -> tuple[str, float]:
    """The rule that the comment on the loader is about, and its confidence."""
    config = Config.model_validate({"min-confidence": 0.0})
    review = review_files([as_change("train.py", text)], config=config, facts=NO_FACTS, limit_to_change=True)
    found = [
        f
        for f in review.findings
        if f.span.start >= 16 and {p.rule for p in f.places()} & {"PTO301", "PTO956"}
    ]
    return found[0].rule, found[0].confidence


@pytest.mark.parametrize("written", ["Pairs(rows), 32, num_workers=0", "Pairs(rows), 32", "Pairs(rows), 16"])
def test_workers_among_bare_arguments_lead_the_comment(written: str) -> None:
    rule, confidence = _comment(BARE.format(written=written))
    assert rule == "PTO956"
    assert confidence >= 0.7


def test_workers_of_a_call_on_one_line_lead_the_comment_when_dropped() -> None:
    text = BARE.replace(
        ON_ONE_LINE,
        "    # - loader = DataLoader(Pairs(rows), 32, num_workers=8)\n    loader = DataLoader({written})\n",
    )
    rule, confidence = _comment(text.format(written="Pairs(rows), 32"))
    assert rule == "PTO956"
    assert confidence >= 0.7


def test_workers_of_an_inner_call_are_not_those_of_the_outer_one() -> None:
    removed = "Pairs(rows), 32, num_workers=8, pin_memory=True, persistent_workers=True"
    text = BARE.replace(removed, "read(rows, num_workers=8), 32").format(written="Pairs(rows), 32")
    assert "PTO956" not in {rule for rule, _ in _found("", text)}


HANDED = """\
import torch
from torch.utils.data import DataLoader
from trainers import factory


def main(opt):
    dataset = Images(opt, transforms=build(opt))
    model = build_model(opt).cuda()
    loader = DataLoader(
        dataset,
        shuffle=True,
{changed}        drop_last=True,
    )
    trainer = factory[opt.task](model)
    for epoch in range(opt.epochs):
        trainer.{method}(epoch, loader)
"""
WRITTEN_AS_ZERO = "        # - num_workers=opt.num_workers,\n        num_workers=0,\n"
TAKEN_OUT = "        # - num_workers=opt.num_workers,\n"


def _confidence(changed: str, method: str) -> float | None:
    change = as_change("main.py", HANDED.format(changed=changed, method=method))
    config = Config.model_validate({"select": ["PTO956"], "min-confidence": 0.0})
    (finding,) = review_files([change], config=config, facts=NO_FACTS, limit_to_change=True).findings
    return finding.stated


def test_a_loader_that_a_method_trains_with_is_one_of_a_training_however_its_workers_go() -> None:
    assert _confidence(TAKEN_OUT, "train") == _confidence(WRITTEN_AS_ZERO, "train") == TEXTBOOK
    assert _confidence(TAKEN_OUT, "export") == _confidence(WRITTEN_AS_ZERO, "export") != TEXTBOOK


THROUGH_A_FUNCTION = """\
import torch
from torch.utils.data import DataLoader


def create_loader(datasets, num_workers, shuffles):
    loaders = []
    for dataset, workers, shuffle in zip(datasets, num_workers, shuffles):
        loaders.append(DataLoader(dataset, num_workers={given}, shuffle=shuffle))
    return loaders


def main(train, val, model, optimizer):
    first, second = create_loader(
        [train, val],
        # - num_workers=[4, 4], shuffles=[True, False],
        num_workers={workers}, shuffles=[True, False],
    )
    for batch in first:
        model(batch.cuda()).mean().backward()
        optimizer.step()
"""


@pytest.mark.parametrize(
    ("workers", "given", "found"),
    [
        ("[0, 0]", "workers", {("PTO956", "num_workers=[4, 4]")}),
        ("0", "num_workers", {("PTO956", "num_workers=[4, 4]")}),
        ("[4, 0]", "workers", set()),
        ("[0, 0]", "8", set()),  # it takes no notice
    ],
)
def test_a_function_that_builds_loaders_is_told_to_go_without_workers(
    workers: str, given: str, found: set[tuple[str, str]]
) -> None:
    change = as_change("main.py", THROUGH_A_FUNCTION.format(workers=workers, given=given))
    lines = THROUGH_A_FUNCTION.split("\n")
    written = next(n for n, line in enumerate(lines, start=1) if "num_workers={workers}" in line)
    change = dataclasses.replace(change, added=frozenset({written}))
    review = review_files([change], config=Config(), facts=NO_FACTS, limit_to_change=True)
    assert {(f.rule, f.message.split("`")[1]) for f in review.findings if f.rule == "PTO956"} == found
