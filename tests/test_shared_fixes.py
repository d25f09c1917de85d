"""The fix of a comment with several places: which places it edits, and which rules may stand in its way."""

from __future__ import annotations

import textwrap

from ptopt.change import ChangedFile, Hunk, Status, whole_file
from ptopt.config import Config
from ptopt.findings import Finding
from ptopt.project.facts import NO_FACTS
from ptopt.review import review_files

COPIES = """
    from torch.utils.data import DataLoader

    def train(model, dataset, optimizer, criterion, device, weighted):
        loader = DataLoader(dataset, batch_size=8, num_workers=4, shuffle=True, pin_memory=True)
        for batch in loader:
            images = batch["image"].to(device)
            loss = criterion(model(images))
            if weighted:
                weight = batch["weight"].to(device)
                loss = loss * weight
            loss.mean().backward()
            optimizer.step()
    """
READS = """
    import torch

    @torch.inference_mode()
    def evaluate(model, loader, classes, inter, union):
        for images, masks in loader:
            labels = model(images).argmax(dim=1)
            for c in range(classes):
                inter[c] += ((labels == c) & (masks == c)).sum().item(){comment}
                union[c] += ((labels == c) | (masks == c)).sum().item()
    """


def found(code: str, *selected: str, of_a_change: bool) -> list[Finding]:
    data = textwrap.dedent(code).encode()
    config = Config().model_copy(update={"select": selected, "min_confidence": 0.0, "skip": ()})
    count = data.count(b"\n")
    added = ChangedFile(
        "train.py", None, Status.MODIFIED, (Hunk(1, count),), frozenset(range(1, count + 1)), data
    )
    file = added if of_a_change else whole_file("train.py", data)
    return list(review_files([file], config=config, facts=NO_FACTS, limit_to_change=of_a_change).findings)


def test_the_copies_of_a_pinned_loader_have_one_rule_and_one_fix() -> None:
    both = found(COPIES, "PTO204", "PTO236", of_a_change=False)
    assert {place.rule for finding in both for place in finding.places()} == {"PTO204"}
    (finding,) = both
    assert finding.fix is not None
    assert len(finding.fix.edits) == 2


def test_the_fix_of_a_change_leaves_suppressed_code_alone() -> None:
    plain = found(READS.format(comment=""), "PTO101", of_a_change=True)
    assert [len(f.fix.edits) for f in plain if f.fix is not None] == [2]
    kept = READS.format(comment="  # ptopt: ignore[item-every-step]")
    (finding,) = found(kept, "PTO101", of_a_change=True)
    assert finding.fix is not None
    line = textwrap.dedent(kept).encode().index(b"# ptopt")
    assert [edit.start > line for edit in finding.fix.edits] == [True]


SENT = """
    import torch

    def sample(model, x, timesteps, device):
        for i, t in enumerate(timesteps):
            step = torch.tensor([t] * len(x), device=device)
            scale = torch.ones(x.size(0)).to(device)
            x = model(x, step, scale)
            shift = torch.zeros(x.size(0)).to(device)
            x = x + shift
        return x
    """


def test_another_rule_of_the_comment_without_a_fix_does_not_take_the_fix_away() -> None:
    (finding,) = found(SENT, "PTO201", "PTO235", of_a_change=False)
    assert finding.rule == "PTO201" and "PTO235" in {place.rule for place in finding.also}
    assert finding.fix is not None and len(finding.fix.edits) == 4  # `ptopt fix` makes both
