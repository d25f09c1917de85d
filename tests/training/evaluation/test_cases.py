"""What the rules could say of labelled commits, and what of it counts as right. Light: no scikit-learn, no torch."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

pytest.importorskip("numpy")

from training.evaluation.cases import Pool, read_pool


@pytest.fixture(scope="module")
def pool(cases: Path) -> Pool:
    return read_pool(cases)


def test_every_rule_speaks_however_unsure(pool: Pool) -> None:
    said = {(r.case, r.finding.name): r for r in pool.remarks}
    assert ("p1", "item-every-step") in said and ("p2", "item-every-step") in said
    assert ("p1", "full-precision-training") in said  # below the default threshold
    assert said["p1", "item-every-step"].shown


def test_truth_is_yes_no_or_unknown(pool: Pool) -> None:
    truths = {(r.case, r.finding.name): r.truth for r in pool.remarks}
    assert truths["p1", "item-every-step"] is True
    assert truths["p1", "full-precision-training"] is None  # a labelled problem does not rule out another
    assert truths["w2", "full-precision-training"] is True
    assert truths["w2", "item-every-step"] is None
    assert {truth for (case, _), truth in truths.items() if case in ("n1", "n2", "w1")} == {False}


def test_a_remark_brings_the_function_that_it_is_about(pool: Pool) -> None:
    for remark in pool.remarks:
        assert remark.region is not None and remark.region.symbol == "train"
        assert [c.rule for c in remark.region.candidates] == [remark.finding.name]
    assert len(pool.labelled_regions()) == len(pool.remarks)


def test_words_are_asked_about_only_where_the_answer_is_known(pool: Pool) -> None:
    labelled = {(a.project, rule): a.truth[rule] for a in pool.words for rule in a.rules}
    assert labelled
    assert labelled["a/a", "item-every-step"] is False  # the clean commit reads the loss now and then
    spoken = {(r.repository, r.finding.name) for r in pool.remarks if r.label == "clean"}
    assert not any(truth is False and key in spoken for key, truth in labelled.items())


def test_counts_are_of_commits(pool: Pool) -> None:
    assert pool.wanted == 2
    assert pool.commits == {"problem": 2, "clean": 2, "whole": 2}


def test_files_that_cannot_be_read_ask_nothing(cases: Path, tmp_path: Path) -> None:
    shutil.copytree(cases, tmp_path, dirs_exist_ok=True)
    for tree in sorted((tmp_path / "cases").glob("*/tree")):
        with (tree / "train.py").open("a") as file:
            file.write("def train(:\n")
    broken = read_pool(tmp_path)
    assert broken.remarks == () and broken.words == () and broken.wanted == 2


def test_a_limit_reads_the_first_cases(cases: Path) -> None:
    steps: list[tuple[int, int]] = []
    first = read_pool(cases, 1, lambda _, done, total: steps.append((done, total)))
    assert first.commits == {"problem": 1} and steps == [(1, 1)]


def test_a_folder_without_labels_is_named(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"holds no labels\.jsonl"):
        read_pool(tmp_path)


def test_a_case_needs_no_repository(cases: Path, tmp_path: Path) -> None:
    shutil.copytree(cases, tmp_path, dirs_exist_ok=True)
    labels = [json.loads(line) for line in (tmp_path / "labels.jsonl").read_text().splitlines()]
    for label in labels:
        del label["repo"]
    (tmp_path / "labels.jsonl").write_text("".join(f"{json.dumps(label)}\n" for label in labels))
    assert {r.repository for r in read_pool(tmp_path).remarks} >= {"p1", "p2"}
