"""The adapter's dataset: the ranker's answers with their code, without what an evaluation set holds."""

from __future__ import annotations

import dataclasses
import json
from collections import Counter
from pathlib import Path

import pytest
from sqlalchemy import Engine

from tests.training.feedback_service import git
from tests.training.retrain.coded import DISLIKED, RULE, Coded
from training.dataset import dedup
from training.dataset.rows import ACCEPTED, JUDGED
from training.dataset.views import advise_example
from training.feedback import adapter_rows, ranker_rows
from training.feedback.adapter_rows import Dataset, advised, build


@pytest.fixture
def coded(tmp_path: Path, database_url: str, engine: Engine) -> Coded:
    return Coded(tmp_path, database_url, engine)


def made(coded: Coded, measured: tuple[Path, ...] = ()) -> Dataset:
    gold = (coded.gold,) if coded.gold.is_file() else ()
    return build(coded.url, coded.clones, gold=gold, measured=measured)


def test_answers_with_their_code(coded: Coded) -> None:
    coded.answers(6, 6)
    coded.judge(2, 4)
    found = made(coded, (coded.gold,))
    answers = {a.comment: a for a in ranker_rows.build(coded.url).answers}
    learned = [example for example in found.examples if not example.judged]
    assert len(learned) == len(answers) == 36 and not found.left_out
    assert len(found.of("held out")) == sum(a.held_out for a in answers.values()) > 0
    assert found.of("train") and found.of("validation") and len(found.of("gold")) == 8
    for example in found.examples:
        assert example.rule == RULE and f"def {DISLIKED}" in example.sample.text or example.useful
        (region, truth) = example.region().region, example.region().truth
        assert truth == {RULE: example.useful} and [c.rule for c in region.candidates] == [RULE]
    assert "acme" not in "".join(example.to_json() for example in learned), "no name of a repository"
    again = Dataset.of_text(made(coded, (coded.gold,)).text())
    assert (again.text(), again.against) == (found.text(), found.against) and found.against


def test_only_a_suggestion_that_was_taken_teaches_to_advise(coded: Coded) -> None:
    coded.answers(1, 4)
    coded.answers(1, 4, taken=True)
    found = made(coded)
    kinds = {(example.useful, example.sample.kind) for example in found.examples}
    assert kinds == {(False, JUDGED), (True, JUDGED), (True, ACCEPTED)}
    for example in found.examples:
        shown = advise_example(example.sample)
        assert (shown is not None) is (example.sample.kind == ACCEPTED)
        if shown is not None:
            (said,) = json.loads(shown[1])["findings"]
            assert said["rule"] == RULE and ".detach()" in str(said)
    assert advised(found.examples, 1024) == 2


def test_whoever_opted_out_in_the_meantime_is_left_out(coded: Coded) -> None:
    coded.answers(2, 4)
    at = coded.clones / "acme-1/net"
    (at / ".ptopt.toml").write_text("learn = false\n")
    git(at, "commit", "-qam", "no more")
    found = made(coded)
    assert len(found.examples) == 4
    assert found.left_out == {"the base branch in the clone does not say `learn = true`": 4}


def test_code_like_that_of_an_evaluation_set_is_left_out(coded: Coded, tmp_path: Path) -> None:
    coded.answers(2, 4)
    coded.judge(1, 2)
    text = (coded.clones / "acme-1/net/f0.py").read_text()
    at = coded.clones / "gold-0/net"
    (at / "f0.py").write_text("# A copy.\n" + text.replace("def ", "def copied_", 1))
    git(at, "commit", "-qam", "copied")
    row = json.loads(coded.gold.read_text().splitlines()[0])
    row |= {"sha": git(at, "rev-parse", "HEAD"), "start": row["start"] + 1, "end": row["end"] + 1}
    copied = tmp_path / "measured.jsonl"
    copied.write_text(json.dumps(row) + "\n")
    found = made(coded, (copied,))
    assert found.left_out == {adapter_rows.LIKE_MEASURED: 1}
    assert len([e for e in found.examples if not e.judged]) == 7


def test_what_is_learned_is_not_like_what_is_held_out(coded: Coded) -> None:
    """A fork has other features, and the same code."""
    coded.answers(5, 4)
    found = made(coded)
    held_out, learned, other = found.of("held out")[0], *found.of("train")[:2]
    fork = dataclasses.replace(learned, sample=held_out.sample)
    left_out: Counter[str] = Counter()
    kept = list(adapter_rows.clean([fork, other, held_out], dedup.Evaluation([]), left_out))
    assert kept == [held_out, other] and left_out == {adapter_rows.NEAR: 1}
