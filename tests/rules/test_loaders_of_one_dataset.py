"""Loaders over one class of dataset: named together, by what an item costs most."""

from __future__ import annotations

import textwrap

import pytest

from ptopt.config import Config
from ptopt.findings import Finding
from ptopt.project.facts import NO_FACTS
from ptopt.review import review_files
from ptopt.rules.examples import as_change

CODE = """\
import torch
from torch.utils.data import DataLoader, Dataset


class Pairs(Dataset):
    def __getitem__(self, i):
{item}
        return x, tokens


def loss_of(model, x, tokens):
    return F.cross_entropy(model(x), tokens)


def evaluate(model, loader):
    model.eval()
    return [loss_of(model, x.cuda(), tokens.cuda()) for x, tokens in loader]


def main(model, optimizer, files, held_out):
    train = DataLoader(Pairs(files), 32, shuffle=True)
    valid = DataLoader(Pairs(held_out), 32)
    for x, tokens in train:
        loss = loss_of(model, x.cuda(), tokens.cuda())
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    for x, tokens in valid:
        {evaluated}
"""
READS = """
tokens = self.tokenizer.encode(self.texts[i])
x = whisper.load_audio(self.paths[i])
"""
TRANSFORMS = """
tokens = self.tokenizer.encode(self.texts[i])
x = whisper.log_mel_spectrogram(self.sounds[i])
"""


def _found(item: str, evaluated: str = "losses.append(loss_of(model, x.cuda(), tokens.cuda()))") -> Finding:
    text = CODE.format(item=textwrap.indent(item.strip(), " " * 8), evaluated=evaluated)
    config = Config.model_validate({"select": ["PTO301"], "min-confidence": 0.0})
    (finding,) = review_files(
        [as_change("train.py", text)], config=config, facts=NO_FACTS, limit_to_change=False
    ).findings
    return finding


def test_the_loader_of_an_evaluation_through_a_function_is_named_and_corrected_too() -> None:
    finding = _found(READS)
    assert [place.span.start for place in finding.places()] == [22, 23]
    assert finding.fix is not None
    assert sum(edit.replacement.count("num_workers=4") for edit in finding.fix.edits) == 2


def test_a_loop_without_a_network_needs_no_workers() -> None:
    assert [place.span.start for place in _found(READS, "print(x.mean())").places()] == [22]


@pytest.mark.parametrize(("item", "named"), [(READS, "load_audio"), (TRANSFORMS, "log_mel_spectrogram")])
def test_the_costliest_call_is_the_reason(item: str, named: str) -> None:
    assert f"calls `whisper.{named}`" in _found(item).message
