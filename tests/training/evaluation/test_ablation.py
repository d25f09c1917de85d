"""A judge beside the ranker: one that knows what readers said helps, one that knows nothing does not."""

from __future__ import annotations

import dataclasses
import json
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

pytest.importorskip("sklearn", reason="the extra `training` is not installed")

from ptopt.model.region import Region
from ptopt.ranker.model import Head, Ranker
from tests.training.sources.test_commits import Repository
from tests.training.texts import GPL
from training.dataset.verdicts import NO_CLONE
from training.evaluation.ablation import Comment, ablation, read_comments, table

STEP = """\
import torch


def train{n}(model, loader, optimizer):
    total = 0.0
    for batch in loader:
        loss = model(batch.cuda())
        loss.backward()
        optimizer.step()
        total += loss.{read}
    return total


"""
RANKER = Ranker(None, Head(-1.0, {"often:step": 2.0}), {}, threshold=0.5)
REPOSITORIES, EACH = 12, 8


class Reads:
    """A judge of the text: it knows that the readers liked comments on `.item()` and not on `.float()`."""

    def __init__(self, worth: float) -> None:
        self._worth = worth
        self.asked: list[Region] = []

    def judge(self, regions: Sequence[Region]) -> list[Mapping[str, float]]:
        self.asked += regions
        return [{"item-every-step": self._worth * _says(region)} for region in regions]


def _says(region: Region) -> float:
    return 1.0 if any(".item()" in line.text for line in region.lines) else -1.0


@pytest.fixture(scope="module")
def parts(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Clones of two dozen repositories, and a folder with the verdicts of two parts.

    The ranker is right about a half of the comments; what the code reads decides all of them.
    """
    folder = tmp_path_factory.mktemp("ablation")
    (folder / "clones").mkdir()
    for part in ("calibrate", "judge"):
        lines = []
        for number in range(REPOSITORIES):
            name = f"{part}{number}"
            useful = [at % 2 == 0 for at in range(EACH)]
            text = "".join(
                STEP.format(n=at, read="item()" if yes else "float()") for at, yes in enumerate(useful)
            )
            sha = Repository(folder / "clones" / f"acme+{name}").commit("start", LICENSE=GPL, a_py=text)
            for at, yes in enumerate(useful):
                line = 10 + at * STEP.count("\n")
                features = {"often:step": float(yes if at % 4 < 2 else not yes)}
                lines.append(
                    {"repo": f"acme/{name}", "sha": sha, "path": "a.py", "start": line, "end": line,
                     "rule": "item-every-step", "verdict": "R" if yes else "W", "features": features}
                )  # fmt: skip
        lines.append({**lines[-1], "repo": "acme/missing", "features": {"often:step": -1.0}})
        (folder / f"{part}.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return folder / "clones", folder


def comments(parts: tuple[Path, Path], part: str, missing: Counter[str] | None = None) -> list[Comment]:
    clones, folder = parts
    return read_comments(folder / f"{part}.jsonl", clones, Counter() if missing is None else missing)


def test_questions_come_with_their_code_whatever_the_licence(parts: tuple[Path, Path]) -> None:
    missing: Counter[str] = Counter()
    found = comments(parts, "judge", missing)
    assert len(found) == REPOSITORIES * EACH + 1
    assert +missing == {NO_CLONE: 1}
    assert found[-1].question is None
    question = found[0].question
    assert question is not None
    assert [c.rule for c in question.region.candidates] == ["item-every-step"]
    assert question.truth == {"item-every-step": True}


def test_a_judge_that_knows_helps_and_one_that_guesses_does_not(parts: tuple[Path, Path]) -> None:
    calibrate, held = comments(parts, "calibrate"), comments(parts, "judge")
    judges = {"knows": Reads(3.0), "guesses": Reads(0.0)}
    found = ablation(RANKER, judges, calibrate, held, resamples=50)
    alone = found["ranker"]
    assert alone.auc.value == pytest.approx(0.5, abs=0.02)
    assert (alone.comments, alone.useful) == (REPOSITORIES * EACH // 2, REPOSITORIES * EACH // 4)
    better = found["ranker and knows"]
    assert better.helps and better.gain is not None and better.gain.value == pytest.approx(0.5, abs=0.02)
    assert better.comments == better.useful == REPOSITORIES * EACH // 2
    assert better.wrong == 0
    assert not found["ranker and guesses"].helps
    text = table(found, held)
    assert "97 comments of 13 repositories, 48 useful; the code of 96 could be read" in text
    assert "ranker and knows: " in text and "; better than the ranker alone" in text
    assert "not better than the ranker alone" in text


def test_what_is_judged_decides_nothing_about_the_weights(parts: tuple[Path, Path]) -> None:
    calibrate, held = comments(parts, "calibrate"), comments(parts, "judge")
    turned = [Comment(dataclasses.replace(comment.row, verdict="T"), comment.question) for comment in held]
    fits = [
        ablation(RANKER, {"knows": Reads(3.0)}, calibrate, part, 10)["ranker and knows"].fit
        for part in (held, turned)
    ]
    assert fits[0] == fits[1] is not None
