"""Verdicts of readers, and the code they are about, become what a judge is asked in a review."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from ptopt.model import prompt
from ptopt.model.region import Candidate, fit, regions_of
from ptopt.source.file import SourceFile
from tests.training.sources.test_commits import Repository
from tests.training.texts import GPL, MIT
from training.__main__ import main
from training.dataset import licences
from training.dataset.dedup import Evaluation, evaluation_texts
from training.dataset.rows import Sample
from training.dataset.split import select
from training.dataset.verdicts import (
    ALONE,
    CONFLICT,
    NO_CLONE,
    NO_FILE,
    UNDECIDED,
    held_out_texts,
    judged_samples,
)
from training.dataset.views import advise_example, explain_example, judge_examples

REPO = "acme/net"
CODE = """\
import os
import torch
from torch import nn


class Trainer(Base):
    def fit(self, model, loader, optimizer):
        for batch in loader:
            loss = model(batch.cuda())
            loss.backward()
            optimizer.step()
            self.total += loss.item()
            self.seen.append(loss.detach().cpu())
        return self.total


def once(model):
    torch.cuda.empty_cache()
    return model.weight.sum().item()


seen = torch.zeros(3)
seen = seen.cuda()
print(seen.sum().item())
"""


def verdict(sha: str, line: int, rule: str, said: str, **more: Any) -> dict[str, Any]:
    facts = {"how_often": "step", "device": "accelerator", "small": False}
    row = {"repo": REPO, "sha": sha, "path": "train.py", "start": line, "end": line, "rule": rule}
    return {**row, "verdict": said, "reason": "read", "facts": facts, "features": {}, **more}


@pytest.fixture
def clones(tmp_path: Path) -> Path:
    (tmp_path / "clones").mkdir()
    return tmp_path / "clones"


@pytest.fixture
def sha(clones: Path) -> str:
    return Repository(clones / "acme+net").commit("start", LICENSE=MIT, train_py=CODE)


@pytest.fixture
def file_of(tmp_path: Path) -> Callable[..., Path]:
    def make(*rows: dict[str, Any], part: str = "work") -> Path:
        place = tmp_path / f"{part}.jsonl"
        place.write_text("".join(json.dumps(row) + "\n" for row in rows))
        return place

    return make


def test_a_judge_is_asked_what_a_review_would_ask_it(
    clones: Path, sha: str, file_of: Callable[..., Path]
) -> None:
    said = file_of(
        verdict(sha, 12, "item-every-step", "R"),
        verdict(sha, 13, "host-copy-every-step", "T"),
        verdict(sha, 18, "cache-cleared-every-step", "W"),
        verdict(sha, 24, "item-every-step", "W"),
    )
    made = judged_samples([said], clones)
    assert not +made.left_out
    source = SourceFile.parse("train.py", CODE.encode())
    asked: dict[str, bool] = {}
    for sample in made.samples:
        assert Sample.from_json(sample.to_json()) == sample
        assert advise_example(sample) is None and explain_example(sample) is None
        for question, answers in judge_examples(sample):
            # The same code, facts and lines as of the whole file in a review.
            lines = {"fit": (12, 13), "once": (18,), "": (24,)}[
                sample.provenance.rpartition("::")[2].rpartition(".")[2]
            ]
            rules = [*(p.rule for p in sample.positives), *sample.negatives]
            pairs = {
                ("item-every-step", 12),
                ("host-copy-every-step", 13),
                ("cache-cleared-every-step", 18),
                ("item-every-step", 24),
            }
            candidates = [Candidate(r, (n,)) for r in rules for n in lines if (r, n) in pairs]
            (region,) = (r for r in regions_of(source, None, candidates) if r.candidates)
            served = prompt.judge(fit(region, 128))[0].pieces
            assert question.pieces[0].rpartition("\n")[0] == served[0].rpartition("\n")[0]
            assert {piece.rpartition("\n")[2] for piece in question.pieces} == {
                piece.rpartition("\n")[2] for piece in served
            }
            for piece, answer in zip(question.pieces, answers, strict=True):
                asked[f"{region.symbol} {piece.rpartition(chr(10))[2].partition(':')[0]}"] = answer
    assert asked == {
        "Trainer.fit Line 6, item-every-step": True,
        "Trainer.fit Line 7, host-copy-every-step": False,
        "once Line 2, cache-cleared-every-step": False,
        " Line 3, item-every-step": False,
    }


def test_what_readers_do_not_agree_on_is_left_out(
    clones: Path, sha: str, file_of: Callable[..., Path]
) -> None:
    said = file_of(
        verdict(sha, 12, "item-every-step", "R", second={"verdict": "T", "reason": "small"}),
        verdict(sha, 12, "item-every-step", "U"),
        verdict(sha, 12, "item-every-step", "R", dated="2016"),
        verdict(sha, 12, "host-copy-every-step", "R"),
        verdict(sha, 13, "host-copy-every-step", "W"),
        verdict("0" * 40, 12, "item-every-step", "R"),
        {**verdict(sha, 12, "item-every-step", "R"), "repo": "acme/other"},
    )
    made = judged_samples([said], clones)
    assert made.samples == []
    assert made.left_out == {UNDECIDED: 3, CONFLICT: 2, NO_FILE: 1, NO_CLONE: 1}


def test_a_function_that_is_none_without_its_file_is_left_out(
    clones: Path, file_of: Callable[..., Path]
) -> None:
    lines = [
        "class A:",
        "    def fit(self, x):",
        "        '''Of the margin",
        "here.'''",
        "        return x.item()",
        "",
    ]
    sha = Repository(clones / "acme+net").commit("start", LICENSE=MIT, train_py="\n".join(lines))
    made = judged_samples([file_of(verdict(sha, 5, "item-every-step", "R"))], clones)
    assert made.samples == [] and +made.left_out == {ALONE: 1}


def test_the_part_judge_is_never_trained_on(clones: Path, sha: str, file_of: Callable[..., Path]) -> None:
    row = verdict(sha, 12, "item-every-step", "R")
    for repository, part in (("acme/net", "judge"), ("CompVis/latent-diffusion", "calibrate")):
        out = clones.parent / "out.jsonl"
        options = ["--clones", str(clones), "--out", str(out)]
        said = str(file_of({**row, "repo": repository}, part=part))
        done = CliRunner().invoke(main, ["data", "verdicts", said, *options])
        assert done.exit_code == 1 and "judge" in done.output and not out.exists()


def test_code_under_another_licence_needs_an_opt_in(clones: Path, file_of: Callable[..., Path]) -> None:
    sha = Repository(clones / "acme+net").commit("start", LICENSE=GPL, train_py=CODE)
    said = file_of(verdict(sha, 12, "item-every-step", "R"))
    assert judged_samples([said], clones).samples == []
    assert len(judged_samples([said], clones, [licences.UNKNOWN]).samples) == 1


def test_parts_are_splits_and_what_was_judged_comes_first(
    clones: Path, sha: str, file_of: Callable[..., Path]
) -> None:
    (judged,) = judged_samples([file_of(verdict(sha, 12, "item-every-step", "T"))], clones).samples
    assert judged.attributes["split"] == "train"
    others = [
        Sample.from_json(
            judged.to_json().replace('"kind": "judged"', '"kind": "original"').replace("seen", f"seen{n}")
        )
        for n in range(9)
    ]
    assert judged in select([*others, judged], 2, 0)
    row = {**verdict(sha, 12, "item-every-step", "T"), "repo": "ACEsuit/mace"}
    Repository(clones / "ACEsuit+mace").commit("start", LICENSE=MIT, train_py=CODE)
    head = Repository.git(_at(clones / "ACEsuit+mace"), "rev-parse", "HEAD")
    (held,) = judged_samples([file_of({**row, "sha": head}, part="calibrate")], clones).samples
    assert held.attributes["split"] == "validation"


def _at(path: Path) -> Repository:
    repository = Repository.__new__(Repository)
    repository.path = path
    return repository


def test_what_the_labels_speak_of_is_not_trained_on(
    clones: Path, sha: str, file_of: Callable[..., Path], tmp_path: Path
) -> None:
    repository = _at(clones / "acme+net")
    after = repository.commit("fix", train_py=CODE.replace(".item()", ".detach()"))
    label = {"repo": REPO, "sha": after, "parent": sha, "path": "train.py", "start": 12, "end": 12}
    made = held_out_texts([file_of(label, part="fixes")], clones)
    assert len(made.texts) == 2
    out = tmp_path / "texts.jsonl"
    options = ["--clones", str(clones), "--out", str(out)]
    done = CliRunner().invoke(main, ["data", "held-out", str(file_of(label, part="fixes")), *options])
    assert done.exit_code == 0, done.output
    assert Evaluation(evaluation_texts([out])).contaminates(CODE)
